/* explain_each.h: one element of an op whose elements stand alone. */
#ifndef DS_LAB_EXPLAIN_EACH_H
#define DS_LAB_EXPLAIN_EACH_H

#include "kernels/lab/explain.h"

/* Where an element of rope stands: in its pair, or among the channels that are not rotated. */
enum ds_each_place { DS_EACH_ONE = 0, DS_EACH_FIRST, DS_EACH_SECOND, DS_EACH_COPIED };

/* rope: x0, x1, cos, sin of the pair; gate, up; a, b; or what is copied. */
struct ds_each_terms {
    int at; /* enum ds_each_place */
    float v[4];
};

void ds_each_terms(const struct ds_explain *e, int side, size_t row, int64_t column,
                   struct ds_each_terms *t);
/* By a form of ds_explain_each, before it is stored. */
float ds_each_value(int op, int form, const struct ds_each_terms *t);
/* "both products rounded, then their sum, products kept in bf16" */
void ds_each_text(int op, int form, char *text, size_t size);
/* The format that a form keeps something in on the way, enum ds_dtype; DS_F32: in none. */
int ds_each_cast(int form);

#endif
