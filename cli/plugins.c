/* plugins.c: --plugin for every verb: loads each before the verb runs, in the order given, and says
 * what a load changed. Owns the wording; the loading itself is kernels/plugin.c's. */
#include "cli/cli.h"

#include "base/fp_control.h"
#include "kernels/plugin.h"

int ds_cli_plugins(const struct ds_options *o, struct ds_error *err)
{
    int64_t seconds;
    if (ds_opt_int(o, "plugin-timeout", 1, 86400, &seconds, err) != 0)
        return -1;
    for (size_t i = 0; i < ds_opt_count(o, "plugin"); i++) {
        if (ds_plugin_load(ds_opt_at(o, "plugin", i), (int)seconds, err) != 0)
            return -1;
        const struct ds_plugin *p = ds_plugin_at(ds_plugin_count() - 1);
        if (p->fp_after != p->fp_before)
            ds_cli_note(o,
                        "plugin %s: loading it changed this thread's floating-point control word "
                        "from %#x to %#x%s%s; it was put back. A library linked with -ffast-math "
                        "does that to any program",
                        p->path, (unsigned)p->fp_before, (unsigned)p->fp_after,
                        *ds_fp_effect(p->fp_after) ? ": " : "", ds_fp_effect(p->fp_after));
    }
    return 0;
}
