/* blas_library.c: --blas for every verb: chooses the library of matmul/cblas before the verb runs, and
 * says what loading it changed. Owns the wording; the loading itself is kernels/cblas.c's. */
#include "cli/cli.h"

#include "base/fp_control.h"
#include "kernels/cblas.h"

int ds_cli_blas_library(const struct ds_options *o, struct ds_error *err)
{
    const char *path = ds_opt_text(o, "blas");
    int64_t seconds;
    if (!path)
        return 0;
    if (ds_opt_int(o, "plugin-timeout", 1, 86400, &seconds, err) != 0 ||
        ds_cblas_choose(path, (int)seconds, err) != 0)
        return -1;
    const uint32_t fp = ds_cblas_fp_changed();
    if (fp)
        ds_cli_note(o,
                    "blas library %s: loading it sets the loading thread's floating-point control "
                    "word to %#x%s%s; it is put back. A library linked with -ffast-math does that "
                    "to any program",
                    path, (unsigned)fp, *ds_fp_effect(fp) ? ": " : "", ds_fp_effect(fp));
    return 0;
}
