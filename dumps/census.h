/* census.h: what the repeats of each arm gave: how many different runs there were, where two of
 * them part first, how often a trial disagrees, and from which size of a call on. Part of the
 * verdict (ds_verdict.census); pure, as all of it. */
#ifndef DS_CENSUS_H
#define DS_CENSUS_H

#include "dumps/verdict.h"

enum {
    DS_CENSUS_RUNS = 256, /* different runs of an arm that are compared in pairs */
    DS_CENSUS_PAIRS = 16, /* pairs that are told one by one */
    DS_CENSUS_PLACES = 8  /* places of first differences that are told one by one */
};

/* Two different runs of an arm and the first row, in execution order, that is not equal. */
struct ds_census_pair {
    uint32_t a, b; /* repeat numbers: each the first trial that gave this run */
    uint32_t site;
    int32_t request, position, step;
    uint64_t digests; /* that differ in all */
};

/* Repeats that disagree by a rule: two results one after the other; farther from the first with every trial. */
enum ds_census_pattern { DS_CENSUS_BY_CHANCE = 0, DS_CENSUS_IN_TURNS, DS_CENSUS_GROWING };
const char *ds_census_pattern_name(int pattern); /* "none", "in-turns", "growing" */

struct ds_census_place {
    uint32_t site;
    uint64_t pairs; /* pairs of different runs that first differ here */
};

struct ds_census_arm {
    uint32_t arm, trials;
    uint32_t distinct;       /* different runs: trials that agree in every digest are one run */
    uint32_t modal;          /* trials that gave the most frequent run */
    uint32_t disagree;       /* trials that disagree with the modal digest of some row */
    double low, high;        /* 95 % Wilson interval of disagree / trials */
    double excluded;         /* all agree: a flake rate above this is excluded at 95 %; else 1 */
    uint64_t rows, unstable; /* digests with repeats; of those, the ones with several values */
    uint32_t most;           /* values that one row has, at most */
    int counted; /* 0: some runs were left out; `most` and `values` are at least so many */
    /* First unstable place; label origin: its inputs are equal in all runs. */
    struct ds_finding first;
    uint32_t agree, values; /* there: trials at the modal digest, and different digests */
    int first_trial; /* the trial that ran first in its process is alone in disagreeing: warm-up */
    int pattern;     /* enum ds_census_pattern */
    double grows[2]; /* GROWING: relative rms off the first trial, of the second and of the last */
    struct ds_census_pair pairs[DS_CENSUS_PAIRS];
    uint32_t n_pairs;
    uint64_t of_pairs; /* pairs of different runs, all told */
    uint64_t unseen;   /* of those, not compared: more than DS_CENSUS_RUNS runs */
    struct ds_census_place places[DS_CENSUS_PLACES];
    uint32_t n_places;
    uint64_t elsewhere; /* compared pairs that first differ at a place not listed */
};

/* The sizes at which a kernel disagrees with itself on equal inputs, in one setting of everything
 * else. Sizes are rows of the call, or visible tokens for a kernel that reads earlier rows. */
enum ds_census_edge { DS_CENSUS_FROM, DS_CENSUS_UP_TO };
struct ds_census_threshold {
    const char *op, *variant;
    const char *measure; /* "rows" or "length" */
    char setting[96];    /* "threads 2"; "" at the base setting */
    int edge;            /* enum ds_census_edge */
    uint32_t at;         /* unstable from here on, or up to here */
    uint32_t stable;     /* the nearest size at which it is stable */
};

struct ds_census {
    struct ds_census_arm *arms; /* [n_arms] arms with two trials or more, ascending */
    size_t n_arms;
    struct ds_census_threshold *thresholds;
    size_t n_thresholds;
    /* --until-stable: the flake rate to be excluded, 0 = not asked for; how many equal trials that takes,
     * and the arms of which so many have not been seen, and no two that disagree either. */
    double asked;
    uint32_t asked_trials, arms_short;
};
void ds_census_free(struct ds_census *c);

/* One row of a site over an arm's trials. */
struct ds_census_row {
    uint32_t trials; /* that have it; 0: none, all else is zero */
    uint32_t values; /* different digests */
    uint32_t modal;  /* trials that gave the most frequent one */
    uint64_t digest; /* which is this; of several as frequent the one that came first */
};
struct ds_census_site {
    uint32_t trials;            /* of the arm; 0: there is no such arm or site */
    struct ds_census_row *rows; /* [ds_analysis_rows] */
    uint32_t with, unstable;    /* rows that some trial has; of those, with several digests */
    uint32_t most;              /* different digests of one row, at most */
    uint32_t least;             /* of an unstable row, trials at its mode, at least */
};
/* Digests as they were recorded, whatever a tolerance excuses. The caller frees *out. */
int ds_census_site(const struct ds_analysis *a, uint32_t arm, uint32_t site,
                   struct ds_census_site *out, struct ds_error *err);
void ds_census_site_free(struct ds_census_site *c);

/* 95 % interval of the proportion k / n after Wilson (1927): holds its level for small n and for k
 * = 0 or n. */
void ds_wilson(double k, double n, double *low, double *high);

/* The rule of --until-stable. If every trial disagrees with the modal bits with the same chance f,
 * n trials are all equal with a chance of at most (1 - f)^(n - 1): the first is free, and each
 * further one must fall on the bits of the first, whichever these are. So n equal trials exclude at
 * 95 % every f above 1 - 0.05^(1 / (n - 1)). */
double ds_flake_excluded(uint32_t trials);
/* The fewest equal trials that exclude a rate above `rate` (0 < rate < 1); UINT32_MAX if too many. */
uint32_t ds_flake_trials(double rate);

#endif
