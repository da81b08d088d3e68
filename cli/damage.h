/* damage.h: damage of records: found while a verdict was made, or by --verify. */
#ifndef DS_CLI_DAMAGE_H
#define DS_CLI_DAMAGE_H

#include "report/report.h"

/* Of a verb: reads all of the record if it is to be verified. */
int ds_damage_verify(struct ds_damage_side *s, struct ds_record *record, int verify,
                     struct ds_error *err);
/* Behind the verdict, of what is not verified yet: all is read where no digest differs, for nothing is a pass unread,
 * and wherever that takes no time worth mentioning; else what was not read is counted. n: 1, or 2 records. excused:
 * rows that differ within a tolerance. */
int ds_damage_rest(struct ds_damage_side *s, size_t n, const struct ds_verdict *v, uint64_t excused,
                   struct ds_error *err);
/* Lists what was met so far. */
int ds_damage_collect(struct ds_damage_side *s, struct ds_error *err);
void ds_damage_free(struct ds_damage_side *s);
/* Where the tables of some trial are damaged there is no verdict to make. */
void ds_damage_no_verdict(struct ds_verdict *v);

#endif
