/* view_runs.h: what the files of the view Runs share: which rows it has. */
#ifndef DS_TUI_VIEW_RUNS_H
#define DS_TUI_VIEW_RUNS_H

#include "tui/view.h"

enum runs_section {
    RUNS_TRIALS = 0,
    RUNS_REPEATS, /* arms with two trials or more */
    RUNS_PAIRS,   /* different runs of an arm */
    RUNS_SIZES,   /* sizes from which on repeats disagree */
    RUNS_LOST,    /* arms without a complete trial */
    RUNS_WHY,     /* there is no verdict (yet) */
    RUNS_SECTIONS
};
enum { RUNS_ALL_PAIRS = UINT32_MAX }; /* as `part`: the pairs that are not told one by one */

struct runs_row {          /* without padding: rows are compared as bytes */
    uint32_t at;           /* number in the section's list: a trial, an arm of the census, ... */
    uint32_t part;         /* RUNS_PAIRS: of its pairs */
    uint8_t section, kind; /* enum tui_row_kind */
    uint16_t unused;
};

/* Trials of one arm and pass, in the order of their repeats. */
struct runs_group {
    uint32_t first, n; /* in `order` */
    uint32_t classes;  /* how many different runs */
    uint32_t modal;    /* the most frequent one; of equals the first */
};

struct runs_own {
    struct tui_data *data;
    uint64_t generation;
    struct runs_row *rows;
    size_t n, cap;
    size_t n_trials;
    uint32_t *order; /* [n_trials] by arm, pass, what it was healed to, repeat */
    uint32_t *
        class_of; /* [n_trials] among the runs of its group, 0 the first one's; UINT32_MAX: it has none */
    uint32_t *group_of; /* [n_trials] */
    struct runs_group *groups;
    size_t n_groups;
};

/* What the view was made from; NULL: something else is there now, and the next load will see it. */
const struct tui_whole *runs_whole(const struct runs_own *o);
/* The natural trials of an arm; NULL: none. */
const struct runs_group *runs_of_arm(const struct runs_own *o, const struct tui_whole *w,
                                     uint32_t arm);
/* The class of a repeat of an arm; UINT32_MAX: there is no such trial. */
uint32_t runs_class(const struct runs_own *o, const struct tui_whole *w, uint32_t arm,
                    uint32_t repeat);
/* The arm's failure that a trial is; NULL: it is none, or nothing is known of it. */
const struct ds_failed_arm *runs_failure(const struct tui_whole *w, const struct ds_trial *t);

/* As tui_view_ops.request. */
int runs_enter(const struct tui_view *v, const struct tui_context *c, int *next,
               struct ds_error *err);
void runs_source(struct runs_own *o, struct tui_source *out);

#endif
