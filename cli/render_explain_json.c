/* render_explain_json.c: what was found out about one place, as JSON.md says. Judges nothing. */
#include "cli/render_explain.h"

#include "cli/json.h"
#include "kernels/lab/explain_each.h"
#include "kernels/registry.h"

static json_t *(*const text)(const char *) = ds_json_text;
static json_t *(*const real)(double) = ds_json_real;
static json_t *(*const whole)(uint64_t) = ds_json_whole;

static json_t *match_json(const struct ds_explain_match *m)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "elements", whole(m->elements), "drifting",
                     whole(m->drifting), "a", whole(m->same[DS_SIDE_A]), "b",
                     whole(m->same[DS_SIDE_B]), "drifting_a", whole(m->drift_same[DS_SIDE_A]),
                     "drifting_b", whole(m->drift_same[DS_SIDE_B]));
}

static json_t *replay_json(const struct ds_case_replay *r)
{
    json_t *j = json_pack("{s:s, s:s}", "variant", r->kernel->name, "device",
                          ds_device_name(r->kernel->device));
    for (int s = 0; s < DS_SIDES; s++)
        json_object_set_new(j, s ? "in_b" : "in_a",
                            r->run[s] ? match_json(&r->match[s]) : json_null());
    return j;
}

static json_t *tree_json(const struct ds_explain_tree *t)
{
    return json_pack("{s:s,s:o,s:s,s:i,s:o}", "sum", t->sum, "digest",
                     ds_json_digest(t->tree.digest), "words", t->words, "depth", (int)t->tree.depth,
                     "elements", whole(t->elements));
}

static json_t *order_json(const struct ds_explain_order *o)
{
    json_t *trees = json_array();
    for (size_t i = 0; i < o->n_trees; i++)
        json_array_append_new(trees, tree_json(&o->trees[i]));
    return json_pack("{s:o,s:b,s:o,s:b,s:o,s:o}", "why_not", o->why[0] ? text(o->why) : json_null(),
                     "failed", o->broke_off, "not_replayed",
                     o->not_replayed[0] ? text(o->not_replayed) : json_null(), "fixed", o->fixed,
                     "trees", trees, "gives", o->replayed ? match_json(&o->match) : json_null());
}

static json_t *sampler_json(const struct ds_explanation *x, int side)
{
    char words[160];
    if (!x->drawn)
        return json_null();
    ds_case_sampler_text(&x->c->e.side[side].sampler, words, sizeof words);
    return text(words);
}

/* Of ops that add nothing up. */
static json_t *formula_json(const struct ds_explanation *x, int side)
{
    char words[128];
    if (!ds_explain_stands_alone(x->c->e.op) || !x->order[side].replayed)
        return json_null();
    ds_each_text(x->c->e.op, x->order[side].form, words, sizeof words);
    return text(words);
}

static json_t *copy_json(const struct ds_explain_copy *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "elements", whole(c->elements), "others",
                     whole(c->others), "rows", whole(c->rows), "first",
                     c->others ? json_integer(c->first) : json_null(), "last",
                     c->others ? json_integer(c->last) : json_null(), "zeros", whole(c->zeros));
}

/* Which row of the call does it. */
static json_t *others_json(const struct ds_explanation *x, int side)
{
    const struct ds_explain_others *o = &x->others[side];
    if (!o->moved || o->guilty < 0)
        return json_null();
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "row", json_integer(x->c->e.rows[o->target].at[side].row), "by",
        json_integer(o->guilty), "needed", json_integer(o->needed), "alone", json_integer(o->alone),
        "who", x->who[side][0] ? text(x->who[side]) : json_null());
}

static json_t *pages_json(const struct ds_explain_pages *p)
{
    if (!p->moved)
        return json_null();
    return json_pack("{s:o,s:o,s:o,s:o}", "elements", whole(p->moved), "own", whole(p->own), "from",
                     json_integer(p->first), "reversed", json_boolean(p->turned));
}

static json_t *side_json(const struct ds_explanation *x, int side)
{
    const struct ds_case *c = x->c;
    const struct ds_case_side *s = &c->side[side];
    json_t *j = json_object();
    json_object_set_new(j, "arm", json_integer(s->arm));
    json_object_set_new(j, "value", text(side == DS_SIDE_A ? c->f.ref_value : c->f.value));
    json_object_set_new(j, "variant", text(s->variant));
    json_object_set_new(j, "blas_core", text(c->e.side[side].core));
    json_object_set_new(j, "rows_in_call", json_integer(s->rows_least));
    json_object_set_new(j, "threads", json_integer(c->e.side[side].threads));
    json_object_set_new(j, "moved_by_other_rows", whole(x->others[side].moved));
    json_object_set_new(j, "moved_by", others_json(x, side));
    json_object_set_new(j, "moved_by_pages", pages_json(&x->pages[side]));
    json_object_set_new(j, "missing", s->missing[0] ? text(s->missing) : json_null());
    json_object_set_new(j, "order", order_json(&x->order[side]));
    json_object_set_new(j, "formula", formula_json(x, side));
    json_object_set_new(j, "sampler", sampler_json(x, side));
    if (!x->judged)
        return j;
    json_object_set_new(j, "mean_ulp", real(x->accuracy.mean_ulp[side]));
    json_object_set_new(j, "max_ulp", real(x->accuracy.max_ulp[side]));
    json_object_set_new(j, "nearer", whole(x->accuracy.nearer[side]));
    json_object_set_new(j, "error_rms", real(x->noise.error[side]));
    json_object_set_new(j, "gamma_share", real(x->noise.gamma[side]));
    if (ds_explain_copies(c->e.op))
        json_object_set_new(j, "copy", copy_json(&x->noise.copy[side]));
    return j;
}

static json_t *range_json(const struct ds_explain_range *r)
{
    return json_pack("{s:o,s:o,s:o}", "least", real(r->least), "median", real(r->median), "most",
                     real(r->most));
}

static json_t *noise_json(const struct ds_explain_noise *n)
{
    static const char *const which[] = {"x", "w", "both"};
    json_t *formats = json_array();
    for (size_t i = 0; i < n->n_rounded; i++) {
        const struct ds_explain_rounded *r = &n->rounded[i];
        json_array_append_new(
            formats, json_pack("{s:s,s:s,s:o,s:o,s:o}", "format", ds_explain_format_name(r->format),
                               "inputs", which[r->which - 1], "shift", real(r->shift), "rest_a",
                               real(r->rest[DS_SIDE_A]), "rest_b", real(r->rest[DS_SIDE_B])));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "terms", whole((uint64_t)n->terms),
                     "difference_rms", real(n->difference), "size_rms", real(n->size),
                     "order_difference", range_json(&n->order_difference), "order_error",
                     range_json(&n->order_error), "formats", formats);
}

static json_t *repeats_json(const struct ds_explanation *x)
{
    const struct ds_case_repeats *p = &x->repeats;
    json_t *variants = json_array(), *along[DS_SIDES];
    if (!p->n) {
        json_decref(variants);
        return json_null();
    }
    for (size_t i = 0; i < x->n_replays; i++)
        json_array_append_new(variants, json_pack("{s:s,s:o}", "variant", x->replay[i].kernel->name,
                                                  "digests", whole(x->replay[i].given)));
    for (int s = 0; s < DS_SIDES; s++)
        along[s] = x->order[s].replayed ? whole(p->along[s]) : json_null();
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "trials", whole(p->trials), "digests",
                     whole(p->n), "variants", variants, "launched",
                     x->launches ? whole(p->launched) : json_null(), "along_a", along[DS_SIDE_A],
                     "along_b", along[DS_SIDE_B]);
}

static json_t *numbers_json(const struct ds_explanation *x)
{
    const struct ds_case_numbers *n = &x->c->numbers;
    if (!n->rows)
        return json_null();
    return json_pack("{s:o,s:o,s:o,s:i,s:i,s:i,s:i,s:o}", "rows", whole(n->rows), "right_a",
                     n->known ? whole(n->right[DS_SIDE_A]) : json_null(), "right_b",
                     n->known ? whole(n->right[DS_SIDE_B]) : json_null(), "request",
                     n->first.request, "position", n->first.position, "a", n->number[DS_SIDE_A],
                     "b", n->number[DS_SIDE_B], "right",
                     n->known ? json_integer(n->right_number) : json_null());
}

static json_t *choice_json(const struct ds_explanation *x)
{
    const struct ds_explain_choice *c = &x->choice;
    const int64_t n = ds_explain_width(x->c->e.op, &x->c->e.shared);
    json_t *rule[DS_SIDES], *same;
    if (!x->chosen)
        return json_null();
    same = json_object();
    for (int s = 0; s < DS_SIDES; s++) {
        char words[96];
        ds_explain_rule_text(c->rule[s], n, words, sizeof words);
        rule[s] = c->rule[s] < 0 ? json_null() : text(words);
    }
    json_object_set_new(same, "a", whole(c->given[DS_SIDE_A][0]));
    json_object_set_new(same, "b", whole(c->given[DS_SIDE_B][0]));
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:i,s:i,s:o,s:o}", "rows", whole(c->rows), "rule_a",
                     rule[DS_SIDE_A], "rule_b", rule[DS_SIDE_B], "largest", same, "differing",
                     whole(c->differing), "instead_of", c->a, "chosen", c->b, "margin",
                     real(c->margin), "tied", whole(c->tied));
}

static json_t *said_json(const struct ds_explanation *x)
{
    if (!x->said.found)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "kind", ds_kind_name(x->said.kind), "evidence",
                     text(x->said.why), "structure",
                     x->said.structure[0] ? text(x->said.structure) : json_null(), "overruled",
                     x->overruled[0] ? text(x->overruled) : json_null(), "sharpened",
                     x->sharpened[0] ? text(x->sharpened) : json_null(), "unconfirmed",
                     x->unconfirmed[0] ? text(x->unconfirmed) : json_null());
}

json_t *ds_render_explain_json(const struct ds_explanation *x)
{
    const struct ds_finding *f = &x->c->f;
    json_t *list = json_array(), *j = json_object();
    for (size_t i = 0; i < x->n_replays; i++)
        json_array_append_new(list, replay_json(&x->replay[i]));
    json_object_set_new(j, "schema", json_string("driftscope.explain/1"));
    json_object_set_new(j, "layer", json_integer(f->layer));
    json_object_set_new(j, "stage", text(f->stage));
    json_object_set_new(j, "part", text(f->part));
    json_object_set_new(j, "op", text(f->op));
    json_object_set_new(j, "factor", text(f->factor));
    json_object_set_new(j, "label", json_string(ds_label_name(f->label)));
    json_object_set_new(j, "healed", json_boolean(x->c->healed));
    json_object_set_new(j, "rows", whole(ds_explanation_rows(x->c)));
    json_object_set_new(j, "rows_drifting", whole(x->c->drifting_rows));
    json_object_set_new(j, "inputs_equal", json_boolean(x->c->inputs_equal));
    json_object_set_new(j, "reproduced_a", json_boolean(ds_explanation_reproduced(x, DS_SIDE_A)));
    json_object_set_new(j, "reproduced_b", json_boolean(ds_explanation_reproduced(x, DS_SIDE_B)));
    json_object_set_new(j, "only_in_situ", json_boolean(ds_explanation_in_situ(x)));
    json_object_set_new(j, "not_replayed",
                        x->c->not_replayed[0] ? text(x->c->not_replayed) : json_null());
    json_object_set_new(j, "numbers", numbers_json(x));
    json_object_set_new(j, "repeats", repeats_json(x));
    json_object_set_new(j, "replays", list);
    json_object_set_new(j, "a", side_json(x, DS_SIDE_A));
    json_object_set_new(j, "b", side_json(x, DS_SIDE_B));
    json_object_set_new(j, "noise", x->judged ? noise_json(&x->noise) : json_null());
    json_object_set_new(j, "choice", choice_json(x));
    json_object_set_new(j, "kind", json_string(ds_explain_kind_name(x->kind)));
    json_object_set_new(j, "why", text(x->why));
    json_object_set_new(j, "verdict", said_json(x));
    return j;
}
