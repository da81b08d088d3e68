/* data_internal.h: what the files data*.c share. Not for others: use data.h.
 *
 * Two threads. The worker (data_worker.c) owns books and judgements: every call into dumps/ is its own, but
 * for the opening of the records before it is started. The screen's thread asks (data.c) and takes over
 * what came between two drawings. What one hands to the other is finished and never written again; where it
 * is kept, and what is wanted, stands under one lock. Everything is released by the worker, since it closes
 * files, or by tui_data_close after it has ended. */
#ifndef DS_TUI_DATA_INTERNAL_H
#define DS_TUI_DATA_INTERNAL_H

#include "tui/data.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ---- records: the worker's ------------------------------------------------------------------- */

struct book_side {
    struct tui_data *data;
    struct ds_record *record;
    size_t *use; /* [n_use] the record's trials that are sound so far */
    size_t n_use;
    /* Of every trial of the record: when it was used last (0: it is not in memory), and whether it must
     * stay. */
    uint64_t *used;
    uint16_t *pinned; /* by how many verdicts */
    size_t n_trials, cap_used, cap_pinned;
    uint64_t clock;
    /* Dumped rows are held against their digests, when nothing else is to be done: how far that has come, and what was
     * found when it had come to the end. */
    size_t next_row;
    int checked;
    struct ds_damage *damage;
    size_t n_damage;
};

/* The records behind one state of the screen, until another record lies at a path. */
struct book {
    int refs;
    int n_sides;
    struct book_side side[2];
};

/* Trials of a side, as a source for the verdict. */
struct trial_list {
    struct book_side *side;
    size_t *use, n;
    struct ds_trial *info; /* [n] copies: the record's own move when it grows */
    uint8_t *pin;          /* [n] what the verdict points into */
    int keep;              /* what was handed out must stay: two records borrow from each other */
};

/* A book's trials, compared: all of them, or those of two arms. */
struct judged {
    int refs;
    uint64_t number; /* grows: results say which one they are of */
    struct book *book;
    struct trial_list list[2];
    struct ds_source own_source[2],
        source;                   /* source: that of the analysis; of two records the joined one */
    struct ds_analysis *analysis; /* NULL: records that cannot be compared */
    int partial;                  /* of two arms: */
    uint32_t arm, ref;
    int has_verdict;
    struct ds_verdict own;
    int has_diff;
    struct ds_diff diff;
};

static inline const struct ds_verdict *judged_verdict(const struct judged *j)
{
    return j->has_diff ? &j->diff.verdict : j->has_verdict ? &j->own : NULL;
}

/* ---- what is asked and answered -------------------------------------------------------------- */

enum { WANT_PAIR = 0, WANT_SITE, WANT_VALUES, WANT_STEPS };

struct want {
    int what;
    uint32_t arm, ref, site;
    uint64_t digest, ref_digest;
};

struct result {
    struct book *book; /* whose texts it points to; NULL: none's */
    uint64_t number;   /* of the judgement it was made from */
    uint64_t bytes;
    int unfinished; /* what takes long is still to be read */
    char *error;    /* what cannot be had, and why */
    int what;
    union {
        struct tui_pair pair;
        struct tui_site site;
        struct tui_values values;
        struct tui_steps steps;
    } u;
    struct ds_site_profile profile;
    struct ds_launch launch[4]; /* of the site; of its profile's finding */
    char *texts;                /* of that finding */
    struct result *next;        /* in a list of those that go */
};

struct entry {
    struct want want;
    struct result *now, *fresh; /* shown; come since the last turn */
    uint64_t asked;             /* turn in which it was asked for last */
    uint64_t queued;            /* order of asking; 0: not in the queue */
    struct entry *next;
};

struct snapshot {
    struct tui_whole whole;
    struct book *book;
    struct judged *judged;
    const struct ds_trial **list;
    struct ds_trial *trials; /* copies */
    char error[1536], note[512];
    uint64_t since;            /* judgements before this one are about another record */
    struct ds_verdict verdict; /* the judgement's, but for what damage changes */
    struct ds_damage_side damage[2];
    uint64_t *damaged_rows;
    struct snapshot *next;
};

struct tui_data {
    char *path[2];
    char *moves_to,
        *left; /* where path[0] will be moved; from where it was: the screen may still look at it */
    int follow;
    int take_partial;  /* of two records: as ds_diff_options.partial */
    int across_models; /* likewise */
    const struct ds_report_caller *caller;
    uint64_t hold;
    int event[2]; /* pipe */
    pthread_t thread;
    int started;
    atomic_int stop; /* the work at hand is not wanted any more */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the worker has something to do */
    struct entry *entries;
    uint64_t turn, order, last_asked; /* last_asked: the turn in which the screen was drawn last */
    struct snapshot *fresh;           /* come since the last turn */
    struct snapshot *gone;            /* to be released */
    struct result *gone_results;
    int quit, cancelled, reload;
    int busy;      /* with one of these */
    int finishing; /* with sizes of a pair */
    int checking;  /* dumped rows are still to be held against their digests */
    int throttled; /* a verdict is to be made, but not yet */
    int wants_judged,
        wants_verdict; /* to be made; the verdict after what was asked for meanwhile */
    int owed;          /* a turn that tui_data_wait made is still to be drawn */
    uint64_t latest;   /* number of the newest judgement */

    struct snapshot *shown; /* the screen's thread only */
    uint64_t generation;

    /* The worker only. */
    struct book *book;
    struct judged *judged;  /* the newest, which answers */
    struct judged *partial; /* where the whole does not fit into memory: of two arms */
    struct judged *told;    /* whose verdict is shown */
    char error[1536], note[512];
    int live, ended;
    int unchecked;                         /* nobody wants to wait for that any more */
    int came;                              /* trials came while a verdict was made */
    double looked;                         /* at the files, last */
    int indexed;                           /* the table of dumped rows is in memory */
    uint64_t judged_number, judged_latest; /* of any; of the whole */
    struct stat seen[2];                   /* st_ino 0: there was no file */
    struct stat seen_there;                /* what lay at moves_to and was not the record */
    uint64_t since;                        /* see struct snapshot */
    double judged_at, judged_took;
};

/* data_worker.c */
void *data_worker(void *data);
/* Whether what is at work is not wanted any more; asked by all that takes long. Looks at the files meanwhile: what is
 * being judged is not touched by what comes. data: struct tui_data. */
int data_stopped(void *data);
void data_wake(struct tui_data *d); /* the screen: something came; with the lock held or not */
void result_free(struct result *r);
void snapshot_free(struct snapshot *s);

/* data_check.c */
/* Whether some dumped row has not been held against its digest yet, and is to be: of a record that is still written when
 * that has ended. */
int check_is_due(const struct tui_data *d);
/* Does a piece of it; 1: the screen has something to show. */
int check_piece(struct tui_data *d);
/* What the record holds now is another thing: all is to be looked at again. */
void check_again(struct book_side *s);
/* What was found, for the screen. */
int check_tell(struct snapshot *s, const struct book *b, struct ds_error *err);
void check_free(struct snapshot *s);

/* data_book.c */
struct book *book_open(struct tui_data *d, struct ds_error *err);
void book_release(struct book *b);
/* Leaves out the trials that turned out to be damaged, takes in those that came: 1 if the list changed, -1 no
 * memory. */
int book_sift(struct book *b, struct ds_error *err);
struct snapshot *snapshot_new(const struct tui_data *d, struct ds_error *err);

/* data_judge.c */
int judged_new(struct tui_data *d, struct book *b, struct judged **out, struct ds_error *err);
/* Of two arms alone; of two records, of each the arms of these numbers. */
int judged_pair(struct tui_data *d, struct book *b, uint32_t arm, uint32_t ref, struct judged **out,
                struct ds_error *err);
int judged_verdict_make(struct judged *j, struct ds_error *err);
void judged_release(struct judged *j);
/* Frees the tables behind a verdict that is only shown. */
void judged_settle(struct judged *j);
/* A trial of the side by its number in the record; NULL with err. keep: see struct trial_list. */
const struct ds_trial_data *side_load(struct book_side *s, size_t trial, int keep,
                                      struct ds_error *err);
/* Lets go of all trials that no verdict points into. */
void side_let_go(struct book_side *s);

/* data_follow.c */
enum { FOLLOW_NOTHING = 0, FOLLOW_NOTE = 1, FOLLOW_TRIALS = 2 };
enum { LOOK_ONLY_GROWN = 0, LOOK = 1, LOOK_NOW = 2 };
/* Looks whether the files have changed, and reads them again if they are followed, or with LOOK_NOW. ONLY_GROWN: leaves
 * alone what would put another record in the place of this one. NOTE: there is something to say; TRIALS:
 * something to judge. */
int data_follow(struct tui_data *d, int how);
/* What the files are like before they are opened. */
void data_remember(struct tui_data *d);

/* data_pair.c, data_site.c, data_steps.c: 0 or -1. */
/* finish: with what takes long: sizes from dumped rows, where no probe held the other side; classes of arms
 * that the analysis does not have. Without, out->unfinished says whether there is any. */
int make_pair(struct judged *j, const struct want *w, int finish, struct result *out,
              struct ds_error *err);
int make_site(struct judged *j, const struct want *w, int finish, struct result *out,
              struct ds_error *err);
int make_steps(struct judged *j, const struct want *w, struct result *out, struct ds_error *err);
/* finding: the texts that it points to become the result's own. */
int keep_finding(struct result *r, struct ds_finding *f, struct ds_error *err);
int make_values(const struct book *b, const struct want *w, struct result *out,
                struct ds_error *err);
/* Dumped bytes of an arm's row (or of the other side, where two records are compared). */
int blob_of(const struct book *b, uint32_t arm, uint64_t digest, struct ds_blob *out,
            struct ds_error *err);
/* Sizes of a row whose bytes are there on both sides: 1, or 0. */
int size_from_dumps(const struct book *b, const struct want *w, uint64_t mine, uint64_t ref,
                    struct ds_drift *out);
int is_dumped(const struct book *b, uint64_t digest);

#endif
