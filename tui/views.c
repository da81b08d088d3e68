/* views.c: the views, in the order of their keys 1..7. */
#include "tui/view.h"

const struct tui_view_ops *const tui_views[TUI_VIEWS] = {
    &tui_view_overview, &tui_view_layers, &tui_view_site,        &tui_view_tensor,
    &tui_view_tokens,   &tui_view_runs,   &tui_view_environment,
};
