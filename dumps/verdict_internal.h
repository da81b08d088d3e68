/* verdict_internal.h: the tables that the files verdict*.c share. Not for others: use verdict.h.
 *
 * A cell is (site, row): index site * n_rows + row, where row numbers the distinct row keys of the
 * record in ascending order. Every arm that has a trial has one table over all cells. */
#ifndef DS_VERDICT_INTERNAL_H
#define DS_VERDICT_INTERNAL_H

#include "base/mem.h"
#include "dumps/verdict.h"

#define NONE UINT32_MAX

enum cell_state { CELL_ABSENT = 0, CELL_STABLE, CELL_UNSTABLE };

/* Set beside a label. JUDGED: every input was recorded, agreed in the repeats, and is equal on both
 * sides. BRIDGED: an input of the kernel was not recorded on both sides, and what is known of it
 * comes from the sites before that one: the difference may have begun in between. NEAR: of an inherited
 * difference, no input that is known differs by more than the tolerance. */
enum { LABEL_JUDGED = 0x80, LABEL_BRIDGED = 0x40, LABEL_NEAR = 0x20, LABEL_MASK = 0x1f };

/* What a site is to a pair of arms. GAP: one of them never captured it (a fused kernel, another
 * number of layers, a run that digests few sites), or nobody did, so that its inputs stand for it. OPEN:
 * the same, but neither of them makes it, only other arms do. LOST: it was not captured, and nothing
 * before it was either. */
enum { SITE_SHARED = 0, SITE_GAP, SITE_OPEN, SITE_LOST };

/* What is known of a kernel's input rows, worst last: a known difference outweighs an unknown
 * input. NEAR: bits differ within the tolerance. */
enum { IN_EQUAL = 0, IN_UNKNOWN, IN_NEAR, IN_DIFFERS, IN_TAINTED };

/* What replaced digests (ds_analysis_options.recorded) hide of a cell. */
enum {
    NEAR_REFERENCE = 1 /* some trial's was replaced */,
    NEAR_REPEATS = 2 /* trials' bits disagree */
};

struct kernel_id {
    const char *op, *variant;
};

/* Whether an arm shows a site at all. A copy (stage transfer) that one arm makes and another does not is
 * held against what it would have copied: those cells stand in for the site there. */
enum { HAS_NOT = 0, HAS_CAPTURES, HAS_STAND_IN };

/* Why: unstable in this arm; unstable elsewhere, and this arm's agreement may be luck; the same,
 * but it did not run here on stable inputs. */
enum { EXCLUDED_SEEN = 1, EXCLUDED_LUCK, EXCLUDED_ABSENT };

struct odd_one { /* where repeats disagree: one trial that differs from the mode, and one at it */
    uint32_t trial, mode_trial; /* trial: 1 + its number, so that 0 is none */
    uint64_t digest;            /* of `trial` */
};

struct arm_table {
    uint32_t n_trials;  /* natural pass */
    size_t *trials;     /* [n_trials] source indices, ascending in repeat */
    uint32_t *value_of; /* [n_trials] index among the values of the factor "repeat" */
    uint64_t (*hash)[DS_VERDICT_PHASES]; /* [n_trials] of all cells' digests, and by phase */
    /* Trial 0 of them: its rows, calls, launches speak for the arm. */
    const struct ds_trial_data *rep;
    uint64_t *digest;   /* [cells] modal */
    uint32_t *capture;  /* [cells] index in rep->captures */
    uint16_t *kernel;   /* [cells] */
    uint8_t *state;     /* [cells] */
    uint8_t *near;      /* [cells] NEAR_*; NULL: no digest was replaced */
    uint8_t *has;       /* [n_sites] HAS_* */
    uint16_t *shares;   /* [n_sites] of a rank's part and of their sum: how many ranks; else 0 */
    uint32_t *row;      /* [rows] index in rep->rows, NONE = absent */
    uint32_t *requests; /* [rep->n_calls] distinct recorded requests of a call */
    uint8_t *excluded;  /* [n_families] not to be blamed on a factor in this arm, EXCLUDED_* */
    uint32_t disagree;  /* trials that disagree with the mode somewhere */
    uint64_t unstable_cells, repeated_cells;
    uint64_t repeat_compared; /* digests compared with the first trial's */
    struct odd_one *odd;      /* [cells] or NULL: the first trial that disagrees with the mode */
};

/* The heal trials of one arm, healed to one other (or to itself). */
struct heal_table {
    uint32_t arm, ref;
    struct arm_table t; /* digests before healing; `excluded` is the arm's own */
    uint8_t *drift;     /* [cells] healed in some trial */
    int mixed; /* its trials were healed with unlike rows: the reference is unstable and was run again */
};

struct ds_analysis {
    const struct ds_source *src;
    const struct ds_header *h;
    struct ds_analysis_options options;
    size_t n_sites, n_rows, cells;
    uint64_t bytes; /* of its tables, and of what it works with beside them */
    struct ds_row_key *keys;
    struct arm_table *arms; /* [h->n_arms] */
    uint64_t *origin_seen;  /* [n_sites] bit per kernel: counted among the layers of an origin */
    struct heal_table *healed;
    size_t n_healed;
    uint32_t *value;      /* [n_arms][n_factors] index into values[factor] */
    const char ***values; /* [n_factors] */
    uint32_t *n_values;
    uint32_t *in_start; /* [n_sites + 1] edges into a site */
    uint32_t *in_from;
    uint8_t *in_kind;
    uint8_t *feeds_causal, *feeds_all; /* [n_sites] */
    uint8_t *shown;                    /* [n_sites] some arm has it */
    struct kernel_id *kernels;
    size_t n_kernels, cap_kernels;
    uint32_t *stage_of; /* [n_sites] number of its (stage, part) */
    size_t n_stages, n_families;
    uint32_t *repeats; /* distinct trial.repeat values, in order of first appearance */
    size_t n_repeats;
    uint8_t *kernel_unstable; /* [n_kernels] its output disagreed on stable inputs in some arm */
    /* [n_kernels] digests with stable inputs whose repeats were compared. */
    uint64_t *kernel_repeats;
    /* scratch of label_pair */
    uint8_t *status, *prefix, *skip, *call_status, *inputs;
    uint8_t *gap;   /* [n_sites] whether some of its inputs come across a gap; for the last pair */
    uint8_t *open;  /* [n_sites] SITE_*; for the last pair */
    uint8_t *marks; /* [n_sites] scratch of sites_between */
    uint32_t *place_of; /* [n_sites] number of its (layer, stage) */
    uint64_t *beside,
        n_beside; /* [n_sites] by place: the last look at a site's inputs that found one there */
    /* Labels of one pair for ds_analysis_site, which is asked for one site after another; [cells], NULL until
     * then. known: the scratch above is still that pair's. */
    struct {
        uint8_t *labels;
        uint32_t arm, ref;
        int known;
    } last;
    uint64_t shape_mismatch, tokens_cut;
    size_t n_natural;
};

/* Whether a site is the same thing in both arms. */
static inline int both_have(const struct arm_table *t, const struct arm_table *r, size_t site)
{
    return t->has[site] && r->has[site] && t->shares[site] == r->shares[site];
}

static inline int is_stopped(const struct ds_analysis *a)
{
    return a->options.stop && a->options.stop(a->options.ctx);
}

static inline int is_ignored(const struct ds_analysis *a, size_t site)
{
    return a->options.ignored && a->options.ignored[site];
}

/* Whether the bits of a cell that has one digest in both arms differ all the same; t and r may be one arm. */
static inline int is_near(const struct arm_table *t, const struct arm_table *r, size_t cell)
{
    const int mine = t->near ? t->near[cell] : 0, theirs = r->near ? r->near[cell] : 0;
    return t == r ? mine & NEAR_REPEATS : mine | theirs;
}

static inline int is_drift(uint8_t label)
{
    label &= LABEL_MASK;
    return label == DS_LABEL_ORIGIN || label == DS_LABEL_INHERITED || label == DS_LABEL_UNKNOWN;
}

/* A kernel at one stage of any layer: one code path and one shape, so what is unstable in one layer
 * is in all. */
static inline size_t family(const struct ds_analysis *a, const struct arm_table *t, size_t site,
                            size_t cell)
{
    return t->kernel[cell] * a->n_stages + a->stage_of[site];
}

static inline const struct ds_row *arm_row(const struct arm_table *t, size_t row)
{
    return &t->rep->rows[t->row[row]];
}

static inline const struct ds_call *arm_call(const struct arm_table *t, size_t row)
{
    return &t->rep->calls[arm_row(t, row)->call];
}

/* verdict_tables.c */
int analysis_build(struct ds_analysis *a, struct ds_error *err);
/* Adds trial `i` of the source to the table's list, ascending in repeat. */
void table_add_trial(const struct ds_source *s, struct arm_table *t, size_t i);
/* Fills the table from its list of trials. */
int fill_arm(struct ds_analysis *a, struct arm_table *t, struct ds_error *err);
/* A trial's digests as they were recorded. */
const uint64_t *recorded_of(const struct ds_analysis *a, size_t trial,
                            const struct ds_trial_data *d);
/* Of a cell that the arm has: the digest that its first trial recorded, whatever it was replaced by. 0: not known. */
int recorded_digest(const struct ds_analysis *a, const struct arm_table *t, size_t cell,
                    uint64_t *digest);
uint32_t row_of_key(const struct ds_analysis *a, const struct ds_row *r, uint32_t guess);
/* Rows that the kernel of this capture was given, as the launch says; where it does not: the call's
 * rows, or for a site that exists only for some of them (logits) as many times the recorded ones as
 * the call has requests. */
uint32_t capture_m(const struct arm_table *t, size_t row, uint32_t capture);

int kernel_index(struct ds_analysis *a, const struct ds_launch *l, uint16_t *out,
                 struct ds_error *err);

/* verdict_union.c: after an arm's first trial; after all arms. */
void count_shares(const struct ds_analysis *a, struct arm_table *t);
int fill_copies(struct ds_analysis *a, struct ds_error *err);
/* The ranks that share the sum at the finding's site: where it is their sum, or where one side has
 * other ranks than the other; else 0. */
uint32_t ranks_of(const struct ds_analysis *a, const struct ds_finding *f);

/* verdict_label.c: labels[cells] of arm against ref, with LABEL_JUDGED. arm == ref: the arm's
 * repeats against each other. Ignored sites: absent. */
void label_pair(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint8_t *labels);
/* After label_pair: the sites between `site` and the nearest ones before it that both arms captured.
 * Returns how many; *first is the first of them. */
uint32_t sites_between(const struct ds_analysis *a, uint32_t site, uint32_t *first);
/* Two tables that are compared, and the arms they belong to; healed: the one that t belongs to, or
 * NULL. */
struct pair {
    const struct arm_table *t, *r;
    const struct heal_table *healed;
    uint32_t arm, ref;
};
/* Rows that cannot be compared -> a->skip; the rows of a causal input up to each -> a->prefix. */
void find_skipped(struct ds_analysis *a, const struct pair *p);
void fill_prefix(const struct ds_analysis *a, const struct pair *p, size_t site);
/* What is known of the inputs of a site's rows, from status and prefix of the sites before ->
 * a->inputs; what the site is to the pair -> a->open, a->gap. LABEL_BRIDGED if some of it comes
 * across a gap, else 0. */
uint8_t gather_inputs(struct ds_analysis *a, const struct pair *p, size_t site);
/* A site that is not shared has no labels, and hands on what is known of its inputs. */
void pass_through(struct ds_analysis *a, size_t site, uint8_t *labels);
/* Fills excluded[] of every arm and kernel_unstable[]. labels: scratch. */
int find_unstable_kernels(struct ds_analysis *a, uint8_t *labels, struct ds_error *err);

/* verdict_heal.c. NULL: there is none. */
const struct heal_table *healed_table(const struct ds_analysis *a, uint32_t arm, uint32_t ref);
int collect_healed(struct ds_analysis *a, struct ds_error *err);
int fill_healed(struct ds_analysis *a, struct ds_error *err);
/* Adds to a->inputs what an input read by the whole call is in a heal trial. */
void add_neighbours(struct ds_analysis *a, const struct heal_table *h, size_t from);
/* labels[cells] of a heal trial; unstable and judged: its trials disagree on equal inputs. */
void label_healed(struct ds_analysis *a, const struct heal_table *h, uint8_t *labels);
/* The same of an arm healed to its own rows: what disagrees on equal inputs is an origin. */
void label_unstable(struct ds_analysis *a, const struct heal_table *h, uint8_t *labels);
/* Labels of arm against ref where both had the inputs of `base` (which ref may be), from heal trials;
 * only what is judged counts. 0: no heal trial says anything. other: scratch. */
int judge_healed_pair(struct ds_analysis *a, uint32_t arm, uint32_t ref, uint32_t base,
                      uint8_t *labels, uint8_t *other);

/* verdict_apart.c: of the first unstable place, what all its trials are off the reference. */
void find_apart(const struct ds_analysis *a, struct ds_verdict *v);

/* verdict_added.c */
/* Adds the origins of one comparison to the verdict's; of: its arms, factor and value. */
int add_origins(struct ds_analysis *a, struct ds_verdict *v, const struct ds_finding *of,
                const uint8_t *natural, const uint8_t *healed, struct ds_error *err);
void sort_origins(struct ds_verdict *v);
/* Of the pair of the first drift, after the growth is known. labels: scratch. */
int find_added(struct ds_analysis *a, struct ds_verdict *v, uint8_t *labels, struct ds_error *err);

/* verdict_repeat.c: the factor "repeat" (entry 0). */
int judge_repeats(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v,
                  struct ds_error *err);

struct ds_census_arm;
/* census_pattern.c: whether an arm's repeats, whose runs are counted, disagree by a rule. */
void census_pattern(const struct ds_analysis *a, const struct arm_table *t, uint32_t arm,
                    struct ds_census_arm *c);
/* census.c, census_threshold.c: fill v->census, after the repeats are judged. labels: scratch. */
int take_census(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v, struct ds_error *err);
struct ds_census;
struct ds_census_arm;
int census_thresholds(struct ds_analysis *a, uint8_t *labels, struct ds_census *c,
                      struct ds_error *err);

/* validity.c: fills v->validity, after the first drift is known. */
struct ds_validity;
struct ds_validity_item;
int judge_validity(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);
const struct ds_validity_item *validity_objection(const struct ds_analysis *a,
                                                  const struct ds_validity *v);

/* verdict_factor.c: everything that comes from comparing arms. */
int judge_factors(struct ds_analysis *a, uint8_t *labels, struct ds_verdict *v,
                  struct ds_error *err);
/* Tells the finding at a cell that both arms have: rows and positions are those that drift at its
 * site in the phase (-1: any). */
void describe_cell(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                   size_t cell, int phase, struct ds_finding *out);
/* Fills *out with the first drifting cell (execution order) of labels whose reference row has that
 * phase (-1: any). */
int first_drift(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                int phase, struct ds_finding *out);
/* Whether x comes before y in execution order; an empty finding comes last. */
int finding_before(const struct ds_finding *x, const struct ds_finding *y);

/* verdict_notes.c: after the origins are known. */
int note_findings(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_precision.c: fills v->precisions, after the factors are judged. */
int find_precisions(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_bands.c: sizes at which a factor changes a kernel's bits. *work: of one factor, NULL at first;
 * count_bands for every arm against its reference, with its labels; tell_bands fills v->bands and frees. */
struct band_work;
int count_bands(const struct ds_analysis *a, struct band_work **work, uint32_t arm,
                const char *factor, const uint8_t *natural, const uint8_t *healed,
                struct ds_error *err);
int tell_bands(const struct ds_analysis *a, struct band_work *work, const char *factor,
               struct ds_verdict *v, struct ds_error *err);
void free_bands(struct band_work *work);

/* verdict_inputs.c: what a site's kernel read for a row, as one hash. */
struct open_site {
    uint32_t site;
    int causal;
};

struct input_walk {
    uint32_t *seen;         /* [n_sites] the look that visited it last */
    struct open_site *open; /* [n_sites] sites that the arm has not, still to be seen through */
    uint32_t look, found;
    int whole; /* the kernel reads all rows of its call */
};

/* inputs: [n_rows], 0 = not known or not stable. */
void hash_inputs(const struct ds_analysis *a, const struct arm_table *t, size_t site,
                 struct input_walk *w, uint64_t *inputs);

/* verdict_rows.c: switches in rows M. */
int find_switches(struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_size.c: sizes, kinds, growth, non-finite values. */
/* phase: of the rows that the finding is about, -1 = any. labels: scratch. */
int size_finding(struct ds_analysis *a, uint8_t *labels, int phase, struct ds_finding *f,
                 struct ds_error *err);
/* verdict_index.c: see there. */
int index_edges(struct ds_analysis *a, struct ds_error *err);
int index_places(struct ds_analysis *a, struct ds_error *err);
int index_stages(struct ds_analysis *a, struct ds_error *err);
int index_values(struct ds_analysis *a, struct ds_error *err);

/* verdict_probe.c: the self-check: 1 probes change the answer, 0 they do not, -1 not known. *disturber: the least
 * that probes did in a trial that differs. */
int probes_disturb(const struct ds_analysis *a, int *disturber, int *check);
/* CPU time of probes over that of passes of a phase: the median of natural trials without drift, and all. */
int probe_share(const struct ds_analysis *a, int phase, double *median, double *total,
                struct ds_error *err);

/* verdict_site.c: labels of the pair (label_pair), kept until another one is asked for. NULL: no memory. */
const uint8_t *last_labels(struct ds_analysis *a, uint32_t arm, uint32_t ref, struct ds_error *err);
/* The same with the labels of its pair, which was the last to be labelled. */
int size_labelled(struct ds_analysis *a, const uint8_t *labels, int phase, struct ds_finding *f,
                  struct ds_error *err);
/* verdict_borrow.c: of a finding of repeats that the record holds no sizes of: what the arm's rows there show against
 * those of its reference. labels: scratch. */
int borrow_sizes(struct ds_analysis *a, int phase, uint8_t *labels, struct ds_finding *f,
                 struct ds_error *err);
/* Kind and evidence of every independent origin, from heal trials where there are any: the first drift is
 * known. labels: scratch. */
int size_origins(struct ds_analysis *a, struct ds_verdict *v, uint8_t *labels,
                 struct ds_error *err);
int find_growth(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);
int find_nonfinite(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_choices.c */
void compare_experts(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const uint8_t *labels,
                     const char *factor, const char *value, struct ds_verdict *v);
/* After all comparisons: which experts changed places, and what comes first. */
int find_discrete(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_failed.c */
int find_failed(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);
/* verdict_range.c */
int find_ranges(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

/* verdict_tokens.c */
void count_ties(const struct ds_analysis *a, struct ds_verdict *v);
void compare_tokens(const struct ds_analysis *a, uint32_t arm, uint32_t ref, const char *factor,
                    const char *value, struct ds_verdict *v);
/* The same of an arm's repeats, against the first of them. */
int compare_repeated_tokens(const struct ds_analysis *a, uint32_t arm, struct ds_verdict *v,
                            struct ds_error *err);
/* Whether both arms list the same steps, fed the same tokens: the usual case, and quick to see. */
int fed_alike(const struct arm_table *arm, const struct arm_table *ref);
/* Whether the arms may have prompts of other lengths. */
int prompts_vary(const struct ds_analysis *a);
/* The first place in the stream of tokens (prompt, then forced ones) of request 0 at which both arms
 * were fed a token and not the same one; INT32_MAX if there is none. */
int32_t parted_at(const struct ds_analysis *a, uint32_t arm, uint32_t ref);
/* The place of a row's token in that stream. */
int32_t place_in_stream(const struct ds_analysis *a, uint32_t arm, const struct ds_row *r);
/* The step after which the two arms were fed different tokens for `request`; INT32_MAX if never. */
int32_t fed_until(const struct arm_table *arm, const struct arm_table *ref, int32_t request);

/* verdict_packed.c */
int note_packed(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err);

void verdict_drop_kernel(struct ds_verdict *v, size_t k);
/* Keeps a text with the verdict; NULL when out of memory. */
char *verdict_own(struct ds_verdict *v, const char *text, struct ds_error *err);
int verdict_note(struct ds_verdict *v, struct ds_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
