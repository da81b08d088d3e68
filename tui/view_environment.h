/* view_environment.h: what the files of the view Environment share: lists of names and values, of one record or of
 * both. */
#ifndef DS_TUI_VIEW_ENVIRONMENT_H
#define DS_TUI_VIEW_ENVIRONMENT_H

#include "report/environment.h"
#include "tui/view.h"

struct env_own {
    struct tui_data *data;
    uint64_t generation;
    int columns; /* the table's */
    int ascii;
    struct ds_env env;
    struct tui_column column[3];
    struct ds_env_texts texts; /* of the cell that was asked for last */
};

/* What the view was made from; NULL: something else is there now. */
const struct tui_whole *env_whole(const struct env_own *o);
/* The same as report/ takes it. */
struct ds_env_of env_of(const struct tui_whole *w);
void env_source(struct env_own *o, struct tui_source *out);

/* Parts of a that b has not: words where there are several, else what lies between the equal beginning and the equal
 * end. Returns how many, at most `most`. */
struct env_span {
    size_t begin, end;
};
size_t env_difference(const char *a, const char *b, struct env_span *out, size_t most);

void env_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
               struct tui_rect r);

#endif
