/* check_attention.h: private to the attention part of check: what its properties share. A row is
 * known by (sequence, slot); its base result is that of the row alone in its call, as decode
 * computes it. */
#ifndef DS_LAB_CHECK_ATTENTION_H
#define DS_LAB_CHECK_ATTENTION_H

#include "kernels/lab/attention_grid.h"
#include "kernels/lab/check_plan.h"
#include "kernels/lab/subject_attention.h"

enum { DS_MOST_SEGMENTS = 72, DS_BASE_PAGE = 16, DS_MOST_EDGES = 52 };

/* KV lengths to try for a row on so many threads: the grid, and those at which the launch choice for
 * a row alone changes, each with the length before it; `edge`: these alone, but for the longest. */
struct ds_kv_list {
    int threads, n, n_edges; /* threads 0: not made yet */
    int32_t kv[DS_GRID_MOST], edge[2 * DS_MOST_EDGES];
};

/* What lives from one property to the next. */
struct ds_attention_own {
    struct ds_kv_list list[2];
    struct ds_output out, base, one;
    struct ds_alone *alone; /* base results kept, by key */
    size_t n_alone, alone_cap;
    int differs; /* rows that the last hold found different */
    /* The variant's own error where sums are short: of a head's size, and in bounds (attention_exact.h). */
    double observed, observed_units;
    int has_observed;
    struct ds_purse purse;
    int ref_threads; /* threads of the base result; 0 = those of the call */
};

/* A call in the making: decode rows and chunks side by side. */
struct ds_scene {
    struct ds_segment segment[DS_MOST_SEGMENTS];
    struct ds_call call;
    char text[96]; /* what is unlike the base: "in a chunk of 3 rows" */
};

/* What is asked of the kernel beyond its plain form. */
struct ds_form {
    uint32_t features;
    int32_t window;
    float soft_cap;
};

/* The plain form and, for a kernel with features, one form with all of them. Returns how many. */
int ds_attention_forms(const struct ds_check *c, struct ds_form form[2]);
/* The first and the last thread count; returns how many (1 or 2). */
int ds_attention_threads(const struct ds_check *c, int threads[2]);

/* An empty scene on so many threads. */
void ds_scene_begin(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                    int threads);
/* Adds rows first..first+length-1 of a sequence. */
struct ds_segment *ds_scene_add(struct ds_scene *s, int32_t sequence, int32_t first,
                                int32_t length);
void ds_scene_text(struct ds_scene *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Runs the scene and holds its rows (of one sequence, or of all with -1) against the same rows
 * alone. Long chunks: first, last and some rows between. 1 = done, own->differs says how many
 * differ; 0 = no result; -1. */
int ds_scene_hold_alone(struct ds_check *c, const struct ds_scene *s, int32_t sequence);
/* The same against the rows that the scene `base` gave, which ds_scene_base() ran. */
int ds_scene_base(struct ds_check *c, const struct ds_scene *base);
int ds_scene_hold(struct ds_check *c, const struct ds_scene *base, const struct ds_scene *s,
                  int32_t sequence);
/* The row at `slot` of a segment has other bits in two calls: `got`, in the one that `where` tells, and
 * `ref`. Is either wrong, and not only different? Told of sizes, whatever is measured now. */
int ds_attention_is_right(struct ds_check *c, const struct ds_scene *s,
                          const struct ds_segment *seg, int32_t slot, const uint32_t *got,
                          const uint32_t *ref, const char *other);
/* The bits of a row of the scene run last; NULL if it has none. */
const uint32_t *ds_scene_row(const struct ds_check *c, const struct ds_scene *s, int32_t sequence,
                             int32_t slot);

/* Whether rows differed along an ascending list of lengths, in runs of equal answers. */
struct ds_spans {
    const char *of; /* "kv_len" */
    int32_t from[8], to[8];
    int differs[8], n, cut;
};
void ds_spans_add(struct ds_spans *s, int32_t value, int differs);
int ds_spans_any(const struct ds_spans *s); /* whether one differs */
/* Appends "kv_len 1-511 same | 512-32768 differ" to the property's classes, if any span differs. */
void ds_spans_print(struct ds_check *c, const struct ds_spans *s);

/* Lists of classes in the making: the one during which the smallest pair was found, else the one that tells
 * most apart. */
struct ds_best_classes {
    struct ds_classes k;
    double cost; /* of the pair */
};
/* Before a list is begun: what the smallest pair costs now. */
static inline double ds_classes_begin(const struct ds_check *c)
{
    return c->property->smallest_cost;
}
/* `before`: what ds_classes_begin said; the rest says whose bits they are. */
void ds_classes_best(const struct ds_check *c, struct ds_best_classes *best, struct ds_classes *k,
                     double before, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void ds_classes_done(struct ds_check *c, const struct ds_best_classes *best, const char *of);

/* Where the launch choice changes along a number 1..to, which `ask` makes a call of: at most `most` borders,
 * both sides of each (the last of the old choice and the first of the new one) in edge; what is left out
 * is counted. describe is asked, nothing is launched. Returns how many, or -1. */
int ds_attention_edges(struct ds_check *c, const struct ds_choice_of *of, ds_choice_fn ask,
                       int32_t to, int32_t *edge, int most);
/* NULL: the lab failed. */
const struct ds_kv_list *ds_attention_kv(struct ds_check *c, int threads);

/* Attention's grid is larger than that of other ops: so is what a property may cost, where the user
 * did not say. To be called first. */
void ds_attention_budget(struct ds_check *c);

/* ---- the properties ---------------------------------------------------------------------------- */

int ds_attention_repeat(struct ds_check *c);
int ds_attention_batch(struct ds_check *c);
int ds_attention_slot(struct ds_check *c);
int ds_attention_neighbours(struct ds_check *c);
int ds_attention_thread_counts(struct ds_check *c);
int ds_attention_chunk(struct ds_check *c);
int ds_attention_alignment(struct ds_check *c);
int ds_attention_sizes(struct ds_check *c);
int ds_attention_memory(struct ds_check *c);
int ds_attention_special(struct ds_check *c);
int ds_attention_accuracy(struct ds_check *c);
int ds_attention_speed(struct ds_check *c);

#endif
