/* structure.h: does something simple explain how one result differs from another? A constant ratio,
 * a permutation, a shift, a row of another token, RoPE with another pairing or position, attention
 * with another set of keys. Pure functions on values; knows no record.
 *
 * How a claim is made. An element is *off* when it is farther from the reference than rounding
 * explains: one step of the storage format for each side, plus what reordering gives at the site
 * (order, relative to the row's rms; for kernels that scale a row as a whole relative to the
 * element). A hypothesis predicts each off element from the reference and the kernel's inputs. It is
 * claimed when it brings at least 95 % of all off elements back within rounding, and there are at
 * least eight of them. Differences of rounding leave no element off, so nothing is ever claimed of
 * them; short inputs (TF32, bf16) leave elements off that no hypothesis brings back. */
#ifndef DS_STRUCTURE_H
#define DS_STRUCTURE_H

#include <stddef.h>
#include <stdint.h>

enum ds_structure_op {
    DS_STRUCTURE_OTHER = 0,
    DS_STRUCTURE_NORM, /* input: what it normalises */
    DS_STRUCTURE_ROPE, /* input: what it rotates */
    DS_STRUCTURE_ATTENTION
};

enum { DS_STRUCTURE_TERMS = 16, DS_STRUCTURE_NAME = 48 };

struct ds_structure_site {
    int op;            /* enum ds_structure_op */
    int dtype;         /* enum ds_dtype, of the rows as stored */
    uint32_t width;    /* elements of a row, at least 1 */
    uint32_t head_dim; /* 0: no heads; else divides width */
    uint32_t kv_heads; /* attention: heads of the cached rows; divides the heads */
    double order;      /* size of reordering, relative */
    double eps;        /* norm: the reference's epsilon, 0: not known */
    double rope_base;  /* 0: not known */
    uint32_t n_terms;  /* sums of a few rows: how many are known, and their names */
    int gated;         /* no sum: act(first term) * second term */
    char term_name[DS_STRUCTURE_TERMS][DS_STRUCTURE_NAME];
    uint32_t rope_dim; /* channels of a head that are rotated; 0: all */
    int32_t first; /* attention: the position at which requests begin; rows' are counted from it */
    uint32_t page; /* attention: positions of a page of the cache; 0: not known */
    uint32_t n_logits; /* a router's weights: of how many experts it chose; 0: no such site */
};

struct ds_structure_row {
    const float *mine, *ref; /* [width] */
    const float *input;      /* [width], or NULL */
    int32_t position;        /* attention: counted from the site's first */
    /* attention: the query row; cached keys and values by position, [kv_heads * head_dim] each. The
     * row itself sees keys 0..position; later ones are there to be tried. NULL: not known. */
    const float *const *k, *const *v;
    uint32_t n_keys;
    /* Cached rows of padding before the first token, which nobody should see; in order. */
    const float *const *pad_k, *const *pad_v;
    uint32_t n_pads;
    /* a sum's terms, [width] each, and their factors; NULL: not at hand */
    const float *term[DS_STRUCTURE_TERMS];
    float term_weight[DS_STRUCTURE_TERMS];
    /* the terms of the row one position before, and one behind; NULL: not at hand */
    const float *term_beside[2][DS_STRUCTURE_TERMS];
    const float *weight_beside[2]; /* and that row's factors, of all terms */
    const float *logits;           /* a router's weights: what it chose by; NULL: not at hand */
};

enum { DS_STRUCTURE_TEXT = 160 };
struct ds_structure {
    int found;
    double explained;        /* share of the off elements that it brings back */
    uint64_t off, of;        /* elements that rounding does not explain, of all */
    double worst;            /* the largest difference, relative to its row's rms */
    double scale;            /* rows are scaled: the most that a ratio is away from 1, without a
                                  cause; else 0 */
    int precision;           /* it is a format of fewer bits on the way, no other data */
    int algorithm;           /* it is another way to compute the same, no other data */
    int blank;               /* rows hold nothing: zeros, or one value */
    int mine_bits, ref_bits; /* f32: the most mantissa bits that a value of each side uses */
    double ratio;            /* a constant ratio of mine to the reference; 0: none */
    char text[DS_STRUCTURE_TEXT]; /* "every value is 1.00452 times the reference's" */
};

/* Tries every hypothesis and tells the one that explains most; the simplest of equals. -1: out of
 * memory. */
struct ds_error;
int ds_structure_find(const struct ds_structure_site *s, const struct ds_structure_row *rows,
                      size_t n_rows, struct ds_structure *out, struct ds_error *err);

/* The largest distance that rounding explains between element i of a row and its reference.
 * rms: of the reference row. */
double ds_structure_slack(const struct ds_structure_site *s, float ref, float mine, double rms);

/* enum ds_structure_op of an op's name. */
int ds_structure_op(const char *op);
/* The size of reordering `terms` added terms, relative; rope: its table's at position `last`. */
double ds_structure_order(int op, double terms, int32_t last);

#endif
