/* render_replay.c: what a replay found, in words and as JSON. Owns which cause is named: neighbours are blamed where nothing
 * else was changed. */
#include "cli/json.h"
#include "cli/replay.h"
#include "cli/require.h"
#include "cli/verdict.h"

#include "base/plural.h"

#include <string.h>

/* What was asked for beside the record: each with the word for it as a cause. */
static const struct {
    const char *option, *before, *cause;
} changes[] = {{"alone", "alone", "neighbours"},
               {"other-neighbours", "with other neighbours", "what neighbours hold"},
               {"kernels", "with kernels ", "kernels"},
               {"threads", "with ", "threads"},
               {"temperature", "with temperature ", "sampler"},
               {"top-k", "with top-k ", "sampler"},
               {"top-p", "with top-p ", "sampler"},
               {"min-p", "with min-p ", "sampler"},
               {"repetition-penalty", "with repetition penalty ", "sampler"},
               {"sample-seed", "with seed ", "sampler"}};
enum { N_CHANGES = sizeof changes / sizeof changes[0], ALONE = 0, OTHERS, KERNELS, THREADS };

/* Whether an arm was run with that change: kernels and threads may be those of the record. */
static int is_changed(const struct ds_replay *r, size_t arm, size_t change)
{
    const int factor = change == KERNELS   ? DS_FACTOR_KERNELS
                       : change == THREADS ? DS_FACTOR_THREADS
                                           : -1;
    const struct ds_header *h = ds_record_header(r->record);
    if (change <= OTHERS)
        return ds_opt_flag(r->o, changes[change].option);
    if (factor < 0)
        return ds_opt_given(r->o, changes[change].option);
    return strcmp(h->arms[r->arms[arm]].values[factor], r->header.arms[arm].values[factor]) != 0;
}

/* The one thing that was changed for an arm; NULL: nothing was, or more than one, and then none of them can be blamed. */
static const char *one_change(const struct ds_replay *r, size_t arm, size_t *n)
{
    const char *cause = r->setup.environment ? "environment" : NULL;
    *n = r->setup.environment > 0;
    for (size_t i = 0; i < N_CHANGES; i++)
        if (is_changed(r, arm, i)) {
            cause = changes[i].cause;
            ++*n;
        }
    return *n == 1 ? cause : NULL;
}

/* What was changed, as the start of a sentence; "" = nothing. */
static void changed(const struct ds_replay *r, struct ds_buf *out)
{
    const char *between = "", *threads = r->header.arms[0].values[DS_FACTOR_THREADS];
    for (size_t i = 0; i < N_CHANGES; i++) {
        if (i <= OTHERS ? !ds_opt_flag(r->o, changes[i].option)
                        : !ds_opt_given(r->o, changes[i].option))
            continue;
        ds_buf_printf(out, "%s%s", between, changes[i].before);
        if (i == THREADS)
            ds_buf_printf(out, "%s thread%s", threads, strcmp(threads, "1") == 0 ? "" : "s");
        else if (i > OTHERS)
            ds_buf_escape(out, ds_opt_text(r->o, changes[i].option), (size_t)-1);
        between = ", ";
    }
    if (r->setup.environment)
        ds_buf_printf(out, "%sin another environment", between);
}

static void subject(const struct ds_replay *r, struct ds_buf *out)
{
    if (r->request >= 0)
        ds_buf_printf(out, "request %lld", (long long)r->request);
    else
        ds_buf_puts(out, "the storm");
}

static void arm_text(const struct ds_replay *r, size_t i, struct ds_buf *out)
{
    const struct ds_storm_match *m = &r->matches[i];
    const struct ds_header *h = ds_record_header(r->record);
    ds_buf_printf(out, "%-14s%s, arm %u: %llu digests and %llu tokens held against the record",
                  i ? "" : "replay", ds_storm_kernels(h, r->arms[i]), r->arms[i],
                  (unsigned long long)m->compared, (unsigned long long)m->tokens);
    if (m->missing)
        ds_buf_printf(out, ", %llu row%s without a partner", (unsigned long long)m->missing,
                      ds_plural((long long)m->missing));
    ds_buf_puts(out, "\n");
    if (!m->differs)
        return;
    ds_buf_printf(out, "%-14sfirst other bits: ", "");
    ds_storm_site_text(h, m->site, &r->launches[i], out);
    ds_buf_printf(out, ", request %d at position %d\n", m->request, m->position);
    ds_buf_printf(out, "%-14srecorded in step %u, %d row%s of %d request%s; now %d of %d\n", "",
                  m->other_call, m->other_m, ds_plural(m->other_m), m->other_requests,
                  ds_plural(m->other_requests), m->m, m->requests);
    if (m->parted_request < 0)
        return;
    ds_buf_printf(out, "%-14sfirst other token: request %lld's token %d is ", "",
                  (long long)m->parted_request, m->parted_step);
    ds_storm_token(&r->setup, m->token, out);
    ds_buf_puts(out, ", recorded ");
    ds_storm_token(&r->setup, m->other_token, out);
    ds_inputs_call_text(&r->setup, m->parted_request, out);
    ds_buf_puts(out, "\n");
}

/* Kernels of an arm that do not claim to give the same bits again: what they give says nothing of neighbours. */
static size_t unrepeated(const struct ds_replay *r, size_t arm, struct ds_buf *out)
{
    struct ds_setting s;
    struct ds_error ignored;
    return ds_setting_parse(r->header.arms[arm].values, &s, &ignored) == 0
               ? ds_claims_missing(&s.kernels, NULL, DS_CLAIM_REPEAT, out)
               : 0;
}

/* The cause, where what was run allows one, and the place. */
static void cause_text(const struct ds_replay *r, size_t arm, struct ds_buf *out)
{
    const struct ds_storm_match *m = &r->matches[arm];
    const struct ds_header *h = ds_record_header(r->record);
    struct ds_buf names = {0};
    size_t n;
    const char *cause = one_change(r, arm, &n);
    const size_t loose = unrepeated(r, arm, &names);
    if (!m->differs)
        ds_buf_puts(out, "the bits before them are equal");
    else if (loose == 0 && cause == changes[ALONE].cause)
        ds_buf_printf(out, "the neighbours of step %u made the difference, in ", m->other_call);
    else if (loose == 0 && cause == changes[OTHERS].cause)
        ds_buf_printf(out, "what the neighbours of step %u hold made the difference, in ",
                      m->other_call);
    if (m->differs)
        ds_storm_site_text(h, m->site, &r->launches[arm], out);
    if (n > 1)
        ds_buf_printf(out, "; which of the %zu changes made it was not tried", n);
    if (loose > 0)
        ds_buf_printf(out, "; %s do%s not claim to give the same bits again", names.data,
                      loose == 1 ? "es" : "");
    ds_buf_free(&names);
}

static void verdict_text(const struct ds_replay *r, struct ds_buf *out)
{
    struct ds_buf what = {0};
    size_t arm = 0;
    uint64_t missing = 0;
    const struct ds_storm_match *m = ds_replay_different(r, &arm);
    for (size_t i = 0; i < r->n_matches; i++)
        missing += r->matches[i].missing;
    changed(r, &what);
    ds_buf_printf(out, "replay: %s: ", m ? "drift" : "same");
    subject(r, out);
    if (what.data)
        ds_buf_printf(out, " %s", what.data);
    if (!m) {
        ds_buf_printf(out, " has the bits of the record%s\n",
                      missing     ? ", as far as that has its rows"
                      : what.data ? ""
                                  : ", every digest and token");
    } else {
        ds_buf_printf(out, " gives %s: ",
                      m->tokens_differ ? "other tokens" : "other bits and the same tokens");
        cause_text(r, arm, out);
        ds_buf_puts(out, "\n");
    }
    ds_buf_free(&what);
}

static json_t *match_json(const struct ds_replay *r, size_t i)
{
    const struct ds_storm_match *m = &r->matches[i];
    const struct ds_header *h = ds_record_header(r->record);
    json_t *j = json_object(), *first = json_null();
    json_object_set_new(j, "arm", json_integer(r->arms[i]));
    json_object_set_new(j, "kernels", ds_json_text(ds_storm_kernels(&r->header, (uint32_t)i)));
    json_object_set_new(j, "digests_compared", ds_json_whole(m->compared));
    json_object_set_new(j, "digests_different", ds_json_whole(m->differ));
    json_object_set_new(j, "rows_missing", ds_json_whole(m->missing));
    json_object_set_new(j, "tokens_compared", ds_json_whole(m->tokens));
    json_object_set_new(j, "tokens_different", ds_json_whole(m->tokens_differ));
    if (m->differs) {
        const struct ds_site *s = &h->sites[m->site];
        first = json_object();
        json_object_set_new(first, "request", json_integer(m->request));
        json_object_set_new(first, "position", json_integer(m->position));
        json_object_set_new(first, "step", json_integer(m->other_call));
        json_object_set_new(first, "layer", json_integer(s->layer));
        json_object_set_new(first, "stage", ds_json_text(s->stage));
        json_object_set_new(first, "part", ds_json_text(s->part));
        json_object_set_new(first, "op", ds_json_text(r->launches[i].op));
        json_object_set_new(first, "variant", ds_json_text(r->launches[i].variant));
        json_object_set_new(first, "recorded_batch",
                            json_pack("{sisi}", "rows", m->other_m, "requests", m->other_requests));
        json_object_set_new(first, "batch",
                            json_pack("{sisi}", "rows", m->m, "requests", m->requests));
    }
    json_object_set_new(j, "first_divergence", first);
    json_object_set_new(j, "first_parting",
                        m->parted_request < 0
                            ? json_null()
                            : json_pack("{sIsisisi}", "request", (json_int_t)m->parted_request,
                                        "token", m->parted_step, "a", m->other_token, "b",
                                        m->token));
    json_object_set_new(j, "recorded",
                        r->followed[i]
                            ? ds_inputs_followed_json(&r->setup, r->followed[i], r->n_followed[i])
                            : json_null());
    return j;
}

static int json(const struct ds_replay *r, struct ds_buf *out, struct ds_error *err)
{
    size_t arm, n;
    ds_json_begin();
    json_t *j = json_object(), *arms = json_array();
    json_object_set_new(j, "schema", json_string("driftscope.replay/1"));
    json_object_set_new(j, "result", json_string(ds_replay_different(r, &arm) ? "drift" : "same"));
    json_object_set_new(j, "record", ds_json_text(ds_opt_operand(r->o, 0)));
    json_object_set_new(j, "inputs", ds_inputs_json(&r->setup));
    json_object_set_new(j, "request", r->request < 0 ? json_null() : json_integer(r->request));
    json_object_set_new(j, "alone", json_boolean(ds_opt_flag(r->o, "alone")));
    json_object_set_new(j, "other_neighbours", json_boolean(ds_opt_flag(r->o, "other-neighbours")));
    json_object_set_new(j, "kernels", ds_json_text(ds_opt_text(r->o, "kernels")));
    json_object_set_new(j, "threads", ds_json_text(ds_opt_text(r->o, "threads")));
    json_object_set_new(j, "other_environment", json_boolean(r->setup.environment > 0));
    json_object_set_new(j, "cause",
                        ds_json_text(ds_replay_different(r, &arm) ? one_change(r, arm, &n) : NULL));
    for (size_t i = 0; i < r->n_matches; i++)
        json_array_append_new(arms, match_json(r, i));
    json_object_set_new(j, "arms", arms);
    return ds_json_print(j, out, err);
}

int ds_replay_report(const struct ds_replay *r, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    if (ds_opt_flag(r->o, "json")) {
        rc = json(r, &out, err);
    } else {
        ds_inputs_head_text(&r->setup, &out);
        for (size_t i = 0; i < r->n_matches; i++) {
            arm_text(r, i, &out);
            ds_inputs_followed_text(&r->setup, ds_storm_kernels(&r->header, (uint32_t)i),
                                    r->followed[i], r->n_followed[i], &out);
        }
        verdict_text(r, &out);
    }
    if (rc == 0)
        rc = ds_cli_emit(r->o, &out, err);
    ds_buf_free(&out);
    return rc;
}
