/* figure.c: what all figures share: the element, its words, its colours. See figure.h. */
#include "report/figure.h"

#include "base/mem.h"
#include "report/html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_figure_free(struct ds_figure *f)
{
    ds_buf_free(&f->title);
    ds_buf_free(&f->about);
    ds_buf_free(&f->svg);
    ds_buf_free(&f->data);
    free(f->cuts);
}

/* Tints that dark text is read on, and in the dark shades for light text; every sign has a letter as well. */
const char *ds_figure_style(void)
{
    return ":root{color-scheme:light "
           "dark;--bg:#fff;--ink:#1b1b1a;--dim:#5b5b57;--line:#cfcfc9;--card:#f5f5f2;"
           "--same:#ecece7;--origin:#f4a582;--own:#f6d08a;--in:#a8cdea;--unst:#dcb0d4;--bad:#"
           "3a3a38;--badt:#fff;"
           "--unk:#e6e2a0;--link:#0b57a0;--good:#1d6b3c;--wrong:#a3260f}\n"
           "@media screen and "
           "(prefers-color-scheme:dark){:root{--bg:#171716;--ink:#ececea;--dim:#a8a8a2;--line:#"
           "44443f;"
           "--card:#20201e;--same:#2b2b28;--origin:#8f3f1d;--own:#6f4f12;--in:#24557c;--unst:#"
           "6a3a61;--bad:#e8e8e4;"
           "--badt:#111;--unk:#5c581a;--link:#8cc2f5;--good:#7fd6a0;--wrong:#ff9a80}}\n"
           "svg{font:12px system-ui,-apple-system,\"Segoe UI\",sans-serif}"
           "svg text{fill:var(--ink)}svg .dim{fill:var(--dim)}svg .b{font-weight:600}"
           "svg .m{font-family:ui-monospace,\"DejaVu Sans Mono\",monospace}"
           "svg .axis{stroke:var(--line);fill:none}svg "
           ".l{stroke:var(--ink);fill:none;stroke-width:1.5}"
           "svg .d{stroke-dasharray:5 3}svg .p{fill:var(--ink)}svg "
           ".o{fill:var(--bg);stroke:var(--ink);stroke-width:1.5}"
           "svg .same{fill:var(--same)}svg .origin{fill:var(--origin)}svg .own{fill:var(--own)}"
           "svg .in{fill:var(--in)}svg .unst{fill:var(--unst)}svg .bad{fill:var(--bad)}svg "
           ".unk{fill:var(--unk)}"
           "svg text.badt{fill:var(--badt)}svg "
           ".none{fill:none;stroke:var(--line);stroke-dasharray:2 2}"
           "svg .edge{stroke:var(--ink);stroke-width:2;fill:none}svg .paper{fill:var(--bg)}\n";
}

/* A drawing that is narrower is never widened, wherever it stands. */
enum { FEW = 544 };

/* The window of the drawing from y on; part: "" or what tells its ids from those of the other parts. */
static void begin_element(const struct ds_figure *f, int y, int height, const char *part,
                          struct ds_buf *out)
{
    const char *id = f->id[0] ? f->id : "figure";
    ds_buf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 %d %d %d\" width=\"%d\" "
                  "height=\"%d\"%s role=\"img\" "
                  "aria-labelledby=\"%s-t%s %s-d%s\">\n<title id=\"%s-t%s\">",
                  y, f->width, height, f->width, height, f->width < FEW ? " class=\"few\"" : "", id,
                  part, id, part, id, part);
    ds_html_escaped(out, f->title.data, f->title.len);
    ds_buf_printf(out, "</title>\n<desc id=\"%s-d%s\">", id, part);
    ds_html_escaped(out, f->about.data, f->about.len);
    ds_buf_puts(out, "</desc>\n");
}

void ds_svg_begin(struct ds_figure *f, int width, int height)
{
    f->width = width;
    f->height = height;
    begin_element(f, 0, height, "", &f->svg);
    f->body = f->svg.len;
}

void ds_svg_end(struct ds_figure *f)
{
    ds_buf_puts(&f->svg, "</svg>\n");
}

int ds_svg_cut(struct ds_figure *f, int y, struct ds_error *err)
{
    if (ds_grow(&f->cuts, &f->cap_cuts, f->n_cuts + 1, sizeof *f->cuts, "cuts", err) != 0)
        return -1;
    f->cuts[f->n_cuts++] = (struct ds_figure_cut){f->svg.len, y};
    return 0;
}

void ds_svg_sheets(const struct ds_figure *f, struct ds_buf *out)
{
    const int sheet = f->width * 5 / 4; /* of A4 and of letter, with room for the words above it */
    struct ds_figure_cut from = {f->body, 0};
    size_t parts = 0;
    char part[32] = "";
    for (size_t i = 0; i < f->n_cuts; i++) {
        const struct ds_figure_cut cut = f->cuts[i];
        const int next = i + 1 < f->n_cuts ? f->cuts[i + 1].y : f->height;
        if (next - from.y <= sheet || cut.at == from.at)
            continue;
        snprintf(part, sizeof part, "%zu", ++parts);
        begin_element(f, from.y, cut.y - from.y, part, out);
        ds_buf_add(out, f->svg.data + from.at, cut.at - from.at);
        ds_buf_puts(out, "</svg>\n");
        from = cut;
    }
    if (parts == 0) {
        ds_buf_add(out, f->svg.data, f->svg.len);
        return;
    }
    snprintf(part, sizeof part, "%zu", ++parts);
    begin_element(f, from.y, f->height - from.y, part, out);
    ds_buf_add(out, f->svg.data + from.at, f->svg.len - from.at); /* with its end */
}

void ds_svg_text(struct ds_figure *f, double x, double y, const char *anchor, const char *cls,
                 const char *text)
{
    ds_buf_printf(&f->svg, "<text x=\"%.6g\" y=\"%.6g\"", x, y);
    if (strcmp(anchor, "start") != 0)
        ds_buf_printf(&f->svg, " text-anchor=\"%s\"", anchor);
    if (cls[0])
        ds_buf_printf(&f->svg, " class=\"%s\"", cls);
    ds_buf_puts(&f->svg, ">");
    ds_html_escaped(&f->svg, text, (size_t)-1);
    ds_buf_puts(&f->svg, "</text>\n");
}

/* The same element, with the style that a page has, on paper of its own. */
void ds_figure_file(const struct ds_figure *f, struct ds_buf *out)
{
    const char *at = f->svg.data ? strstr(f->svg.data, "</desc>\n") : NULL;
    out->failed |= f->svg.failed;
    if (!at)
        return;
    at += strlen("</desc>\n");
    ds_buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    ds_buf_add(out, f->svg.data, (size_t)(at - f->svg.data));
    ds_buf_printf(out,
                  "<style>%s</style>\n<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
                  ds_figure_style());
    ds_buf_puts(out, at);
}
