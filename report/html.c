/* html.c: see html.h. */
#include "report/html.h"

#include <stdio.h>
#include <string.h>

void ds_html_escaped(struct ds_buf *out, const char *text, size_t n)
{
    n = text ? (n == (size_t)-1 ? strlen(text) : n) : 0;
    for (size_t i = 0; i < n;) {
        const size_t plain = i;
        while (i < n && !strchr("<>&\"'", text[i]) && text[i])
            i++;
        ds_buf_add(out, text + plain, i - plain);
        if (i == n)
            break;
        switch (text[i++]) {
        case '<':
            ds_buf_puts(out, "&lt;");
            break;
        case '>':
            ds_buf_puts(out, "&gt;");
            break;
        case '&':
            ds_buf_puts(out, "&amp;");
            break;
        case '"':
            ds_buf_puts(out, "&quot;");
            break;
        case '\'':
            ds_buf_puts(out, "&#39;");
            break;
        default: /* NUL: nothing */
            break;
        }
    }
}

void ds_html_text(struct ds_buf *out, const char *text, size_t n)
{
    struct ds_buf safe = {0};
    if (!text)
        return;
    ds_buf_escape(&safe, text, n);
    ds_html_escaped(out, safe.data, safe.len);
    out->failed |= safe.failed;
    ds_buf_free(&safe);
}

void ds_html_printf(struct ds_buf *out, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ds_html_escaped(out, text, (size_t)-1);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int looks_like_number(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789+-.e", s[i]))
            return 0;
    return n > 0 && strcspn(s, "0123456789") < n;
}

static void add_line(struct ds_buf *out, const char *line, size_t n, int head)
{
    ds_buf_puts(out, "<tr>");
    for (size_t at = 0, first = 1; at <= n; first = 0) {
        const char *tab = memchr(line + at, '\t', n - at);
        const size_t len = tab ? (size_t)(tab - line) - at : n - at;
        const char *tag = head ? "th" : "td";
        ds_buf_printf(out, "<%s%s>", tag,
                      head                                          ? " scope=\"col\""
                      : !first && looks_like_number(line + at, len) ? " class=\"n\""
                                                                    : "");
        ds_html_escaped(out, line + at, len);
        ds_buf_printf(out, "</%s>", tag);
        at += len + 1;
    }
    ds_buf_puts(out, "</tr>\n");
}

void ds_html_table(struct ds_buf *out, const char *name, const struct ds_buf *tsv)
{
    out->failed |= tsv->failed;
    ds_buf_puts(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    ds_html_escaped(out, name, (size_t)-1);
    ds_buf_puts(out, "\"><table class=\"data\">\n");
    int head = 1;
    for (size_t at = 0; tsv->data && at < tsv->len; head = 0) {
        const char *end = memchr(tsv->data + at, '\n', tsv->len - at);
        const size_t n = end ? (size_t)(end - tsv->data) - at : tsv->len - at;
        ds_buf_puts(out, head ? "<thead>" : "");
        add_line(out, tsv->data + at, n, head);
        ds_buf_puts(out, head ? "</thead><tbody>\n" : "");
        at += n + 1;
    }
    ds_buf_puts(out, head ? "</table></div>\n" : "</tbody></table></div>\n");
}
