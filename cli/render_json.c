/* render_json.c: the verdict as one JSON object (DESIGN section 7: its names are fixed). Must not
 * judge anything. */
#include "cli/render_json.h"

#include "dumps/validity.h"

#include <string.h>

static json_t *(*const text)(const char *) = ds_json_text;
static json_t *(*const real)(double) = ds_json_real;
static json_t *(*const whole)(uint64_t) = ds_json_whole;
static json_t *(*const digest)(uint64_t) = ds_json_digest;

static json_t *count_json(const struct ds_trial *t, int32_t n)
{
    return t && n >= 0 ? json_integer(n) : json_null();
}

static json_t *launch_json(const struct ds_launch *l, const char *core, const struct ds_trial *t)
{
    if (!l)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "variant", text(l->variant));
    json_object_set_new(j, "tile_rows", json_integer(l->tile_rows));
    json_object_set_new(j, "tile_cols", json_integer(l->tile_cols));
    json_object_set_new(j, "tile_k", json_integer(l->tile_k));
    json_object_set_new(j, "split", json_integer(l->split));
    json_object_set_new(j, "threads", json_integer(l->threads));
    json_object_set_new(j, "algo", text(l->algo));
    json_object_set_new(j, "blas_core", text(core ? core : ""));
    json_object_set_new(j, "threads_asked", count_json(t, t ? t->threads_asked : -1));
    json_object_set_new(j, "threads_max", count_json(t, t ? t->threads_max : -1));
    json_object_set_new(j, "threads_seen", count_json(t, t ? t->threads_seen : -1));
    return j;
}

static json_t *row_key_json(const struct ds_row_key *key)
{
    struct ds_buf b = {0};
    ds_report_row_key(key, &b);
    return ds_json_buf(&b);
}

/* Where it differs, what it is and why; null where the values that tell it are not in the record. */
void ds_json_evidence(json_t *j, const struct ds_finding *f)
{
    json_object_set_new(j, "first_row", f->ends ? row_key_json(&f->first_row) : json_null());
    json_object_set_new(j, "last_row", f->ends ? row_key_json(&f->last_row) : json_null());
    json_object_set_new(j, "first_element",
                        f->element_ends ? json_integer(f->first_element) : json_null());
    json_object_set_new(j, "last_element",
                        f->element_ends ? json_integer(f->last_element) : json_null());
    json_object_set_new(j, "p99_ulp", f->value_rows ? whole(f->p99_ulp) : json_null());
    json_object_set_new(j, "heads", f->heads[0] ? text(f->heads) : json_null());
    json_object_set_new(j, "channels", f->channels[0] ? text(f->channels) : json_null());
    json_object_set_new(j, "at_positions", text(f->at_positions));
    json_object_set_new(j, "structure", f->structure[0] ? text(f->structure) : json_null());
    json_object_set_new(j, "ratio", f->ratio != 0 ? real(f->ratio) : json_null());
    json_t *few = f->concentrated[0] ? json_object() : json_null();
    if (f->concentrated[0]) {
        json_object_set_new(few, "elements", text(f->concentrated));
        json_object_set_new(few, "count", json_integer(f->concentrated_in));
        json_object_set_new(few, "of", json_integer(f->concentrated_of));
        json_object_set_new(few, "share", real(f->concentrated_share));
    }
    json_object_set_new(j, "concentrated", few);
    json_object_set_new(j, "beyond_rounding",
                        f->value_rows || f->mask_rows ? json_boolean(f->beyond_rounding)
                                                      : json_null());
    json_object_set_new(j, "value_rows", json_integer(f->value_rows));
    json_object_set_new(j, "profile_rows",
                        json_integer(f->mask_rows ? f->mask_rows : f->value_rows));
    json_object_set_new(j, "values_equal",
                        json_boolean(f->sized && (f->flags & DS_DRIFT_VALUES_EQUAL)));
    json_object_set_new(j, "kind", text(ds_kind_name(f->kind)));
    json_object_set_new(j, "evidence", text(f->why));
}

json_t *ds_json_finding(const struct ds_report *r, const struct ds_finding *f)
{
    if (!f->found)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "layer", json_integer(f->layer));
    json_object_set_new(j, "stage", text(f->stage));
    json_object_set_new(j, "part", text(f->part));
    json_object_set_new(j, "site", json_integer(f->site));
    json_object_set_new(j, "op", text(f->op));
    json_object_set_new(j, "variant", text(f->variant));
    json_object_set_new(j, "reference_variant", text(f->ref_variant));
    json_object_set_new(j, "factor", text(f->factor));
    json_object_set_new(j, "value", text(f->value));
    json_object_set_new(j, "reference_value", text(f->ref_value));
    json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, f->arm)));
    json_object_set_new(j, "reference_arm", json_integer(ds_report_own_arm(r, f->ref_arm)));
    json_object_set_new(j, "trial", whole(f->trial));
    json_object_set_new(j, "label", text(ds_label_name(f->label)));
    json_object_set_new(j, "inputs_within", json_boolean(f->inputs_within));
    json_object_set_new(j, "sites_between", json_integer(f->between));
    json_object_set_new(j, "phase", text(ds_phase_name(f->phase)));
    json_object_set_new(j, "rows_in_call", json_integer(f->rows_in_call));
    json_object_set_new(j, "reference_rows_in_call", json_integer(f->ref_rows_in_call));
    json_object_set_new(j, "step", json_integer(f->step));
    json_object_set_new(j, "request", json_integer(f->request));
    json_object_set_new(j, "position", json_integer(f->position));
    json_object_set_new(j, "occurrence", json_integer(f->occurrence));
    json_object_set_new(j, "rows", json_integer(f->rows));
    json_object_set_new(j, "positions", json_integer(f->positions));
    json_object_set_new(j, "sized_rows", f->sized ? json_integer(f->sized_rows) : json_null());
    json_object_set_new(j, "elements", f->sized ? whole(f->elements) : json_null());
    json_object_set_new(j, "max_ulp", f->sized ? whole(f->max_ulp) : json_null());
    json_object_set_new(j, "max_abs", f->sized ? real(f->max_abs) : json_null());
    json_object_set_new(j, "rms", f->sized ? real(f->rms) : json_null());
    json_object_set_new(j, "relative_rms", f->sized ? real(f->relative_rms) : json_null());
    ds_json_evidence(j, f);
    json_object_set_new(j, "digest", digest(f->digest));
    json_object_set_new(j, "reference_digest", digest(f->ref_digest));
    json_object_set_new(j, "launch", launch_json(f->launch, f->blas_core, f->info));
    json_object_set_new(j, "reference_launch",
                        launch_json(f->ref_launch, f->ref_blas_core, f->ref_info));
    return j;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Where, and which kernel. */
static json_t *site_json(const struct ds_finding *f)
{
    json_t *j = json_object();
    json_object_set_new(j, "layer", json_integer(f->layer));
    json_object_set_new(j, "stage", text(f->stage));
    json_object_set_new(j, "part", text(f->part));
    json_object_set_new(j, "op", text(f->op));
    json_object_set_new(j, "variant", text(f->variant));
    return j;
}

static json_t *unstable_json(const struct ds_report *r)
{
    const struct ds_unstable *u = &r->v->unstable;
    if (r->v->stable)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "arms", json_integer(u->arms));
    json_object_set_new(j, "of_arms", json_integer(u->of_arms));
    json_object_set_new(j, "trials", json_integer(u->trials));
    json_object_set_new(j, "disagree", json_integer(u->disagree));
    json_object_set_new(j, "rate", real(u->trials ? (double)u->disagree / u->trials : 0));
    json_t *interval = json_array();
    json_array_append_new(interval, real(u->low));
    json_array_append_new(interval, real(u->high));
    json_object_set_new(j, "interval95", interval);
    json_object_set_new(j, "digests", whole(u->rows));
    json_object_set_new(j, "of_digests", whole(u->of_rows));
    json_object_set_new(j, "first", ds_json_finding(r, &u->first));
    json_t *apart = u->apart_trials ? json_object() : json_null();
    if (u->apart_trials) {
        json_object_set_new(apart, "trials", json_integer(u->apart_trials));
        json_object_set_new(apart, "arm", json_integer(u->apart_ref));
        json_object_set_new(apart, "relative_rms", real(u->apart_rms));
    }
    json_object_set_new(j, "apart", apart);
    return j;
}

/* Of what is recomputed beside a kernel and has the first NaN or Inf: the first that a kernel gave. */
static json_t *own_nonfinite_json(const struct ds_report *r, const struct ds_finding *f)
{
    if (!f->found)
        return json_null();
    json_t *j = site_json(f);
    json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, f->arm)));
    json_object_set_new(j, "phase", text(ds_phase_name(f->phase)));
    json_object_set_new(j, "position", json_integer(f->position));
    json_object_set_new(j, "rows", json_integer(f->rows));
    json_object_set_new(j, "at_positions", text(f->at_positions));
    return j;
}

static json_t *nonfinite_json(const struct ds_report *r)
{
    const struct ds_nonfinite_finding *n = &r->v->nonfinite;
    if (!n->at.found)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "layer", json_integer(n->at.layer));
    json_object_set_new(j, "stage", text(n->at.stage));
    json_object_set_new(j, "part", text(n->at.part));
    json_object_set_new(j, "op", text(n->at.op));
    json_object_set_new(j, "variant", text(n->at.variant));
    json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, n->at.arm)));
    if (r->diff)
        json_object_set_new(j, "record", text(n->at.arm % 2 ? "B" : "A"));
    json_object_set_new(j, "trial", whole(n->at.trial));
    json_object_set_new(j, "phase", text(ds_phase_name(n->at.phase)));
    json_object_set_new(j, "rows_in_call", json_integer(n->at.rows_in_call));
    json_object_set_new(j, "step", json_integer(n->at.step));
    json_object_set_new(j, "request", json_integer(n->at.request));
    json_object_set_new(j, "position", json_integer(n->at.position));
    json_object_set_new(j, "rows", json_integer(n->at.rows));
    json_object_set_new(j, "at_positions", text(n->at.at_positions));
    json_object_set_new(j, "row_kind", text(ds_row_kind_name(n->at.row_kind)));
    json_object_set_new(j, "recomputed",
                        json_boolean(ds_site_recomputed(&r->header->sites[n->at.site])));
    json_object_set_new(j, "kernel", own_nonfinite_json(r, &n->own));
    json_object_set_new(j, "only_padding", json_boolean(n->only_padding));
    json_object_set_new(j, "nan", json_integer(n->nan));
    json_object_set_new(j, "inf", json_integer(n->inf));
    json_object_set_new(j, "inputs_finite", n->inputs < 0 ? json_null() : json_boolean(n->inputs));
    return j;
}

static json_t *swapped_json(const struct ds_discrete *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->n_swapped; i++) {
        json_t *j = json_object();
        json_object_set_new(j, "a", json_integer(d->swapped[i].a));
        json_object_set_new(j, "b", json_integer(d->swapped[i].b));
        json_object_set_new(j, "margin", real(d->swapped[i].margin));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *discrete_json(const struct ds_report *r, const struct ds_discrete *d)
{
    if (!d->found)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "stage", text(d->stage));
    json_object_set_new(j, "factor", text(d->factor));
    json_object_set_new(j, "value", text(d->value));
    json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, d->arm)));
    json_object_set_new(j, "reference_arm", json_integer(ds_report_own_arm(r, d->ref_arm)));
    json_object_set_new(j, "request", json_integer(d->request));
    json_object_set_new(j, "step", json_integer(d->step));
    json_object_set_new(j, "a", json_integer(d->a));
    json_object_set_new(j, "b", json_integer(d->b));
    json_object_set_new(j, "margin", real(d->margin));
    json_object_set_new(j, "ties", json_integer(d->ties));
    if (strcmp(d->stage, "token") == 0)
        json_object_set_new(j, "drift", real(d->drift));
    if (strcmp(d->stage, "token") != 0) {
        json_object_set_new(j, "layer", json_integer(d->layer));
        json_object_set_new(j, "position", json_integer(d->position));
        json_object_set_new(j, "swapped", swapped_json(d));
    }
    return j;
}

static json_t *tokens_json(const struct ds_report *r)
{
    json_t *j = json_object();
    json_object_set_new(j, "same", whole(r->v->tokens_same));
    json_object_set_new(j, "compared", whole(r->v->tokens_compared));
    json_object_set_new(j, "choices", whole(r->v->choices));
    json_object_set_new(j, "ties", whole(r->v->ties));
    json_object_set_new(j, "first_divergence", discrete_json(r, &r->v->token_change));
    return j;
}

static json_t *place_json(const struct ds_finding *f)
{
    if (!f->found)
        return json_null();
    json_t *j = site_json(f);
    json_object_set_new(j, "request", json_integer(f->request));
    json_object_set_new(j, "position", json_integer(f->position));
    return j;
}

static json_t *tolerance_json(const struct ds_diff *d)
{
    const struct ds_tolerance *t = &d->options.tolerance;
    json_t *j = json_object();
    if (!ds_tolerance_given(t)) {
        json_decref(j);
        return json_null();
    }
    json_object_set_new(j, "ulp", whole(t->ulp));
    json_object_set_new(j, "atol", real(t->atol));
    json_object_set_new(j, "rtol", real(t->rtol));
    json_object_set_new(j, "nmse", real(t->nmse));
    json_object_set_new(j, "rows_excused", whole(d->excused));
    json_object_set_new(j, "rows_beyond", whole(d->exceeding));
    json_object_set_new(j, "rows_not_dumped", whole(d->not_dumped));
    json_object_set_new(j, "first_within", place_json(&d->within));
    return j;
}

/* Of a side's work what the other lacks. */
static json_t *missing_json(const struct ds_diff *d)
{
    static const char *const sides[2] = {"a", "b"};
    json_t *j = json_object();
    for (int side = 0; side < 2; side++) {
        const struct ds_missing *m = &d->missing[side];
        json_t *one = json_object();
        json_object_set_new(one, "arms", whole(m->arms));
        json_object_set_new(one, "layers", whole(m->layers));
        json_object_set_new(one, "rows", whole(m->rows));
        json_object_set_new(one, "sites", whole(m->sites));
        json_object_set_new(j, sides[side], one);
    }
    json_object_set_new(j, "arms_without_trial", whole(d->unmade[0] + d->unmade[1]));
    json_object_set_new(j, "rows_fed_otherwise", whole(d->parted));
    return j;
}

static json_t *diff_json(const struct ds_report *r)
{
    json_t *j = json_object(), *items = json_array();
    for (size_t i = 0; i < r->diff->n_items; i++) {
        const struct ds_diff_item *x = &r->diff->items[i];
        json_t *one = json_object();
        json_object_set_new(one, "what", text(ds_diff_kind_name(x->kind)));
        json_object_set_new(one, "name", text(x->name));
        json_object_set_new(one, "a", text(x->a));
        json_object_set_new(one, "b", text(x->b));
        json_array_append_new(items, one);
    }
    json_object_set_new(j, "a", text(r->path));
    json_object_set_new(j, "b", text(r->path_b));
    json_t *unpaired = json_object();
    json_object_set_new(unpaired, "a", whole(r->diff->unpaired[0]));
    json_object_set_new(unpaired, "b", whole(r->diff->unpaired[1]));
    json_object_set_new(j, "pairs", whole(r->diff->pairs));
    json_object_set_new(j, "unpaired_digests", unpaired);
    json_t *alone = json_object();
    json_object_set_new(alone, "a", whole(r->diff->alone[0]));
    json_object_set_new(alone, "b", whole(r->diff->alone[1]));
    json_object_set_new(j, "unpaired_arms", alone);
    json_object_set_new(j, "partial", json_boolean(r->diff->partial));
    json_object_set_new(j, "missing", missing_json(r->diff));
    json_object_set_new(j, "two_models", json_boolean(r->diff->two_models));
    json_object_set_new(j, "sites_ignored", whole(r->diff->n_ignored));
    json_object_set_new(j, "tolerance", tolerance_json(r->diff));
    json_object_set_new(j, "differences", items);
    return j;
}

static json_t *identical_json(const struct ds_verdict *v)
{
    json_t *list = json_array();
    for (size_t k = 0; k < v->n_kernels; k++) {
        const struct ds_kernel_verdict *x = &v->kernels[k];
        if (x->within || x->origins || x->unknown || x->unstable ||
            x->condition[0] == DS_COND_UNSTABLE || !x->judged)
            continue;
        json_t *j = json_object();
        json_object_set_new(j, "op", text(x->op));
        json_object_set_new(j, "variant", text(x->variant));
        json_object_set_new(j, "compared", whole(x->judged));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *validity_json(const struct ds_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; r->v->validity && i < r->v->validity->n_items; i++) {
        const struct ds_validity_item *x = &r->v->validity->items[i];
        const struct ds_site *s = x->located && r->header ? &r->header->sites[x->site] : NULL;
        json_t *j = json_object();
        json_object_set_new(j, "what", json_string(ds_validity_name(x->kind)));
        json_object_set_new(j, "proves_nothing", json_boolean(x->proves_nothing));
        json_object_set_new(j, "layer", s ? json_integer(s->layer) : json_null());
        json_object_set_new(j, "stage", s ? text(s->stage) : json_null());
        json_object_set_new(j, "part", s ? text(s->part) : json_null());
        json_object_set_new(j, "layers", json_integer(x->sites));
        json_object_set_new(j, "arm", json_integer(ds_report_own_arm(r, x->arm)));
        if (r->diff)
            json_object_set_new(j, "record", text(x->arm % 2 ? "B" : "A"));
        json_object_set_new(j, "text", text(x->text));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *verdict_json(const struct ds_report *r)
{
    static const char *const disturber[] = {"", "digest", "dump", "digest or dump"};
    const struct ds_verdict *v = r->v;
    json_t *j = json_object(), *reference = json_object(), *counts = json_object(),
           *probe = json_object(), *notes = json_array();
    json_object_set_new(reference, "arm", json_integer(ds_report_own_arm(r, v->ref_arm)));
    json_object_set_new(reference, "trial", whole(v->ref_trial));
    json_object_set_new(counts, "arms", whole(v->counts.arms));
    json_object_set_new(counts, "arms_planned", whole(v->counts.arms_planned));
    json_object_set_new(counts, "heal_trials", whole(v->counts.heal_trials));
    json_object_set_new(counts, "trials", whole(v->counts.trials));
    json_object_set_new(counts, "sites", whole(v->counts.sites));
    json_object_set_new(counts, "rows", whole(v->counts.rows));
    json_object_set_new(counts, "digests_compared", whole(v->counts.digests_compared));
    json_object_set_new(counts, "digests_void", whole(v->validity ? v->validity->void_digests : 0));
    json_object_set_new(counts, "trials_incomplete", whole(r->incomplete));
    json_object_set_new(counts, "trials_damaged", whole(r->damaged));
    json_object_set_new(probe, "overhead_prefill",
                        v->overhead_prefill < 0 ? json_null() : real(v->overhead_prefill));
    json_object_set_new(probe, "overhead_decode",
                        v->overhead_decode < 0 ? json_null() : real(v->overhead_decode));
    json_object_set_new(probe, "total_prefill",
                        v->total_prefill < 0 ? json_null() : real(v->total_prefill));
    json_object_set_new(probe, "total_decode",
                        v->total_decode < 0 ? json_null() : real(v->total_decode));
    json_object_set_new(probe, "disturbs",
                        v->disturbs < 0 ? json_null() : json_boolean(v->disturbs));
    json_object_set_new(probe, "check", text(ds_check_name(v->check)));
    json_object_set_new(probe, "disturber",
                        v->disturber == DS_DISTURBS_NOTHING ? json_null()
                                                            : json_string(disturber[v->disturber]));
    for (size_t i = 0; i < v->n_notes; i++)
        json_array_append_new(notes, text(v->notes[i]));
    json_object_set_new(j, "schema", json_string("driftscope.verdict/1"));
    json_object_set_new(j, "result", json_string(ds_result_name(v->result)));
    json_object_set_new(j, "stable", json_boolean(v->stable));
    json_object_set_new(j, "reason", v->reason[0] ? text(v->reason) : json_null());
    json_object_set_new(j, "model", text(r->header ? r->header->model_name : ""));
    json_object_set_new(j, "reference", reference);
    json_object_set_new(j, "counts", counts);
    json_object_set_new(j, "first_drift", ds_json_finding(r, &v->first));
    json_object_set_new(j, "unstable", unstable_json(r));
    json_object_set_new(j, "repeat", ds_json_census(r));
    json_object_set_new(j, "factors", ds_json_factors(r));
    json_object_set_new(j, "kernels", ds_json_kernels(v));
    json_object_set_new(j, "bands", ds_json_bands(v));
    json_object_set_new(j, "precisions", ds_json_precisions(v));
    json_object_set_new(j, "bit_identical", identical_json(v));
    json_object_set_new(j, "sites_before_first_drift",
                        v->first.found ? json_integer(v->sites_before) : json_null());
    json_object_set_new(j, "growth", ds_json_growth(v));
    json_object_set_new(j, "added", ds_json_added(v));
    json_object_set_new(j, "independent_origins", ds_json_origins(r));
    json_object_set_new(j, "range", ds_json_range(r));
    json_object_set_new(j, "first_nonfinite", nonfinite_json(r));
    json_object_set_new(j, "first_discrete", discrete_json(r, &r->v->discrete));
    json_object_set_new(j, "failures", ds_json_failed(r));
    json_object_set_new(j, "tokens", tokens_json(r));
    json_object_set_new(j, "sampler", r->diff ? json_null() : ds_json_sampler(r->header));
    json_object_set_new(j, "probe", probe);
    json_object_set_new(j, "validity", validity_json(r));
    json_object_set_new(j, "damage", ds_json_damage(r));
    json_object_set_new(j, "notes", notes);
    if (r->diff)
        json_object_set_new(j, "diff", diff_json(r));
    return j;
}

int ds_render_verdict_json(const struct ds_report *r, struct ds_buf *out, struct ds_error *err)
{
    ds_json_begin();
    return ds_json_print(verdict_json(r), out, err);
}
