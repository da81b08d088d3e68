/* explain_reproduce_steps.c: what a reproducer's data file holds: named arrays and values, orders of addition
 * as steps. Owns their memory. */
#include "cli/explain_reproduce.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/lab/explain_weigh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STACK = 4000 };

void *ds_shown_room(struct ds_shown *s, size_t n, size_t size, struct ds_error *err)
{
    void *p =
        s->n_owned < DS_SHOWN_NAMES ? ds_calloc(n ? n : 1, size, "the reproducer", err) : NULL;
    if (p)
        s->owned[s->n_owned++] = p;
    return p;
}

static const char *name_of(struct ds_shown *s, const char *what, int side)
{
    char *to = s->names[s->n_names++];
    if (side < 0)
        snprintf(to, sizeof s->names[0], "%s", what);
    else
        snprintf(to, sizeof s->names[0], "%s%s%c", what, *what ? "_" : "", "abt"[side]);
    return to;
}

void ds_shown_array(struct ds_shown *s, const char *name, int side, int type, size_t rows,
                    size_t cols, const void *data)
{
    s->array[s->n_arrays++] = (struct ds_named_array){
        .name = name_of(s, name, side), .type = type, .rows = rows, .cols = cols, .data = data};
}

void ds_shown_text(struct ds_shown *s, const char *name, int side, const char *text)
{
    s->value[s->n_values++] = (struct ds_named_value){.name = name_of(s, name, side), .text = text};
}

void ds_shown_number(struct ds_shown *s, const char *name, int side, double number)
{
    s->value[s->n_values++] =
        (struct ds_named_value){.name = name_of(s, name, side), .number = number};
}

float ds_shown_stored(const struct ds_shown *s, float v)
{
    const int dtype = s->x->c->e.side[DS_SIDE_A].dtype; /* the one that is written */
    return dtype == DS_BF16  ? ds_bf16_value(ds_bf16_round(v))
           : dtype == DS_F16 ? ds_f16_value(ds_f16_round(v))
                             : v;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int grow_ints(int32_t **array, size_t n, struct ds_error *err)
{
    int32_t *p = realloc(*array, n * sizeof *p);
    *array = p ? p : *array;
    return p ? 0 : ds_fail(err, "out of memory for the reproducer");
}

static int grow_bytes(uint8_t **array, size_t n, struct ds_error *err)
{
    uint8_t *p = realloc(*array, n);
    *array = p ? p : *array;
    return p ? 0 : ds_fail(err, "out of memory for the reproducer");
}

static int add_steps(struct ds_shown_steps *t, const struct ds_replay *r, struct ds_error *err)
{
    const size_t n = t->n + (size_t)r->n, trees = t->n_trees + 1;
    if (r->compensated)
        return ds_fail(err, "a compensated sum is not written as a reproducer");
    if (r->stack > MOST_STACK || n > INT32_MAX)
        return ds_fail(err, "the order of addition is too deep for a reproducer");
    if (grow_ints(&t->term, n, err) != 0 || grow_bytes(&t->kind, n, err) != 0 ||
        grow_bytes(&t->flags, n, err) != 0 || grow_ints(&t->first, trees + 1, err) != 0 ||
        grow_ints(&t->zero_start, trees, err) != 0 || grow_ints(&t->inputs, trees, err) != 0)
        return -1;
    for (int32_t i = 0; i < r->n; i++, t->n++) {
        t->kind[t->n] = r->step[i].kind;
        t->flags[t->n] = r->step[i].flags;
        t->term[t->n] = r->step[i].term;
    }
    t->first[0] = 0;
    t->zero_start[t->n_trees] = r->zero_start;
    t->inputs[t->n_trees] = r->inputs;
    t->first[++t->n_trees] = (int32_t)t->n;
    return 0;
}

int ds_shown_tree(struct ds_shown *s, int side, const struct ds_explain_order *o, int32_t tree,
                  int fused, int32_t *number, struct ds_error *err)
{
    struct ds_shown_steps *t = &s->steps[side];
    struct ds_replay r;
    if (!t->number &&
        !(t->number = ds_calloc(2 * o->n_trees, sizeof *t->number, "the reproducer", err)))
        return -1;
    int32_t *have = &t->number[2 * tree + fused];
    if (!*have) {
        int rc = ds_weigh_compile(&o->trees[tree].tree, fused, &r, err);
        if (rc == 0) {
            rc = add_steps(t, &r, err);
            ds_replay_free(&r);
        }
        if (rc != 0)
            return -1;
        *have = (int32_t)t->n_trees;
    }
    *number = *have - 1;
    return 0;
}

int ds_shown_add(const struct ds_shown *s, int side, int32_t tree, int64_t terms, const float *x,
                 const float *w, float *sum, struct ds_error *err)
{
    const struct ds_shown_steps *t = &s->steps[side];
    const int32_t first = t->first[tree];
    struct ds_replay r = {.n = t->first[tree + 1] - first,
                          .stack = MOST_STACK,
                          .zero_start = t->zero_start[tree],
                          .inputs = t->inputs[tree],
                          .terms = terms};
    float *room = ds_alloc_aligned(ds_replay_room(&r), sizeof *room, "the reproducer", err);
    r.step = ds_calloc((size_t)r.n, sizeof *r.step, "the reproducer", err);
    const int rc = room && r.step ? 0 : -1;
    for (int32_t k = 0; k < r.n && rc == 0; k++)
        r.step[k] = (struct ds_replay_step){
            .kind = t->kind[first + k], .flags = t->flags[first + k], .term = t->term[first + k]};
    if (rc == 0)
        *sum = ds_replay_one(&r, x, w, room);
    free(r.step);
    free(room);
    return rc;
}

void ds_shown_add_steps(struct ds_shown *s)
{
    for (int i = 0; i < DS_SIDES; i++) {
        const struct ds_shown_steps *t = &s->steps[i];
        const size_t ends = t->n_trees ? t->n_trees + 1 : 0;
        ds_shown_array(s, "first_step", i, DS_ARRAY_I32, ends, 0, t->first);
        ds_shown_array(s, "zero_start", i, DS_ARRAY_I32, t->n_trees, 0, t->zero_start);
        ds_shown_array(s, "inputs", i, DS_ARRAY_I32, t->n_trees, 0, t->inputs);
        ds_shown_array(s, "step_kind", i, DS_ARRAY_U8, t->n, 0, t->kind);
        ds_shown_array(s, "step_flags", i, DS_ARRAY_U8, t->n, 0, t->flags);
        ds_shown_array(s, "step_term", i, DS_ARRAY_I32, t->n, 0, t->term);
    }
}

void ds_shown_free(struct ds_shown *s)
{
    for (int i = 0; i < DS_SIDES; i++) {
        struct ds_shown_steps *t = &s->steps[i];
        void *all[] = {t->first, t->zero_start, t->inputs, t->term, t->kind, t->flags, t->number};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            free(all[k]);
    }
    while (s->n_owned)
        free(s->owned[--s->n_owned]);
}
