/* views.c: the views, in the order of their keys 1..7. */
#include "tui/view.h"

/* A view whose file is not there yet has no key. */
const struct tui_view_ops *const tui_views[TUI_VIEWS] = {
#if __has_include("tui/view_overview.c")
    [0] = &tui_view_overview,
#endif
#if __has_include("tui/view_layers.c")
    [1] = &tui_view_layers,
#endif
#if __has_include("tui/view_site.c")
    [2] = &tui_view_site,
#endif
#if __has_include("tui/view_tensor.c")
    [3] = &tui_view_tensor,
#endif
#if __has_include("tui/view_tokens.c")
    [4] = &tui_view_tokens,
#endif
#if __has_include("tui/view_runs.c")
    [5] = &tui_view_runs,
#endif
#if __has_include("tui/view_environment.c")
    [6] = &tui_view_environment,
#endif
};
