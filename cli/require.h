/* require.h: inside cli/ only: what kernels claim, against what is demanded of them (--require). */
#ifndef DS_REQUIRE_H
#define DS_REQUIRE_H

#include "cli/cli.h"
#include "dumps/record.h"
#include "kernels/registry.h"

/* Adds "matmul/openblas, attention/vendor": the kernels of the set that lack any of the claims. used: by op,
 * whether it counts; NULL: all do. Returns how many there are. */
size_t ds_claims_missing(const struct ds_kernel_set *set, const unsigned char *used,
                         uint32_t claims, struct ds_buf *out);

/* --strict, --require LIST: refuses (-1) if a kernel that one of the arms would run does not claim what is
 * demanded, naming it. 0 without either option. sets: which option chooses the kernels, for the hint: "--kernels". */
int ds_cli_require(const struct ds_options *o, const struct ds_header *h, const char *sets,
                   struct ds_error *err);
/* Refuses either option where nothing is run: `what` is looked at. */
int ds_cli_require_nothing(const struct ds_options *o, const char *what, struct ds_error *err);

#endif
