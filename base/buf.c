/* buf.c: see buf.h. */
#include "base/buf.h"

#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int lost;

int ds_buf_lost(void)
{
    return atomic_load(&lost);
}

void ds_buf_lose(struct ds_buf *b)
{
    b->failed = 1;
    atomic_store(&lost, 1);
}

void ds_buf_add(struct ds_buf *b, const void *bytes, size_t n)
{
    if (b->failed)
        return;
    if (ds_grow(&b->data, &b->cap, b->len + n + 1, 1, "text buffer", NULL) != 0) {
        ds_buf_lose(b);
        return;
    }
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void ds_buf_puts(struct ds_buf *b, const char *text)
{
    ds_buf_add(b, text, strlen(text));
}

void ds_buf_printf(struct ds_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || ds_grow(&b->data, &b->cap, b->len + (size_t)n + 1, 1, "text buffer", NULL) != 0) {
        ds_buf_lose(b);
    } else if (!b->failed) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

int ds_utf8_len(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;
    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    int len = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
              : (s[0] & 0xf0) == 0xe0       ? 3
              : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                            : 0;
    if (len == 0 || (size_t)len > n)
        return 0;
    for (int i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

/* Characters that say nothing themselves and change how others are read: C1 controls (a terminal may obey them),
 * marks that turn the direction of writing, separators of lines, and code points that are no characters (which XML
 * refuses). len: of the well-formed sequence. */
static int is_unseen(const unsigned char *p, size_t len)
{
    if (len == 2)
        return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c); /* U+061C */
    if (len != 3)
        return 0;
    return (p[0] == 0xe2 && p[1] == 0x80 &&
            (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) || /* U+200E, 2028 */
           (p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9) ||     /* U+2066 */
           (p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe);                       /* U+FFFE */
}

void ds_buf_escape(struct ds_buf *b, const char *text, size_t n)
{
    if (n == (size_t)-1)
        n = strlen(text);
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        int len = ds_utf8_len(text + i, n - i);
        const int unseen = len > 1 && is_unseen((const unsigned char *)text + i, (size_t)len);
        if (c == '\n')
            ds_buf_puts(b, "\\n");
        else if (c == '\t')
            ds_buf_puts(b, "\\t");
        else if (c == '\r')
            ds_buf_puts(b, "\\r");
        else if (c == '\\')
            ds_buf_puts(b, "\\\\");
        else if (len == 0 || c < 0x20 || c == 0x7f || unseen) {
            for (int k = 0; k < (unseen ? len : 1); k++)
                ds_buf_printf(b, "\\x%02x", (unsigned char)text[i + (size_t)k]);
            len = unseen ? len : 1;
        } else
            ds_buf_add(b, text + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
}

/* Well-formed UTF-8 without control characters. */
static int is_printable(const char *text)
{
    for (size_t i = 0, n = strlen(text), len; i < n; i += len) {
        const unsigned char *p = (const unsigned char *)text + i;
        len = (size_t)ds_utf8_len(text + i, n - i);
        if (len == 0 || p[0] < 0x20 || p[0] == 0x7f || is_unseen(p, len))
            return 0;
    }
    return 1;
}

void ds_buf_quote(struct ds_buf *b, const char *arg)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (arg[0] != '\0' && arg[strspn(arg, plain)] == '\0') {
        ds_buf_puts(b, arg);
        return;
    }
    struct ds_buf escaped = {0};
    int printable = is_printable(arg);
    if (!printable)
        ds_buf_escape(&escaped, arg, (size_t)-1);
    b->failed |= escaped.failed;
    ds_buf_puts(b, printable ? "'" : "$'");
    for (const char *p = printable ? arg : escaped.data; p && *p; p++) {
        if (*p == '\'')
            ds_buf_puts(b, printable ? "'\\''" : "\\'");
        else
            ds_buf_add(b, p, 1);
    }
    ds_buf_puts(b, "'");
    ds_buf_free(&escaped);
}

int ds_buf_write(const struct ds_buf *b, int fd)
{
    const char *data = b->data;
    size_t n = b->len;
    while (n) {
        ssize_t did = write(fd, data, n);
        if (did < 0 && errno != EINTR)
            return -1;
        data += did > 0 ? did : 0;
        n -= did > 0 ? (size_t)did : 0;
    }
    return 0;
}

void ds_buf_free(struct ds_buf *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}
