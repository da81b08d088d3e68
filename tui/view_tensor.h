/* view_tensor.h: what the files of the view Tensor share. */
#ifndef DS_TUI_VIEW_TENSOR_H
#define DS_TUI_VIEW_TENSOR_H

#include "report/value.h"
#include "tui/view.h"

struct tensor_own {
    /* Asked anew before each use; NULL: not there (yet). */
    const struct tui_site *site;
    const struct tui_values *values;
    const struct ds_header *h;
    const struct tui_whole *whole;

    struct tui_place at; /* what the rest is made for */
    int ascii;
    struct ds_values pair; /* its bytes are those of `values` */
    uint32_t heads, head_dim;
    struct tui_column columns[10];
    size_t n_columns;
    double largest; /* size that `w` goes to, in the metric of the place */
};

void tensor_source(struct tensor_own *o, struct tui_source *out);
void tensor_count(struct tensor_own *o);
void tensor_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                  struct tui_rect r);

#endif
