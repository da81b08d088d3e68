/* error.c: see error.h. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

int ds_fail(struct ds_error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    err->hint[0] = '\0';
    return -1;
}

int ds_hint(struct ds_error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
    return -1;
}

int ds_prefix(struct ds_error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char prefix[512], old[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    size_t has = strlen(prefix);
    if (has && strncmp(err->msg, prefix, has) == 0 && err->msg[has] == ':')
        return -1; /* whoever failed named it already */
    memcpy(old, err->msg, sizeof old);
    int n = snprintf(err->msg, sizeof err->msg, "%s: ", prefix);
    if (n > 0 && (size_t)n < sizeof err->msg)
        snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%.*s",
                 (int)(sizeof err->msg - (size_t)n - 1), old);
    return -1;
}
