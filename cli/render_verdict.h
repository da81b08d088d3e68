/* render_verdict.h: a verdict as text and as JSON, and the verbs' common way to make and print one.
 */
#ifndef DS_RENDER_VERDICT_H
#define DS_RENDER_VERDICT_H

#include "cli/cli.h"
#include "dumps/diff.h"
#include "dumps/verdict.h"

struct ds_damage_side; /* render_damage.h */

struct ds_render {
    const struct ds_options *o;     /* NULL: no colour */
    const struct ds_header *header; /* model and sites */
    const struct ds_verdict *v;
    const struct ds_diff *diff; /* NULL: one record */
    const char *path, *path_b;  /* records on disk, for the suggested command; NULL: not on disk */
    size_t incomplete, damaged; /* trials left out */
    const struct ds_damage_side *damage; /* of one or two records; NULL: not asked for */
    const uint8_t *healed;               /* grid: labels of the heal trial; NULL: there is none */
};

/* The answer last. */
void ds_render_verdict_text(const struct ds_render *r, struct ds_buf *out);
/* One object, driftscope.verdict/1, with a newline. */
int ds_render_verdict_json(const struct ds_render *r, struct ds_buf *out, struct ds_error *err);

/* The last line: the verdict in one sentence, without newline and colour. */
void ds_render_sentence(const struct ds_render *r, struct ds_buf *out);

/* "driftscope run -m MODEL --resume PATH". A record names its model, but never makes the program
 * open one: the command must say it (the default model needs no -m), and the plugins that are loaded
 * now. model NULL: the default. */
void ds_render_resume(struct ds_buf *out, const char *model, const char *path);

/* The layer x stage grid of one arm against its reference; labels as from ds_analysis_labels. bad:
 * [n_sites] whether a row of the arm is non-finite there; may be NULL. */
void ds_render_grid(const struct ds_render *r, const struct ds_analysis *a, const uint8_t *labels,
                    const uint8_t *bad, struct ds_buf *out);

/* Classes of one factor, e.g. "1-3|4|8,16"; class_of as in the verdict. At most `most` bytes, else
 * "N classes". */
void ds_render_classes(const struct ds_factor_verdict *f, const uint32_t *class_of, size_t most,
                       struct ds_buf *out);

/* Makes the verdict of a source and prints it (text or --json). r and path: the record it comes
 * from, or NULL. */
int ds_cli_verdict(const struct ds_options *o, const struct ds_source *s, struct ds_record *r,
                   const char *path, int *exit_code, struct ds_error *err);

#endif
