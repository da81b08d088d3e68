/* environment_internal.h: what the files of the environment's lists share. */
#ifndef DS_REPORT_ENVIRONMENT_INTERNAL_H
#define DS_REPORT_ENVIRONMENT_INTERNAL_H

#include "report/environment.h"

/* environment_values.c */
/* The counts of a side that the lists tell. -1: no memory. */
int ds_env_count(struct ds_env *e, const struct ds_env_of *w, struct ds_error *err);
size_t ds_env_entries(const struct ds_env_of *w, int side, int list);
/* An entry's name and value, in `out` or borrowed from the record. */
const char *ds_env_name(const struct ds_env_of *w, int side, int list, uint32_t at, char out[512]);
const char *ds_env_value(const struct ds_env *e, const struct ds_env_of *w, int side, int list,
                         uint32_t at, char out[512]);

#endif
