/* figure.h: figures of a record as SVG, each with its numbers beside it. Lays out what dumps/ found; judges nothing. A figure
 * is complete without colour (signs, dashes, labels) and without sight (title, description, data). */
#ifndef DS_FIGURE_H
#define DS_FIGURE_H

#include "dumps/storm.h"
#include "report/report.h"

struct ds_figure {
    const char *name;           /* "heat", "growth", "tree", "time": of its files */
    char id[24];                /* unique in its page; "" alone */
    struct ds_buf title, about; /* plain text, escaped for a terminal */
    struct ds_buf svg;          /* one <svg> element; nothing: `about` says why */
    struct ds_buf data;         /* tab-separated, with headings */
    /* Of a drawing that is longer than a sheet of paper: where it may be cut (ds_svg_cut). */
    struct ds_figure_cut {
        size_t at; /* in svg */
        int y;
    } * cuts;
    size_t n_cuts, cap_cuts, body; /* body: where in svg the drawing begins */
    int width, height;
};
void ds_figure_free(struct ds_figure *f);
/* Of drawings inside a page, and alone. */
const char *ds_figure_style(void);
/* The element as a file of its own. */
void ds_figure_file(const struct ds_figure *f, struct ds_buf *out);

/* Layer x stage of one arm against another: what each site is, and how far off. */
int ds_figure_heat(const struct ds_report_view *w, struct ds_figure *f, struct ds_error *err);
/* The error at each layer, and what the layer's worst site adds. */
void ds_figure_growth(const struct ds_report *r, struct ds_figure *f);

/* The completions of every prompt of one trial of a serving run, as they part. */
struct ds_figure_storm {
    const struct ds_header *header;
    const struct ds_trial_data *trial;
    const struct ds_storm *storm;
    const char *kernels;
    void (*token)(
        void *ctx, int32_t id,
        struct ds_buf *out); /* escaped text of a token, told beside its id; NULL: ids alone */
    void *ctx;
};
int ds_figure_tree(const struct ds_figure_storm *s, struct ds_figure *f, struct ds_error *err);

/* ---- answers over time ----------------------------------------------------------------------- */

/* What one record has of one series: a prompt at one setting. */
struct ds_time_point {
    size_t record, series;
    uint64_t completion, logits; /* of its tokens; of its logits rows */
    /* Of probabilities, from the series' first record, where it has none from the family's; NaN: not known. */
    double divergence;
};
struct ds_time_record {
    const char *start, *version, *path; /* escaped; version: with the build */
    const char *changed; /* what else is unlike in it and the one before, escaped; NULL: nothing */
};
struct ds_time {
    const struct ds_time_record *records; /* in the order of their times */
    size_t n_records;
    const char *const *series; /* escaped names: the prompt and all that is set */
    const char *const *names;  /* the same without what all have in common */
    /* [n_series] the first series that is the same but for the concurrency; what that is, escaped, "": not known. */
    const size_t *family;
    const char *const *concurrency;
    size_t n_series;
    const struct ds_time_point *points;
    size_t n_points;
};
int ds_figure_time(const struct ds_time *t, struct ds_figure *f, struct ds_error *err);

/* ---- inside report/ -------------------------------------------------------------------------- */

/* Opens the element with title and description; svg coordinates are pixels. */
void ds_svg_begin(struct ds_figure *f, int width, int height);
void ds_svg_end(struct ds_figure *f);
/* What is drawn from here on lies below y, what was drawn above it. */
int ds_svg_cut(struct ds_figure *f, int y, struct ds_error *err);
/* The drawing in a page: as one element, or as several that each fit on a sheet. */
void ds_svg_sheets(const struct ds_figure *f, struct ds_buf *out);
/* A text at (x, y), its baseline; anchor: "start", "middle", "end"; cls: of the style. Escaped for a terminal. */
void ds_svg_text(struct ds_figure *f, double x, double y, const char *anchor, const char *cls,
                 const char *text);

#endif
