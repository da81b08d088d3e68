/* render_damage.h: damage of records beside a verdict: found while it was made, or by --verify. */
#ifndef DS_RENDER_DAMAGE_H
#define DS_RENDER_DAMAGE_H

#include "cli/render_verdict.h"

#include <jansson.h>

struct ds_damage_side {
    struct ds_record *record; /* NULL: none */
    int verified;             /* all of it was read, not only what the verdict looks at */
    size_t trials;            /* of which the tables are damaged, where verified */
    struct ds_damage *list;
    size_t n;
};

/* Of a verb: reads all of the record if it is to be verified. */
int ds_damage_verify(struct ds_damage_side *s, struct ds_record *record, int verify,
                     struct ds_error *err);
/* Lists what was met so far. */
int ds_damage_collect(struct ds_damage_side *s, struct ds_error *err);
void ds_damage_free(struct ds_damage_side *s);
/* Whether there is any; then nothing is the same: such a result becomes incomparable. */
int ds_damage_judge(const struct ds_render *r, struct ds_verdict *v);
/* Where the tables of some trial are damaged there is no verdict to make. */
void ds_damage_no_verdict(struct ds_verdict *v);

/* "2 dumped rows do not have their digest"; 0 and nothing where there is no damage. */
int ds_damage_words(const struct ds_render *r, char *text, size_t size);
/* Lines of the text, words of its last line, the object of --json. */
void ds_render_damage(const struct ds_render *r, struct ds_buf *out);
void ds_render_damage_words(const struct ds_render *r, struct ds_buf *out);
json_t *ds_json_damage(const struct ds_render *r);

#endif
