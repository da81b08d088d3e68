/* html.h: inside report/ and for who writes pages: untrusted text and tab-separated values as HTML. Whatever a text holds, it
 * comes out as text: first escaped as it is on a terminal (no control characters, well-formed UTF-8), then for HTML. */
#ifndef DS_HTML_H
#define DS_HTML_H

#include "base/buf.h"

/* n = (size_t)-1: up to the NUL; NULL is nothing. Fit for element content and for quoted attributes. */
void ds_html_text(struct ds_buf *out, const char *text, size_t n);
/* Text that is escaped for a terminal already (what report.h makes): for HTML only. */
void ds_html_escaped(struct ds_buf *out, const char *text, size_t n);
/* printf, then for HTML. Texts among the arguments must be escaped for a terminal. */
void ds_html_printf(struct ds_buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A <table> from tab-separated lines, the first of which has the headings; cells with numbers are set right. It scrolls in a
 * region of that name where it is wider than the page. */
void ds_html_table(struct ds_buf *out, const char *name, const struct ds_buf *tsv);

#endif
