/* figure_time.c: answers over time: a row for each prompt at one setting and concurrency, a column for each record in the order of their
 * times. A letter stands for the tokens, a number for the bits of the logits: where either changes in a row and nothing
 * was meant to, what answered is another thing. Rows that differ in the concurrency alone are a family, share letters
 * and numbers, and stand below each other: there it may be the load. See figure.h. */
#include "report/figure.h"

#include "base/mem.h"
#include "report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LEFT = 350,
    TOP = 128,
    CELL_W = 40,
    CELL_H = 22,
    MOST_RECORDS = 40,
    MOST_SERIES = 40,
    MOST_NAMED = 48
};

struct time {
    const struct ds_time *t;
    struct ds_figure *f;
    const struct ds_time_point **at; /* [n_series][n_records]; NULL: the record has none */
    size_t *tokens,
        *logits; /* [n_series][n_records] numbers among the different ones of the family so far */
    size_t *drawn, n_drawn; /* series of families that more than one record has */
    int left;               /* where the cells begin: as wide as the names need */
};

static const struct ds_time_point *point(const struct time *x, size_t series, size_t record)
{
    return x->at[series * x->t->n_records + record];
}

/* What the record before had; NULL: none did. */
static const struct ds_time_point *before(const struct time *x, size_t series, size_t record)
{
    while (record-- > 0)
        if (point(x, series, record))
            return point(x, series, record);
    return NULL;
}

/* What a record before had at another concurrency; NULL: none did, or this one is known before. */
static const struct ds_time_point *across(const struct time *x, size_t series, size_t record)
{
    if (before(x, series, record))
        return NULL;
    for (size_t r = record; r-- > 0;)
        for (size_t s = x->t->n_series; s-- > x->t->family[series];)
            if (x->t->family[s] == x->t->family[series] && point(x, s, r))
                return point(x, s, r);
    return NULL;
}

/* The number of x among the first *n of the list, which it joins where it is new; from 1. */
static size_t number_among(uint64_t *list, size_t *n, uint64_t x)
{
    size_t i = 0;
    while (i < *n && list[i] != x)
        i++;
    if (i == *n)
        list[(*n)++] = x;
    return i + 1;
}

/* Numbers every point of a family, record by record. */
static void number_family(struct time *x, size_t family, uint64_t *tokens, uint64_t *logits)
{
    size_t n_tokens = 0, n_logits = 0;
    for (size_t r = 0; r < x->t->n_records; r++)
        for (size_t s = family; s < x->t->n_series; s++) {
            const struct ds_time_point *p = x->t->family[s] == family ? point(x, s, r) : NULL;
            if (!p)
                continue;
            const size_t at = s * x->t->n_records + r;
            x->tokens[at] = number_among(tokens, &n_tokens, p->completion);
            x->logits[at] = number_among(logits, &n_logits, p->logits);
        }
}

static int number_all(struct time *x, struct ds_error *err)
{
    const size_t n = x->t->n_series * x->t->n_records;
    x->tokens = ds_calloc(n, sizeof *x->tokens, "points", err);
    x->logits = x->tokens ? ds_calloc(n, sizeof *x->logits, "points", err) : NULL;
    uint64_t *tokens = x->logits ? ds_calloc(x->t->n_points, sizeof *tokens, "points", err) : NULL,
             *logits = tokens ? ds_calloc(x->t->n_points, sizeof *logits, "points", err) : NULL;
    for (size_t s = 0; logits && s < x->t->n_series; s++)
        if (x->t->family[s] == s)
            number_family(x, s, tokens, logits);
    const int rc = logits ? 0 : -1;
    free(tokens);
    free(logits);
    return rc;
}

static void sign_of(const struct time *x, size_t series, size_t record, char *out, size_t size)
{
    const size_t tokens = x->tokens[series * x->t->n_records + record],
                 logits = x->logits[series * x->t->n_records + record];
    if (tokens <= 26)
        snprintf(out, size, "%c%zu", (char)('a' + (int)(tokens ? tokens - 1 : 0)), logits);
    else
        snprintf(out, size, "z+%zu", logits);
}

static void add_cell(const struct time *x, size_t series, size_t record, double at_x, double at_y)
{
    const struct ds_time_point *p = point(x, series, record), *last = before(x, series, record),
                               *other = p ? across(x, series, record) : NULL;
    struct ds_buf *out = &x->f->svg;
    char sign[32];
    if (!p) {
        ds_buf_printf(out,
                      "<rect class=\"none\" x=\"%.5g\" y=\"%.5g\" width=\"%d\" height=\"%d\"/>\n",
                      at_x, at_y, CELL_W - 3, CELL_H - 3);
        return;
    }
    const int tokens = last && last->completion != p->completion,
              logits = last && last->logits != p->logits,
              load = other && other->completion != p->completion;
    sign_of(x, series, record, sign, sizeof sign);
    ds_buf_puts(out, "<g><title>");
    ds_html_escaped(out, x->t->records[record].start, (size_t)-1);
    ds_buf_puts(out, tokens   ? ": other tokens than before"
                     : logits ? ": the same tokens from other logits"
                     : last   ? ": as before"
                     : load   ? ": other tokens than before at another concurrency"
                     : other  ? ": tokens as before at another concurrency"
                              : ": the first");
    if (p->divergence >= 0)
        ds_html_printf(out, ", probabilities off by %.2e", p->divergence);
    ds_buf_printf(out,
                  "</title><rect class=\"%s\" x=\"%.5g\" y=\"%.5g\" width=\"%d\" height=\"%d\"/>",
                  tokens           ? "origin"
                  : logits || load ? "in"
                                   : "same",
                  at_x, at_y, CELL_W - 3, CELL_H - 3);
    ds_svg_text(x->f, at_x + CELL_W / 2.0 - 1.5, at_y + 14, "middle", tokens ? "m b" : "m", sign);
    ds_buf_puts(out, "</g>\n");
}

/* The beginning of a name that is too long for its place. */
static void add_name(const struct time *x, size_t series, double y)
{
    const char *name = x->t->names[series];
    struct ds_buf text = {0};
    size_t n = 0, shown = 0;
    for (int step; name[n] && shown < MOST_NAMED; n += (size_t)step, shown++)
        if ((step = ds_utf8_len(name + n, strlen(name + n))) <= 0)
            break;
    ds_buf_add(&text, name, n);
    ds_buf_puts(&text, name[n] ? "..." : "");
    ds_svg_text(x->f, x->left - 8, y + 14, "end", "", text.data ? text.data : "");
    x->f->svg.failed |= text.failed;
    ds_buf_free(&text);
}

/* Characters of a time that tell the records that are drawn apart: to the minute, or to the second. */
static int length_of_times(const struct time *x, size_t first)
{
    for (size_t r = first + 1; r < x->t->n_records; r++)
        if (strncmp(x->t->records[r].start, x->t->records[r - 1].start, 16) == 0)
            return 19;
    return 16;
}

/* When the records were made, and a line where what made them is another thing. */
static void add_records(const struct time *x, size_t first, double bottom)
{
    const int length = length_of_times(x, first);
    for (size_t r = first; r < x->t->n_records; r++) {
        const struct ds_time_record *now = &x->t->records[r];
        const double at_x = x->left + (double)(r - first) * CELL_W;
        char day[20];
        snprintf(day, sizeof day, "%.*s", length, now->start);
        if (strlen(day) > 10 && day[10] == 'T')
            day[10] = ' ';
        ds_buf_printf(&x->f->svg, "<g transform=\"translate(%.5g %d) rotate(-55)\">",
                      at_x + CELL_W / 2.0 - 2, TOP - 6);
        ds_svg_text(x->f, 0, 0, "start", "dim", day);
        ds_buf_puts(&x->f->svg, "</g>\n");
        if (r == first || !now->changed || !now->changed[0])
            continue;
        ds_buf_printf(&x->f->svg, "<path class=\"l d\" d=\"M%.5g %dV%.5g\"><title>", at_x - 1.5,
                      TOP - 4, bottom);
        ds_html_escaped(&x->f->svg, now->changed, (size_t)-1);
        ds_buf_puts(&x->f->svg, "</title></path>\n");
    }
}

static void add_data(const struct time *x)
{
    struct ds_buf *out = &x->f->data;
    ds_buf_puts(out, "start\tversion\trecord\tseries\tsign\ttokens\tlogits\tmax_prob_divergence\t"
                     "concurrency\n");
    for (size_t s = 0; s < x->t->n_series; s++)
        for (size_t r = 0; r < x->t->n_records; r++) {
            const struct ds_time_point *p = point(x, s, r);
            const struct ds_time_record *now = &x->t->records[r];
            char sign[32];
            if (!p)
                continue;
            sign_of(x, s, r, sign, sizeof sign);
            ds_buf_puts(out, now->start);
            ds_buf_puts(out, "\t");
            ds_buf_puts(out, now->version);
            ds_buf_puts(out, "\t");
            ds_buf_puts(out, now->path);
            ds_buf_puts(out, "\t");
            ds_buf_puts(out, x->t->series[s]);
            ds_buf_printf(out, "\t%s\t%016" PRIx64 "\t%016" PRIx64 "\t", sign, p->completion,
                          p->logits);
            if (p->divergence >= 0)
                ds_buf_printf(out, "%.9g", p->divergence);
            ds_buf_printf(out, "\t%s\n", x->t->concurrency[s]);
        }
}

/* Whether any family has rows at several concurrencies. */
static int has_families(const struct time *x)
{
    for (size_t s = 0; s < x->t->n_series; s++)
        if (x->t->family[s] != s)
            return 1;
    return 0;
}

static void describe(const struct time *x, const size_t changed[3])
{
    ds_buf_puts(&x->f->title, "Answers over time");
    if (!x->n_drawn) {
        ds_buf_puts(&x->f->about,
                    "No prompt was run at the same setting, whatever the concurrency, in two of "
                    "these records.");
        return;
    }
    ds_buf_printf(
        &x->f->about,
        "%zu records in the order of their times, %zu prompts at settings that more than "
        "one of them has. Equal "
        "letters are equal tokens, equal numbers equal bits of the logits; a dashed line "
        "stands where the version, the model, the machine or an option changed; the last row "
        "is how far probabilities of the best tokens lie from the first answers, at most. Tokens "
        "changed %zu time%s, logits alone %zu time%s.",
        x->t->n_records, x->n_drawn, changed[0], changed[0] == 1 ? "" : "s", changed[1],
        changed[1] == 1 ? "" : "s");
    if (has_families(x))
        ds_buf_printf(&x->f->about,
                      " Rows of one prompt at several concurrencies share letters and numbers. "
                      "Where a concurrency was new, tokens were others than before at another one "
                      "%zu time%s.",
                      changed[2], changed[2] == 1 ? "" : "s");
}

/* Tokens, logits alone, tokens at a concurrency that is new. */
static void count_changes(const struct time *x, size_t changed[3])
{
    for (size_t s = 0; s < x->t->n_series; s++)
        for (size_t r = 1; r < x->t->n_records; r++) {
            const struct ds_time_point *p = point(x, s, r), *last = before(x, s, r),
                                       *other = p ? across(x, s, r) : NULL;
            changed[2] += other && p->completion != other->completion;
            if (!p || !last)
                continue;
            changed[0] += p->completion != last->completion;
            changed[1] += p->completion == last->completion && p->logits != last->logits;
        }
}

/* How far off the probabilities of each record are, of the series that are drawn: a change that is one of size and not of bits alone
 * stands out among the rounding of every day. */
static void add_sizes(const struct time *x, size_t first, size_t series, double y)
{
    ds_svg_text(x->f, x->left - 8, y + 14, "end", "dim", "off by, at most");
    for (size_t r = first; r < x->t->n_records; r++) {
        double most = (double)NAN;
        char text[16];
        for (size_t s = 0; s < series; s++) {
            const struct ds_time_point *p = point(x, x->drawn[s], r);
            if (p && p->divergence >= 0 && !(most >= p->divergence))
                most = p->divergence;
        }
        if (!(most >= 0))
            continue;
        snprintf(text, sizeof text, most > 0 ? "%.0e" : "0", most);
        ds_svg_text(x->f, x->left + (double)(r - first) * CELL_W + CELL_W / 2.0 - 1.5, y + 14,
                    "middle", "m dim", text);
    }
}

static void draw(const struct time *x)
{
    const size_t n = x->t->n_records, first = n > MOST_RECORDS ? n - MOST_RECORDS : 0,
                 series = x->n_drawn < MOST_SERIES ? x->n_drawn : MOST_SERIES;
    const double cells = TOP + (double)series * CELL_H, bottom = cells + CELL_H;
    char more[96];
    ds_svg_begin(x->f, x->left + (int)(n - first) * CELL_W + 84, (int)bottom + 26);
    add_records(x, first, cells);
    add_sizes(x, first, series, cells);
    for (size_t s = 0; s < series; s++) {
        const double y = TOP + (double)s * CELL_H;
        add_name(x, x->drawn[s], y);
        for (size_t r = first; r < n; r++)
            add_cell(x, x->drawn[s], r, x->left + (double)(r - first) * CELL_W, y);
    }
    if (first || series < x->n_drawn) {
        snprintf(more, sizeof more,
                 "%zu earlier records and %zu more settings are among the numbers", first,
                 x->n_drawn - series);
        ds_svg_text(x->f, x->left, bottom + 16, "start", "dim", more);
    }
    ds_svg_end(x->f);
}

/* About as wide as the longest of the names that are drawn. */
static void make_room(struct time *x)
{
    enum { CHARACTER = 7, AROUND = 20, MOST_SHOWN = MOST_NAMED + 3 };
    x->left = AROUND + CHARACTER * 15; /* "off by, at most" */
    for (size_t s = 0; s < x->n_drawn && s < MOST_SERIES; s++) {
        size_t n = 0;
        for (const char *c = x->t->names[x->drawn[s]]; *c; c++)
            n += ((unsigned char)*c & 0xc0) != 0x80;
        const int wide = AROUND + CHARACTER * (int)(n < MOST_SHOWN ? n : MOST_SHOWN);
        x->left = wide > x->left ? wide : x->left;
    }
    x->left = x->left < MOST_LEFT ? x->left : MOST_LEFT;
}

/* Whether more than one record has an answer of the family. */
static int is_charted(const struct time *x, size_t family)
{
    size_t has = 0;
    for (size_t r = 0; r < x->t->n_records && has < 2; r++)
        for (size_t s = family; s < x->t->n_series; s++)
            if (x->t->family[s] == family && point(x, s, r)) {
                has++;
                break;
            }
    return has > 1;
}

static void choose_series(struct time *x)
{
    for (size_t f = 0; f < x->t->n_series; f++) {
        if (x->t->family[f] != f || !is_charted(x, f))
            continue;
        for (size_t s = f; s < x->t->n_series; s++)
            if (x->t->family[s] == f)
                x->drawn[x->n_drawn++] = s;
    }
}

int ds_figure_time(const struct ds_time *t, struct ds_figure *f, struct ds_error *err)
{
    struct time x = {.t = t, .f = f};
    size_t changed[3] = {0};
    f->name = "time";
    x.at = ds_calloc(t->n_series * t->n_records, sizeof *x.at, "points", err);
    x.drawn = x.at ? ds_calloc(t->n_series, sizeof *x.drawn, "series", err) : NULL;
    for (size_t i = 0; x.drawn && i < t->n_points; i++)
        x.at[t->points[i].series * t->n_records + t->points[i].record] = &t->points[i];
    const int rc = x.drawn ? number_all(&x, err) : -1;
    if (rc == 0) {
        choose_series(&x);
        count_changes(&x, changed);
        describe(&x, changed);
        add_data(&x);
        make_room(&x);
        if (x.n_drawn)
            draw(&x);
    }
    free((void *)x.at);
    free(x.drawn);
    free(x.tokens);
    free(x.logits);
    return rc;
}
