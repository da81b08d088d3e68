/* verb_fingerprint.c: `driftscope fingerprint`: log-probabilities of two systems, of whatever make, held against each
 * other. Owns options and exit codes. */
#include "cli/fingerprint.h"

#include <stdlib.h>

static int read_eps(const struct ds_options *o, double *eps, struct ds_error *err)
{
    const char *text = ds_opt_text(o, "eps");
    char *end;
    *eps = strtod(text, &end);
    if (*end || end == text || !(*eps > 0 && *eps < 1))
        return ds_fail(err, "--eps '%.40s' is no number between 0 and 1", text);
    return 0;
}

int ds_verb_fingerprint(const struct ds_options *o)
{
    struct ds_fp_file a = {0}, b = {0};
    struct ds_fp_result r = {0};
    struct ds_buf out = {0};
    struct ds_error err = {{0}, {0}};
    double eps;
    int code = DS_EXIT_ERROR;
    int rc = read_eps(o, &eps, &err) != 0 || ds_fp_read(ds_opt_operand(o, 0), &a, &err) != 0 ||
                     ds_fp_read(ds_opt_operand(o, 1), &b, &err) != 0 ||
                     ds_fp_compare(&a, &b, eps, &r, &err) != 0
                 ? -1
                 : 0;
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = ds_fp_json(&out, &r, &err);
    else if (rc == 0)
        ds_fp_text(&out, o, &r);
    if (rc == 0)
        rc = ds_cli_emit(o, &out, &err);
    if (rc == 0)
        code = ds_cli_exit(o, r.tokens.n == 0        ? DS_EXIT_ERROR
                              : ds_fp_differs(&r)    ? DS_EXIT_DRIFT
                              : ds_fp_incomplete(&r) ? DS_EXIT_ERROR
                                                     : DS_EXIT_SAME);
    ds_buf_free(&out);
    ds_fp_result_free(&r);
    ds_fp_file_free(&a);
    ds_fp_file_free(&b);
    return rc == 0 ? code : ds_cli_error(o, &err);
}
