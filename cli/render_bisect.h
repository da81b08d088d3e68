/* render_bisect.h: inside cli/ only: what a search for kernels found, as text and as JSON. */
#ifndef DS_RENDER_BISECT_H
#define DS_RENDER_BISECT_H

#include "cli/cli.h"
#include "engine/bisect.h"

struct ds_bisect_view {
    const struct ds_bisect *b;
    const char *model, *from, *to;          /* kernel sets as given */
    const char *factor, *value_a, *value_b; /* the condition; factor NULL: the sets themselves */
    char *set_cure, *set_cause;             /* as --kernels takes them; NULL where not found */
};

void ds_render_bisect_text(const struct ds_bisect_view *w, struct ds_buf *out);
/* driftscope.bisect/1 */
int ds_render_bisect_json(const struct ds_bisect_view *w, struct ds_buf *out, struct ds_error *err);

#endif
