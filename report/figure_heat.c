/* figure_heat.c: layer x stage as a drawing: every site of one arm against another, its sign (as `show --sites` has it), and how
 * far off, as a tint. See figure.h. */
#include "report/figure.h"

#include "base/mem.h"
#include "dumps/site_sums.h"
#include "report/html.h"
#include "report/report_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 52, TOP = 26, CELL_W = 34, CELL_H = 19, NAME_W = 150 };

struct heat {
    const struct ds_report_view *w;
    struct ds_figure *f;
    uint8_t *labels, *healed, *bad;
    struct ds_site_sum *sums, *added;
    int some_added;
    double least, most; /* relative rms of any site that differs */
    uint32_t *columns;
    size_t n_columns;
    int y; /* of the next row */
};

/* ---- what a site is -------------------------------------------------------------------------- */

static int label_of(const struct heat *h, const uint8_t *labels, size_t site)
{
    const size_t rows = ds_analysis_rows(h->w->a);
    int label = DS_LABEL_ABSENT;
    for (size_t i = 0; labels && i < rows; i++)
        label = ds_label_graver(label, labels[site * rows + i]);
    return label;
}

static size_t drifting(const struct heat *h, size_t site)
{
    const size_t rows = ds_analysis_rows(h->w->a);
    size_t n = 0;
    for (size_t i = 0; i < rows; i++)
        n += h->labels[site * rows + i] >= DS_LABEL_ORIGIN;
    return n;
}

static char mark_of(const struct heat *h, size_t site)
{
    const size_t rows = ds_analysis_rows(h->w->a), at = site * rows;
    return ds_report_rows_mark(h->labels + at, h->healed ? h->healed + at : NULL, rows,
                               h->bad[site]);
}

static const char *class_of(char mark)
{
    return mark == '.'   ? "same"
           : mark == '#' ? "origin"
           : mark == 'o' ? "own"
           : mark == '-' ? "in"
           : mark == '~' ? "unst"
           : mark == '!' ? "bad"
           : mark == 'x' ? "unk"
                         : "none";
}

/* Five tints, in equal steps of the logarithm between the smallest and the largest difference of the map. */
static void find_range(struct heat *h)
{
    for (size_t s = 0; s < h->w->s->header->n_sites; s++) {
        const double x = ds_site_sum_relative(&h->sums[s]);
        if (!(x > 0) || isinf(x))
            continue;
        h->least = !(h->least > 0) || x < h->least ? x : h->least;
        h->most = x > h->most ? x : h->most;
    }
}

static double tint_of(const struct heat *h, double relative)
{
    if (!(relative > 0) || !(h->most > h->least))
        return 0.7;
    const double place =
        isinf(relative) ? 1 : (log(relative) - log(h->least)) / (log(h->most) - log(h->least));
    const double step = floor(place * 5);
    return 0.4 + 0.15 * (step > 4 ? 4 : step < 0 ? 0 : step);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void add_data(struct heat *h, size_t site)
{
    const struct ds_site *s = &h->w->s->header->sites[site];
    const struct ds_site_sum *sum = &h->sums[site];
    struct ds_buf *out = &h->f->data;
    ds_buf_printf(out, "%d\t", s->layer);
    ds_buf_escape(out, s->stage, (size_t)-1);
    ds_buf_puts(out, "\t");
    ds_buf_escape(out, s->part, (size_t)-1);
    ds_buf_printf(out, "\t%c\t%s\t%s\t%zu", mark_of(h, site),
                  ds_label_name(label_of(h, h->labels, site)),
                  h->healed ? ds_label_name(label_of(h, h->healed, site)) : "", drifting(h, site));
    if (sum->sized)
        ds_buf_printf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%.9g\t%.9g", sum->elements, sum->max_ulp,
                      sum->max_abs, ds_site_sum_relative(sum));
    else
        ds_buf_puts(out, "\t\t\t\t");
    if (h->some_added && h->added[site].sized)
        ds_buf_printf(out, "\t%.9g\n", ds_site_sum_relative(&h->added[site]));
    else
        ds_buf_puts(out, "\t\n");
}

/* What hovering shows, and what a reader without eyes hears of the cell. */
static void add_title(struct heat *h, size_t site, char mark)
{
    const struct ds_site *s = &h->w->s->header->sites[site];
    const struct ds_site_sum *sum = &h->sums[site];
    struct ds_buf place = {0};
    ds_report_place(&place, s->layer, s->stage, s->part);
    ds_buf_puts(&h->f->svg, "<title>");
    ds_html_escaped(&h->f->svg, place.data, place.len);
    ds_html_printf(&h->f->svg, ": %s",
                   mark == '!'   ? "not finite"
                   : mark == '?' ? "not compared"
                                 : ds_label_name(label_of(h, h->labels, site)));
    if (mark == 'o')
        ds_buf_puts(&h->f->svg, ", origin when healed");
    if (sum->sized)
        ds_html_printf(&h->f->svg, ", %zu rows, relative rms %.1e", drifting(h, site),
                       ds_site_sum_relative(sum));
    if (h->some_added && h->added[site].sized)
        ds_html_printf(&h->f->svg, ", adds %.1e", ds_site_sum_relative(&h->added[site]));
    ds_buf_puts(&h->f->svg, "</title>");
    h->f->svg.failed |= place.failed;
    ds_buf_free(&place);
}

static void add_cell(struct heat *h, size_t site, int x)
{
    const char mark = mark_of(h, site);
    char sign[2] = {mark, '\0'};
    ds_buf_puts(&h->f->svg, "<g>");
    add_title(h, site, mark);
    ds_buf_printf(&h->f->svg, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"",
                  class_of(mark), x, h->y, CELL_W - 2, CELL_H - 2);
    if (mark != '.' && mark != '?' && mark != '!')
        ds_buf_printf(&h->f->svg, " fill-opacity=\"%.3g\"",
                      tint_of(h, ds_site_sum_relative(&h->sums[site])));
    ds_buf_puts(&h->f->svg, "/>");
    if (mark != '.')
        ds_svg_text(h->f, x + CELL_W / 2 - 1, h->y + 13, "middle", mark == '!' ? "m badt" : "m",
                    sign);
    ds_buf_puts(&h->f->svg, "</g>\n");
    add_data(h, site);
}

static int same_stage(const struct ds_site *a, const struct ds_site *b)
{
    return strcmp(a->stage, b->stage) == 0 && strcmp(a->part, b->part) == 0;
}

static void add_layer(struct heat *h, size_t at)
{
    const struct ds_header *header = h->w->s->header;
    char name[16];
    snprintf(name, sizeof name, "L%02d", header->sites[at].layer);
    ds_svg_text(h->f, LEFT - 8, h->y + 13, "end", "m dim", name);
    for (size_t s = at; s < header->n_sites && header->sites[s].layer == header->sites[at].layer;
         s++)
        for (size_t c = 0; c < h->n_columns; c++)
            if (same_stage(&header->sites[s], &header->sites[h->columns[c]]))
                add_cell(h, s, LEFT + (int)c * CELL_W);
    h->y += CELL_H;
}

/* Sites before the layers, or behind them: a row each, with its name. */
static void add_outside(struct heat *h, int after)
{
    const struct ds_header *header = h->w->s->header;
    for (size_t s = 0; s < header->n_sites; s++) {
        const struct ds_site *site = &header->sites[s];
        struct ds_buf name = {0};
        if (after ? site->layer < header->n_layers : site->layer >= 0)
            continue;
        ds_report_name(&name, site->stage);
        if (site->part[0]) {
            ds_buf_puts(&name, "/");
            ds_report_name(&name, site->part);
        }
        add_cell(h, s, LEFT);
        ds_svg_text(h->f, LEFT + CELL_W + 4, h->y + 13, "start", "dim", name.data ? name.data : "");
        h->f->svg.failed |= name.failed;
        ds_buf_free(&name);
        h->y += CELL_H;
    }
}

static void add_headings(struct heat *h)
{
    for (size_t c = 0; c < h->n_columns; c++) {
        struct ds_buf name = {0};
        ds_report_name(&name, ds_report_stage_short(&h->w->s->header->sites[h->columns[c]]));
        ds_svg_text(h->f, LEFT + (double)c * CELL_W + CELL_W / 2 - 1, h->y + 12, "middle", "dim",
                    name.data ? name.data : "");
        ds_buf_free(&name);
    }
    h->y += CELL_H;
}

static void add_legend(struct heat *h)
{
    static const struct {
        char mark;
        const char *says;
    } all[] = {{'.', "same (no sign)"},
               {'#', "origin: equal inputs, other bits"},
               {'o', "adds its own, shown by healing"},
               {'-', "inherited"},
               {'~', "unstable"},
               {'!', "not finite"},
               {'x', "drift, inputs not known"},
               {'?', "not compared"}};
    int x = LEFT;
    h->y += 10;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char sign[2] = {all[i].mark == '.' ? '\0' : all[i].mark, '\0'};
        const int width = 26 + 7 * (int)strlen(all[i].says) + 10;
        if (x > LEFT && x + width > LEFT + 17 * CELL_W) {
            x = LEFT;
            h->y += CELL_H + 3;
        }
        ds_buf_printf(&h->f->svg,
                      "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"18\" height=\"17\"/>\n",
                      class_of(all[i].mark), x, h->y);
        ds_svg_text(h->f, x + 9, h->y + 13, "middle", all[i].mark == '!' ? "m badt" : "m", sign);
        ds_svg_text(h->f, x + 24, h->y + 13, "start", "dim", all[i].says);
        x += width;
    }
    h->y += CELL_H + 6;
    if (h->most > 0) {
        char text[96];
        snprintf(text, sizeof text,
                 "the fuller the tint, the larger the relative rms: five steps from %.1e to %.1e",
                 h->least, h->most);
        ds_svg_text(h->f, LEFT, h->y + 10, "start", "dim", text);
    }
    h->y += CELL_H;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int mark_nonfinite(struct heat *h, struct ds_error *err)
{
    const struct ds_source *s = h->w->s;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *info = s->info(s->ctx, i);
        if (info->arm != h->w->arm || info->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *t = s->get(s->ctx, i, err);
        if (!t)
            return -1;
        for (size_t k = 0; k < t->n_nonfinites; k++)
            h->bad[t->nonfinites[k].site] = 1;
    }
    return 0;
}

static int make(struct heat *h, struct ds_error *err)
{
    const struct ds_report_view *w = h->w;
    const size_t n = w->s->header->n_sites;
    h->sums = ds_calloc(n, sizeof *h->sums, "sites", err);
    h->added = h->sums ? ds_calloc(n, sizeof *h->added, "sites", err) : NULL;
    h->bad = h->added ? ds_calloc(n, 1, "sites", err) : NULL;
    h->columns = h->bad ? ds_calloc(n + 1, sizeof *h->columns, "stages", err) : NULL;
    if (!h->columns || ds_analysis_labels(w->a, w->arm, w->ref, &h->labels, err) != 0 ||
        ds_analysis_healed(w->a, w->arm, w->ref, &h->healed, err) < 0 ||
        ds_site_sums(w->a, w->s, w->arm, w->ref, h->labels, h->sums, err) != 0 ||
        mark_nonfinite(h, err) != 0)
        return -1;
    h->some_added = ds_site_sums_healed(w->a, w->s, w->arm, w->ref, h->healed, h->added, err);
    return h->some_added < 0 ? -1 : 0;
}

static void describe(struct heat *h)
{
    struct ds_buf pair = {0};
    ds_report_pair_words(h->w, &pair);
    ds_buf_puts(&h->f->title, "Where the bits differ, by layer and stage");
    ds_buf_add(&h->f->about, pair.data ? pair.data : "", pair.len ? pair.len - 1 : 0);
    ds_buf_puts(
        &h->f->about,
        ". A cell is a site; layers go down, stages in the order of the pass to the right.");
    h->f->about.failed |= pair.failed;
    ds_buf_free(&pair);
    ds_buf_puts(&h->f->data,
                "layer\tstage\tpart\tsign\tlabel\thealed\trows\telements\tmax_ulp\tmax_abs\t"
                "relative_rms\tadded_relative_rms\n");
}

static size_t count_outside(const struct ds_header *header)
{
    size_t n = 0;
    for (size_t s = 0; s < header->n_sites; s++)
        n += header->sites[s].layer < 0 || header->sites[s].layer >= header->n_layers;
    return n;
}

static size_t count_layers(const struct ds_header *header)
{
    size_t n = 0;
    for (size_t s = 0; s < header->n_sites; s++)
        n += header->sites[s].layer >= 0 && header->sites[s].layer < header->n_layers &&
             (s == 0 || header->sites[s].layer != header->sites[s - 1].layer);
    return n;
}

int ds_figure_heat(const struct ds_report_view *w, struct ds_figure *f, struct ds_error *err)
{
    struct heat h = {.w = w, .f = f, .y = 4};
    const struct ds_header *header = w->s->header;
    f->name = "heat";
    int rc = make(&h, err);
    if (rc == 0) {
        h.n_columns = ds_report_stages(header, h.columns);
        find_range(&h);
        describe(&h);
        const size_t wide = h.n_columns > 17 ? h.n_columns : 17;
        ds_svg_begin(f, LEFT + (int)wide * CELL_W + 4,
                     (int)(count_layers(header) + count_outside(header)) * CELL_H + 118);
        add_outside(&h, 0);
        add_headings(&h);
        for (size_t s = 0; s < header->n_sites; s++)
            if (header->sites[s].layer >= 0 && header->sites[s].layer < header->n_layers &&
                (s == 0 || header->sites[s].layer != header->sites[s - 1].layer))
                add_layer(&h, s);
        add_outside(&h, 1);
        add_legend(&h);
        ds_svg_end(f);
    }
    free(h.labels);
    free(h.healed);
    free(h.bad);
    free(h.sums);
    free(h.added);
    free(h.columns);
    return rc;
}
