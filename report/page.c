/* page.c: see page.h. Owns the page's order, its words beside the record's, and its style. */
#include "report/page.h"

#include "report/html.h"
#include "report/report_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_page_free(struct ds_page *p)
{
    ds_buf_free(&p->top);
    ds_buf_free(&p->list);
    ds_buf_free(&p->body);
}

/* ---- a record -------------------------------------------------------------------------------- */

static const char *role_class(enum ds_role role)
{
    return role == DS_ROLE_DRIFT      ? "drift"
           : role == DS_ROLE_UNSTABLE ? "unstable"
           : role == DS_ROLE_SAME     ? "same"
                                      : "other";
}

static void begin_section(struct ds_page *p, const char *path, const char *start,
                          const char *sentence, enum ds_role role)
{
    const size_t n = ++p->n_records;
    ds_buf_printf(&p->list, "<li><a href=\"#r%zu\">", n);
    ds_html_text(&p->list, path, (size_t)-1);
    ds_buf_puts(&p->list, "</a> <span class=\"dim\">");
    ds_html_text(&p->list, start, (size_t)-1);
    ds_buf_puts(&p->list, "</span><br/>");
    ds_html_escaped(&p->list, sentence, (size_t)-1);
    ds_buf_puts(&p->list, "</li>\n");
    ds_buf_printf(&p->body, "<section id=\"r%zu\" aria-labelledby=\"h%zu\">\n<h2 id=\"h%zu\">", n,
                  n, n);
    ds_html_text(&p->body, path, (size_t)-1);
    ds_buf_printf(&p->body, "</h2>\n<p class=\"sentence %s\">", role_class(role));
    ds_html_escaped(&p->body, sentence, (size_t)-1);
    ds_buf_puts(&p->body, "</p>\n<p class=\"facts\">");
}

void ds_page_begin(struct ds_page *p, const char *path, const char *start, const char *facts,
                   const char *sentence, enum ds_role role)
{
    begin_section(p, path, start, sentence, role);
    ds_html_escaped(&p->body, facts, (size_t)-1);
    ds_buf_puts(&p->body, "</p>\n");
}

void ds_page_begin_record(struct ds_page *p, const char *path, const struct ds_header *h,
                          const char *sentence, enum ds_role role)
{
    begin_section(p, path, h->start, sentence, role);
    ds_html_text(&p->body, h->model_name, (size_t)-1);
    ds_html_printf(&p->body, ", %d layers; ", h->n_layers);
    ds_html_text(&p->body, h->start, (size_t)-1);
    ds_buf_puts(&p->body, "; driftscope ");
    ds_html_text(&p->body, h->tool_version, (size_t)-1);
    ds_buf_puts(&p->body, " (");
    ds_html_text(&p->body, h->build, (size_t)-1);
    ds_buf_puts(&p->body, ")</p>\n");
}

void ds_page_end_record(struct ds_page *p)
{
    ds_buf_puts(&p->body, "</section>\n");
}

/* ---- the matrix ------------------------------------------------------------------------------ */

static void matrix_cell(struct ds_buf *out, const struct ds_verdict *v, size_t k, size_t f)
{
    struct ds_buf text = {0};
    ds_report_cell(v, k, f, 60, &text);
    ds_buf_printf(out, "<td class=\"%s\">",
                  role_class(ds_report_cell_role(v->kernels[k].condition[f])));
    ds_html_escaped(out, text.data, text.len);
    text.len = 0;
    ds_report_cell_count(v, k, f, &text);
    if (text.len)
        ds_buf_printf(out, " (%.*s)", (int)text.len, text.data);
    ds_buf_puts(out, "</td>");
    out->failed |= text.failed;
    ds_buf_free(&text);
}

static int in_play(const struct ds_factor_verdict *f)
{
    return f->arms > 0 || f->arms_alone > 0;
}

void ds_page_matrix(struct ds_page *p, const struct ds_report *r)
{
    struct ds_buf *out = &p->body;
    const struct ds_verdict *v = r->v;
    size_t factors = 0;
    for (size_t f = 0; f < v->n_factors; f++)
        factors += (size_t)in_play(&v->factors[f]);
    if (!v->n_kernels || !factors)
        return;
    ds_buf_puts(out, "<h3>Kernels and conditions</h3>\n<p class=\"dim\">Which factor changes the "
                     "bits of which kernel on equal "
                     "inputs. Classes (1|2, 1-3|4-) are settings with the same bits; (N): at so "
                     "many sites the kernel "
                     "is an origin; ? not judged, - not run.</p>\n"
                     "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"kernels "
                     "and conditions\">"
                     "<table class=\"matrix\"><thead><tr><th scope=\"col\">kernel</th>");
    for (size_t f = 0; f < v->n_factors; f++) {
        if (!in_play(&v->factors[f]))
            continue;
        ds_buf_puts(out, "<th scope=\"col\">");
        ds_html_text(out, v->factors[f].name, (size_t)-1);
        ds_buf_puts(out, "</th>");
    }
    ds_buf_puts(out, "</tr></thead><tbody>\n");
    for (size_t k = 0; k < v->n_kernels; k++) {
        struct ds_buf name = {0};
        ds_report_kernel(&name, v->kernels[k].op, v->kernels[k].variant);
        ds_buf_puts(out, "<tr><th scope=\"row\">");
        ds_html_escaped(out, name.data, name.len);
        ds_buf_puts(out, "</th>");
        ds_buf_free(&name);
        for (size_t f = 0; f < v->n_factors; f++)
            if (in_play(&v->factors[f]))
                matrix_cell(out, v, k, f);
        ds_buf_puts(out, "</tr>\n");
    }
    ds_buf_puts(out, "</tbody></table></div>\n");
}

/* ---- the verdict's paragraphs ---------------------------------------------------------------- */

/* Lines have a name, or belong to the one before, and text from column 14 on. */
static void add_paragraph(struct ds_buf *out, const char *text, size_t n, int *open)
{
    enum { NAME = 14 };
    for (size_t at = 0; at < n;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        const size_t len = end ? (size_t)(end - line) : n - at;
        size_t name = len < NAME ? len : NAME;
        while (name > 0 && line[name - 1] == ' ')
            name--;
        if (name > 0) {
            ds_buf_puts(out, *open ? "</dd>\n<dt>" : "<dt>");
            ds_html_escaped(out, line, name);
            ds_buf_puts(out, "</dt><dd>");
            *open = 1;
        } else if (len > NAME)
            ds_buf_puts(out, *open ? "<br/>" : "");
        if (len > NAME)
            ds_html_escaped(out, line + NAME, len - NAME);
        at += len + 1;
    }
}

void ds_page_verdict(struct ds_page *p, const struct ds_report *r)
{
    struct ds_report plain = *r;
    int open = 0;
    plain.color = NULL;
    ds_buf_puts(&p->body, "<h3>What was found</h3>\n<dl>\n");
    for (int part = 0; part < DS_REPORT_PARTS; part++) {
        struct ds_buf text = {0};
        if (part == DS_REPORT_MATRIX || part == DS_REPORT_GROWTH)
            continue;
        ds_report_paragraph(&plain, part, &text);
        add_paragraph(&p->body, text.data ? text.data : "", text.len, &open);
        p->body.failed |= text.failed;
        ds_buf_free(&text);
    }
    ds_buf_puts(&p->body, open ? "</dd>\n</dl>\n" : "</dl>\n");
}

/* ---- figures, tables ------------------------------------------------------------------------- */

void ds_page_figure_id(struct ds_page *p, struct ds_figure *f)
{
    snprintf(f->id, sizeof f->id, "f%zu", ++p->n_figures);
}

void ds_page_figure(struct ds_page *p, const struct ds_figure *f, int top)
{
    struct ds_buf *out = top ? &p->top : &p->body;
    out->failed |= f->svg.failed || f->data.failed || f->title.failed || f->about.failed;
    ds_buf_puts(out, "<figure>\n<figcaption><h3>");
    ds_html_escaped(out, f->title.data, f->title.len);
    ds_buf_puts(out, "</h3><p>");
    ds_html_escaped(out, f->about.data, f->about.len);
    ds_buf_puts(out, "</p></figcaption>\n");
    if (f->svg.len) {
        ds_buf_puts(out, "<div class=\"scroll\" tabindex=\"0\">");
        ds_svg_sheets(f, out);
        ds_buf_puts(out, "</div>\n<details><summary>The numbers</summary>\n");
        ds_html_table(out, f->title.data ? f->title.data : "", &f->data);
        ds_buf_puts(out, "</details>\n");
    }
    ds_buf_puts(out, "</figure>\n");
}

void ds_page_table(struct ds_page *p, const char *heading, const char *about,
                   const struct ds_buf *tsv, int top)
{
    struct ds_buf *out = top ? &p->top : &p->body;
    ds_buf_puts(out, "<h3>");
    ds_html_escaped(out, heading, (size_t)-1);
    ds_buf_puts(out, "</h3>\n");
    ds_buf_puts(out, "<p class=\"dim\">");
    ds_html_escaped(out, about, (size_t)-1);
    ds_buf_puts(out, "</p>\n");
    ds_html_table(out, heading, tsv);
}

/* ---- environment ----------------------------------------------------------------------------- */

static void add_value(struct ds_buf *out, const char *text)
{
    enum { MOST = 400 };
    const size_t n = text ? strlen(text) : 0;
    ds_html_text(out, text, n > MOST ? MOST : n);
    ds_buf_puts(out, n > MOST ? "..." : "");
}

/* Lists that are long and stand elsewhere (weights, every arm, ids of what is there as text) are for `show
 * --environment`. */
static int is_told(const struct ds_env_of *w, const struct ds_env_row *r)
{
    if (r->list == DS_ENV_PROMPTS && r->kind != DS_ENV_HEADING && r->at[0] % 2 &&
        r->at[0] / 2 < w->sides[0]->n_prompts) {
        const char *text = w->sides[0]->prompts[r->at[0] / 2].text;
        return !text || !text[0];
    }
    return r->list != DS_ENV_WEIGHTS && r->list != DS_ENV_ARMS && r->list != DS_ENV_FINDINGS;
}

int ds_page_environment(struct ds_page *p, const struct ds_env_of *w, struct ds_error *err)
{
    struct ds_env e = {0};
    struct ds_buf *out = &p->body;
    if (ds_env_make(&e, w, err) != 0) {
        ds_env_free(&e);
        return -1;
    }
    ds_buf_puts(out, "<h3>Environment</h3>\n<details open=\"open\"><summary>Machine, build, "
                     "libraries, options</summary>\n"
                     "<div class=\"scroll\"><table class=\"env\"><tbody>\n");
    for (size_t i = 0; i < e.n; i++) {
        struct ds_env_texts t = {0};
        char heading[512];
        if (!is_told(w, &e.rows[i]))
            continue;
        if (e.rows[i].kind == DS_ENV_HEADING) {
            ds_env_heading(&e, &e.rows[i], heading);
            ds_buf_puts(out, "<tr><th colspan=\"2\" scope=\"rowgroup\">");
            ds_html_text(out, heading, (size_t)-1);
            ds_buf_puts(out, "</th></tr>\n");
            continue;
        }
        ds_env_row_texts(&e, w, &e.rows[i], &t);
        ds_buf_puts(out, "<tr><th scope=\"row\">");
        ds_html_text(out, t.name, (size_t)-1);
        ds_buf_puts(out, "</th><td>");
        add_value(out, t.text[0]);
        ds_buf_puts(out, "</td></tr>\n");
    }
    ds_buf_puts(out, "</tbody></table></div></details>\n");
    ds_env_free(&e);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const char style[] =
    "*{box-sizing:border-box}body{margin:0 auto;max-width:64rem;padding:1rem 1.2rem "
    "3rem;background:var(--bg);"
    "color:var(--ink);font:1rem/1.5 system-ui,-apple-system,\"Segoe "
    "UI\",sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:1.5rem;line-height:1.25;margin:.4rem 0 1rem}h2{font-size:1.25rem;margin:2.6rem 0 "
    ".6rem;padding-top:1rem;"
    "border-top:2px solid var(--line)}h3{font-size:1.05rem;margin:1.8rem 0 "
    ".4rem}a{color:var(--link)}"
    "p{margin:.4rem 0}.dim,.facts,figcaption p{color:var(--dim)}.facts{font-size:.9rem}"
    ".sentence{font-size:1.1rem;font-weight:600;padding:.7rem "
    "1rem;background:var(--card);border-left:.45rem solid var(--dim)}"
    ".sentence.drift{border-color:var(--wrong)}.sentence.same{border-color:var(--good)}"
    ".sentence.unstable{border-color:var(--wrong);border-left-style:double}"
    ".list{padding-left:1.2rem}.list li{margin:.5rem 0}.scroll{overflow-x:auto;max-width:100%;"
    /* A shade at the side where there is more to see. */
    "background:linear-gradient(90deg,var(--bg) 50%,transparent) 0 0/2rem 100% no-repeat local,"
    "linear-gradient(270deg,var(--bg) 50%,transparent) 100% 0/2rem 100% no-repeat local,"
    "linear-gradient(90deg,var(--line),transparent) 0 0/.7rem 100% no-repeat scroll,"
    "linear-gradient(270deg,var(--line),transparent) 100% 0/.7rem 100% no-repeat scroll}"
    "table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}"
    "th,td{padding:.22rem .6rem .22rem 0;text-align:left;vertical-align:top;border-bottom:1px "
    "solid var(--line);"
    "overflow-wrap:normal}td{overflow-wrap:anywhere}th{font-weight:600}td.n{text-align:right}"
    "table.data th,table.data td,table.matrix td,table.matrix th{white-space:nowrap}.env "
    "th{white-space:nowrap;font-weight:400;color:var(--dim)}"
    ".env th[colspan]{color:var(--ink);font-weight:600;padding-top:.8rem}"
    ".matrix td.same{color:var(--dim)}.matrix td.drift,.matrix td.unstable{font-weight:600}"
    ".matrix td.drift{color:var(--wrong)}.matrix td.unstable{color:var(--wrong);font-style:italic}"
    "figure{margin:1.6rem 0}figcaption h3{margin-bottom:.1rem}figcaption p{margin:.1rem 0 "
    ".6rem;font-size:.9rem}"
    "figure svg{display:block;max-width:100%;min-width:34rem;height:auto}figure "
    "svg.few{min-width:0}"
    "details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.1rem;margin:.5rem "
    "0;font-size:.93rem}"
    "dt{color:var(--dim)}dd{margin:0;min-width:0}footer{margin-top:3rem;font-size:.85rem;color:var("
    "--dim)}"
    "@media(max-width:40rem){dl{display:block}dt{margin-top:.5rem;font-weight:600}body{padding:."
    "6rem .8rem 2rem}}"
    "@media print{body{max-width:none;padding:0;font-size:10pt}figure "
    "svg{min-width:0}figure svg,figcaption,.sentence,tr,dt,dd{break-inside:avoid}"
    "figcaption,figcaption "
    "p,h2,h3,dt{break-after:avoid}.scroll{overflow:visible;background:none}table{font-size:8pt}"
    /* Names stay whole, what is long is what was set. */
    "table.data td:nth-child(-n+3){overflow-wrap:normal}"
    "table.data th,table.data td,table.matrix th,table.matrix td,.env th{white-space:normal}"
    "details:not([open]),summary{display:none}a{color:inherit;text-decoration:none}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

void ds_page_print(const struct ds_page *p, const char *title, const char *made, struct ds_buf *out)
{
    out->failed |= p->top.failed || p->list.failed || p->body.failed;
    ds_buf_puts(
        out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'unsafe-inline'\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
    ds_html_escaped(out, title, (size_t)-1);
    ds_buf_printf(out, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<header><h1>",
                  ds_figure_style(), style);
    ds_html_escaped(out, title, (size_t)-1);
    ds_buf_puts(out, "</h1></header>\n<main>\n");
    if (p->n_records > 1) {
        ds_buf_puts(out, "<nav aria-label=\"records\"><ul class=\"list\">\n");
        ds_buf_add(out, p->list.data ? p->list.data : "", p->list.len);
        ds_buf_puts(out, "</ul></nav>\n");
    }
    ds_buf_add(out, p->top.data ? p->top.data : "", p->top.len);
    ds_buf_add(out, p->body.data ? p->body.data : "", p->body.len);
    ds_buf_puts(out, "</main>\n<footer><p>");
    ds_html_escaped(out, made, (size_t)-1);
    ds_buf_puts(out, "</p></footer>\n</body>\n</html>\n");
}
