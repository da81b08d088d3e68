/* weights.h: the digests of every weight of one record or of two, stage by stage. */
#ifndef DS_REPORT_WEIGHTS_H
#define DS_REPORT_WEIGHTS_H

#include "report/report.h"

enum { DS_WEIGHT_LOADED = 1, DS_WEIGHT_NUMBERS = 2, DS_WEIGHT_PACKED = 4, DS_WEIGHT_ALONE = 8 };
enum { DS_WEIGHT_STAGES = 3 };
const char *ds_weight_stage(int stage); /* "as loaded", "dequantised", "packed" */

struct ds_weight_row {
    const struct ds_record_weight *w[2]; /* NULL: that record lacks it */
    const struct ds_packed *packed[2];   /* as kernels packed it; none unless it was asked for */
    size_t n_packed[2];
    int packed_held;  /* one kernel packed it on both sides */
    unsigned differs; /* DS_WEIGHT_* */
};

struct ds_weight_list {
    int two; /* records */
    struct ds_weight_row *rows;
    size_t n, alone, held[DS_WEIGHT_STAGES], n_differ[DS_WEIGHT_STAGES];
    struct ds_packed *packed[2];
    size_t n_packed[2];
};

/* b NULL: of one record. Released with ds_weight_list_free, also after -1. The sources must outlive it. */
int ds_weight_list_make(struct ds_weight_list *o, const struct ds_source *a,
                        const struct ds_source *b, struct ds_error *err);
void ds_weight_list_free(struct ds_weight_list *o);
/* Of one record all, of two those that differ; then how many. */
void ds_weight_list_text(const struct ds_weight_list *o, struct ds_buf *out);

#endif
