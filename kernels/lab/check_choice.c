/* check_choice.c: what describe says of the launches that check makes: asked for every setting before
 * any of them is run, so that each choice is run at its borders; and asked again where bits differ.
 * Launches nothing. */
#include "kernels/lab/check_plan.h"

#include "base/buf.h"
#include "base/mem.h"
#include "kernels/lab/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- choices ---------------------------------------------------------------------------------- */

int ds_same_choice(const struct ds_launch_info *a, const struct ds_launch_info *b)
{
    return a->tile_rows == b->tile_rows && a->tile_cols == b->tile_cols && a->tile_k == b->tile_k &&
           a->split == b->split && a->threads == b->threads &&
           strncmp(a->algo, b->algo, sizeof a->algo) == 0;
}

/* A name alone, such as that of a library's core, chooses nothing. */
static int says_something(const struct ds_launch_info *i)
{
    return i->tile_rows || i->tile_cols || i->tile_k || i->split;
}

static uint64_t hash_of(const struct ds_launch_info *i)
{
    const int32_t number[] = {i->tile_rows, i->tile_cols, i->tile_k, i->split, i->threads};
    uint64_t h = 1;
    for (size_t n = 0; n < sizeof number / sizeof number[0]; n++)
        h = ds_content_hash(h, (uint64_t)(uint32_t)number[n]);
    for (size_t n = 0; n < sizeof i->algo && i->algo[n]; n++)
        h = ds_content_hash(h, (unsigned char)i->algo[n]);
    return h ? h : 1;
}

/* ---- borders ---------------------------------------------------------------------------------- */

/* Choices seen so far; when it is full the rest passes for seen. */
struct seen {
    uint64_t place[1 << 10];
    size_t n;
};

static int is_new(struct seen *s, const struct ds_launch_info *info)
{
    const size_t places = sizeof s->place / sizeof s->place[0];
    const uint64_t h = hash_of(info);
    size_t at = h % places;
    while (s->place[at] && s->place[at] != h)
        at = (at + 1) % places;
    if (s->place[at] || s->n == places / 2)
        return 0;
    s->place[at] = h;
    s->n++;
    return 1;
}

int ds_borders_find(struct ds_check *c, const struct ds_choice_of *of, ds_choice_fn ask, int32_t to,
                    struct ds_borders *out)
{
    struct ds_launch_info last, info;
    struct seen *seen;
    int rc = 1;
    *out = (struct ds_borders){0};
    if (!ds_subject_kernel(c->subject)->describe)
        return 0;
    if (!(seen = ds_calloc(1, sizeof *seen, "launch choices", c->err)))
        return -1;
    for (int32_t at = 1; at <= to && rc == 1; at++, last = info) {
        if ((rc = ask(c, of, at, &info)) != 1)
            break;
        const int fresh = is_new(seen, &info);
        if (at == 1 || ds_same_choice(&last, &info))
            continue;
        if (ds_grow(&out->border, &out->cap, out->n + 1, sizeof *out->border, "launch choices",
                    c->err) != 0)
            rc = -1;
        else
            out->border[out->n++] = (struct ds_border){at, fresh};
    }
    free(seen);
    return rc < 0 ? -1 : 0;
}

void ds_borders_free(struct ds_borders *b)
{
    free(b->border);
    *b = (struct ds_borders){0};
}

/* Those at which a choice is met for the first time, then the others; of too many, some all along. */
size_t ds_borders_pick(const struct ds_borders *b, int32_t above, int32_t up_to, size_t most,
                       int32_t *at)
{
    size_t n = 0, total[2] = {0, 0};
    for (size_t i = 0; i < b->n; i++)
        if (b->border[i].at > above && b->border[i].at <= up_to)
            total[!b->border[i].fresh]++;
    for (int old = 0; old < 2; old++) {
        const size_t room = most - n, take = total[old] < room ? total[old] : room;
        size_t seen = 0, taken = 0;
        for (size_t i = 0; i < b->n && taken < take; i++) {
            const struct ds_border *x = &b->border[i];
            if (x->at <= above || x->at > up_to || x->fresh == old)
                continue;
            /* The seen-th of total[old]: the next of `take` that are spread over them. */
            if (seen++ * take / total[old] < taken)
                continue;
            at[n++] = x->at;
            taken++;
        }
    }
    return n;
}

/* ---- of a pair whose bits differ ---------------------------------------------------------------- */

static void print(struct ds_buf *b, const struct ds_launch_info *i)
{
    const char *comma = "";
    if (i->tile_rows || i->tile_cols || i->tile_k) {
        ds_buf_puts(b, "tile");
        if (i->tile_rows)
            ds_buf_printf(b, " rows %d", i->tile_rows);
        if (i->tile_cols)
            ds_buf_printf(b, " columns %d", i->tile_cols);
        if (i->tile_k)
            ds_buf_printf(b, " k %d", i->tile_k);
        comma = ", ";
    }
    if (i->split)
        ds_buf_printf(b, "%s%d part%s", comma, i->split, i->split == 1 ? "" : "s"), comma = ", ";
    if (i->threads)
        ds_buf_printf(b, "%s%d thread%s", comma, i->threads, i->threads == 1 ? "" : "s"),
            comma = ", ";
    if (i->algo[0]) {
        ds_buf_puts(b, comma);
        ds_buf_escape(b, i->algo, strnlen(i->algo, sizeof i->algo));
    }
}

static void put(char *to, size_t size, const struct ds_launch_info *i)
{
    struct ds_buf b = {0};
    print(&b, i);
    snprintf(to, size, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
}

/* Whether the two launches of a pair differ in what a choice is made from; else one choice is no news. */
static int may_change(const struct ds_check *c)
{
    const int property = (int)(c->property - c->out->property);
    return property == DS_PROPERTY_BATCH || property == DS_PROPERTY_THREADS ||
           property == DS_PROPERTY_CHUNK ||
           (property == DS_PROPERTY_NEIGHBOURS &&
            ds_subject_kernel(c->subject)->op == DS_OP_ATTENTION);
}

void ds_check_choices(struct ds_check *c, const struct ds_launch_info *ref,
                      const struct ds_launch_info *got)
{
    struct ds_property_result *p = c->property;
    if (!ds_subject_kernel(c->subject)->describe || !says_something(ref) || !says_something(got))
        return;
    p->same_choice = ds_same_choice(ref, got);
    if (p->same_choice && !may_change(c))
        return;
    put(p->choice[0], sizeof p->choice[0], ref);
    put(p->choice[1], sizeof p->choice[1], got);
}
