/* inputs_clock.c: the frozen clock of --inputs: read, and written into prompts as they had it. Owns both forms; asks no
 * real clock. See inputs.h. */
#include "cli/inputs.h"

#include <stdio.h>
#include <string.h>

#define CONVERSIONS "aAbBdDeFHIjmMpRSTyY%"

/* Digits of a pattern in which 'd' stands for one, at `at`: every other character is itself. Their numbers, as they are
 * separated, come to n[]. Returns the characters, 0 where the text is another one. */
static size_t match(const char *at, const char *pattern, int *n)
{
    size_t i = 0;
    for (*n = 0; pattern[i]; i++) {
        if (pattern[i] != 'd') {
            if (at[i] != pattern[i])
                return 0;
            *++n = 0;
        } else if (at[i] >= '0' && at[i] <= '9') {
            *n = *n * 10 + (at[i] - '0');
        } else
            return 0;
    }
    return i;
}

/* "Z", "+02:00" */
static int is_zone(const char *text)
{
    int n[2] = {0, 0};
    if (strcmp(text, "Z") == 0)
        return 1;
    return (*text == '+' || *text == '-') && match(text + 1, "dd:dd", n) == 5 && !text[6] &&
           n[0] < 24 && n[1] < 60;
}

static int read_iso(const char *text, struct ds_inputs_clock *c)
{
    int n[6] = {0};
    size_t used = match(text, "dddd-dd-ddTdd:dd", n);
    if (used == 0)
        return -1;
    if (text[used] == ':') {
        if (match(text + used + 1, "dd", n + 5) != 2)
            return -1;
        used += 3;
    }
    if (text[used] == '.') {
        const size_t part = strspn(text + used + 1, "0123456789");
        if (part == 0 || part > 9)
            return -1;
        used += part + 1;
    }
    if (!is_zone(text + used) || strlen(text) >= sizeof c->text)
        return -1;
    const struct tm tm = {.tm_year = n[0] - 1900,
                          .tm_mon = n[1] - 1,
                          .tm_mday = n[2],
                          .tm_hour = n[3],
                          .tm_min = n[4],
                          .tm_sec = n[5]};
    c->tm = tm;
    /* Finds the day of the week; a date that does not exist becomes another one. */
    (void)timegm(&c->tm);
    if (c->tm.tm_year != tm.tm_year || c->tm.tm_mon != tm.tm_mon || c->tm.tm_mday != tm.tm_mday ||
        c->tm.tm_hour != tm.tm_hour || c->tm.tm_min != tm.tm_min || c->tm.tm_sec != tm.tm_sec)
        return -1;
    snprintf(c->text, sizeof c->text, "%s", text);
    return 0;
}

static int read_unix(json_int_t seconds, struct ds_inputs_clock *c)
{
    const json_int_t last = 253402300799; /* of the year 9999 */
    const time_t t = (time_t)seconds;
    if (seconds < 0 || seconds > last || !gmtime_r(&t, &c->tm))
        return -1;
    return strftime(c->text, sizeof c->text, "%Y-%m-%dT%H:%M:%SZ", &c->tm) > 0 ? 0 : -1;
}

int ds_inputs_clock_parse(const json_t *v, struct ds_inputs_clock *c, struct ds_error *err)
{
    memset(c, 0, sizeof *c);
    if (!v)
        return 0;
    c->given = 1;
    if (json_is_string(v) ? read_iso(json_string_value(v), c) == 0
                          : json_is_integer(v) && read_unix(json_integer_value(v), c) == 0)
        return 0;
    ds_fail(err, "the clock is no time");
    return ds_hint(err, "as in \"2024-06-03T14:32:00Z\", \"2024-06-03T16:32:00+02:00\" or "
                        "1717425120, seconds since 1970");
}

int ds_inputs_clock_text(const struct ds_inputs_clock *c, const char *format, size_t n,
                         struct ds_buf *out, struct ds_error *err)
{
    if (!c->given) {
        ds_fail(err, "{{clock}}: the file says no clock");
        return ds_hint(err, "give the request, or the file, a \"clock\"");
    }
    if (n == 0)
        ds_buf_puts(out, c->text);
    for (size_t i = 0; i < n; i++) {
        char one[3] = {'%', i + 1 < n ? format[i + 1] : 0, 0}, text[64];
        if (format[i] != '%') {
            ds_buf_add(out, format + i, 1);
            continue;
        }
        if (!one[1] || !strchr(CONVERSIONS, one[1])) {
            ds_fail(err, "{{clock:%.*s}}: '%s' is not known", n > 80 ? 80 : (int)n, format, one);
            return ds_hint(err, "conversions of strftime: %s", CONVERSIONS);
        }
        const size_t written = strftime(text, sizeof text, one, &c->tm);
        ds_buf_add(out, text, written);
        i++;
    }
    return out->failed ? ds_fail(err, "out of memory for a text") : 0;
}
