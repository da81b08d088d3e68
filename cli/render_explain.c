/* render_explain.c: see render_explain.h. Judges nothing. */
#include "cli/render_explain.h"

#include "cli/render_matrix.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void head(const struct ds_explanation *x, const char *name, struct ds_buf *out)
{
    const struct ds_render r = {.o = x->o};
    ds_render_head(&r, name, out);
}

static void share(uint64_t part, uint64_t whole, char *text, size_t size)
{
    if (whole && part == whole)
        snprintf(text, size, "all");
    else if (part == 0)
        snprintf(text, size, "none");
    else
        snprintf(text, size, "%" PRIu64, part);
}

static void add_side(const struct ds_explanation *x, int side, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    const struct ds_case_side *s = &c->side[side];
    const struct ds_explain_side *e = &c->e.side[side];
    head(x, side == DS_SIDE_A ? "A" : "B", out);
    ds_render_name(out, c->f.factor);
    ds_buf_puts(out, " ");
    ds_render_name(out, side == DS_SIDE_A ? c->f.ref_value : c->f.value);
    ds_buf_puts(out, ": ");
    ds_render_kernel(out, c->f.op, s->variant);
    if (strcmp(s->variant, "openblas") == 0 && e->core[0]) {
        ds_buf_puts(out, ", core ");
        ds_render_name(out, e->core);
    }
    ds_buf_printf(out, ", %" PRId64, s->rows_least);
    if (s->rows_most != s->rows_least)
        ds_buf_printf(out, " to %" PRId64, s->rows_most);
    ds_buf_printf(out, " row%s in the call, %d thread%s\n", s->rows_most == 1 ? "" : "s",
                  e->threads, e->threads == 1 ? "" : "s");
    if (s->missing[0]) {
        ds_buf_printf(out, "%14snot replayed: ", "");
        ds_render_name(out, s->missing);
        ds_buf_puts(out, "\n");
    }
}

static void add_values(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    uint64_t elements = 0, drifting = 0;
    if (x->n_replays && x->replay[0].run[DS_SIDE_A]) {
        elements = x->replay[0].match[DS_SIDE_A].elements;
        drifting = x->replay[0].match[DS_SIDE_A].drifting;
    }
    head(x, "values", out);
    ds_buf_printf(out, "%zu of %zu drifting rows are dumped", c->e.n_rows, c->drifting_rows);
    if (elements)
        ds_buf_printf(out, ": %" PRIu64 " elements, %" PRIu64 " differ", elements, drifting);
    ds_buf_puts(out, c->inputs_equal ? "; their inputs are equal\n" : "; their inputs differ\n");
}

static void add_replay(const struct ds_explanation *x, struct ds_buf *out)
{
    head(x, "replay", out);
    ds_buf_puts(out, "elements that come out bit for bit, of those that differ\n");
    ds_buf_printf(out, "%14s%-18s %-24s %s\n", "", "", "in A's call", "in B's call");
    for (size_t i = 0; i < x->n_replays; i++) {
        const struct ds_case_replay *r = &x->replay[i];
        ds_buf_printf(out, "%14s%-18s", "", r->kernel->name);
        for (int s = 0; s < DS_SIDES; s++) {
            char a[24], b[24], text[64];
            const struct ds_explain_match *m = &r->match[s];
            share(m->drift_same[DS_SIDE_A], m->drifting, a, sizeof a);
            share(m->drift_same[DS_SIDE_B], m->drifting, b, sizeof b);
            snprintf(text, sizeof text, "A %s, B %s", a, b);
            ds_buf_printf(out, s == 0 ? " %-24s" : " %s", r->run[s] ? text : "not run");
        }
        ds_buf_puts(out, "\n");
        for (int s = 0; s < DS_SIDES; s++)
            if (!r->run[s] && r->why[s][0]) {
                ds_buf_printf(out, "%16s", "");
                ds_render_name(out, r->why[s]);
                ds_buf_puts(out, "\n");
                break;
            }
    }
}

/* The side's own variant, launched as that side's calls were. */
static const struct ds_case_replay *own_replay(const struct ds_explanation *x, int side)
{
    for (size_t i = 0; i < x->n_replays; i++)
        if (x->replay[i].kernel == x->c->e.side[side].kernel && x->replay[i].run[side])
            return &x->replay[i];
    return NULL;
}

static int side_reproduced(const struct ds_explanation *x, int side)
{
    const struct ds_case_replay *r = own_replay(x, side);
    return r && r->match[side].same[side] == r->match[side].elements;
}

static void last_line(const struct ds_explanation *x, struct ds_buf *out)
{
    const struct ds_case *c = x->c;
    ds_buf_puts(out, "explain: ");
    ds_render_place(out, c->f.layer, c->f.stage, c->f.part);
    const int a = side_reproduced(x, DS_SIDE_A), b = side_reproduced(x, DS_SIDE_B);
    ds_buf_printf(out, ": %s\n",
                  a && b ? "a replay of each side's own kernel gives its bits"
                  : a    ? "a replay gives A's bits, not B's"
                  : b    ? "a replay gives B's bits, not A's"
                         : "a replay gives neither side's bits");
}

void ds_render_explain_text(const struct ds_explanation *x, struct ds_buf *out)
{
    head(x, "place", out);
    ds_render_place(out, x->c->f.layer, x->c->f.stage, x->c->f.part);
    ds_buf_printf(out, ": %s\n", ds_label_name(x->c->f.label));
    add_side(x, DS_SIDE_A, out);
    add_side(x, DS_SIDE_B, out);
    add_values(x, out);
    add_replay(x, out);
    last_line(x, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *match_json(const struct ds_explain_match *m)
{
    return json_pack("{s:I,s:I,s:I,s:I}", "a", (json_int_t)m->same[DS_SIDE_A], "b",
                     (json_int_t)m->same[DS_SIDE_B], "drifting_a",
                     (json_int_t)m->drift_same[DS_SIDE_A], "drifting_b",
                     (json_int_t)m->drift_same[DS_SIDE_B]);
}

static json_t *replay_json(const struct ds_case_replay *r)
{
    json_t *j = json_pack("{s:s}", "variant", r->kernel->name);
    for (int s = 0; s < DS_SIDES; s++)
        json_object_set_new(j, s ? "in_b" : "in_a",
                            r->run[s] ? match_json(&r->match[s]) : json_null());
    return j;
}

json_t *ds_render_explain_json(const struct ds_explanation *x)
{
    json_t *list = json_array();
    for (size_t i = 0; i < x->n_replays; i++)
        json_array_append_new(list, replay_json(&x->replay[i]));
    return json_pack("{s:s,s:i,s:s,s:s,s:b,s:b,s:o}", "schema", "driftscope.explain/1", "layer",
                     (int)x->c->f.layer, "stage", x->c->f.stage, "op", x->c->f.op, "reproduced_a",
                     side_reproduced(x, DS_SIDE_A), "reproduced_b", side_reproduced(x, DS_SIDE_B),
                     "replays", list);
}
