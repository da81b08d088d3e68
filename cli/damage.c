/* damage.c: what the verbs do about records that cannot be believed: --verify reads all of them, and where
 * something is damaged nothing is the same. */
#include "cli/damage.h"

#include <stdlib.h>

int ds_damage_verify(struct ds_damage_side *s, struct ds_record *record, int verify,
                     struct ds_error *err)
{
    *s = (struct ds_damage_side){
        .record = record, .header = ds_record_header(record), .verified = verify};
    if (verify && (ds_record_verify(record, err) != 0 || ds_damage_collect(s, err) != 0))
        return -1;
    for (size_t i = 0; i < s->n; i++)
        s->trials += !s->list[i].dumped;
    return 0;
}

/* Bytes of dumped rows that are read whatever the answer: about as long as a verdict takes. */
enum { ALWAYS_READ = 256 << 20 };

int ds_damage_rest(struct ds_damage_side *s, size_t n, const struct ds_verdict *v, uint64_t excused,
                   struct ds_error *err)
{
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i].verified)
            return 0;
        ds_record_unread(s[i].record, &s[i].unread_rows, &s[i].unread_bytes);
        all += s[i].unread_bytes;
    }
    const int equal =
        (v->result == DS_RESULT_SAME || v->result == DS_RESULT_RECORDED) && excused == 0;
    if (!equal && all > ALWAYS_READ)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (ds_record_verify_rest(s[i].record, err) != 0)
            return -1;
        s[i].verified = 1;
        s[i].unread_rows = s[i].unread_bytes = 0;
    }
    return 0;
}

int ds_damage_collect(struct ds_damage_side *s, struct ds_error *err)
{
    ds_damage_free(s);
    return s->record ? ds_record_damages(s->record, &s->list, &s->n, err) : 0;
}

void ds_damage_free(struct ds_damage_side *s)
{
    free(s->list);
    s->list = NULL;
    s->n = 0;
}

void ds_damage_no_verdict(struct ds_verdict *v)
{
    *v = (struct ds_verdict){.result = DS_RESULT_RECORDED,
                             .stable = 1,
                             .overhead_prefill = -1,
                             .overhead_decode = -1,
                             .total_prefill = -1,
                             .total_decode = -1,
                             .disturbs = -1};
}
