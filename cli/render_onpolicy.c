/* render_onpolicy.c: what `onpolicy` found, in words and as JSON. Judges nothing. */
#include "cli/onpolicy.h"
#include "cli/render_json.h"
#include "cli/verdict.h"

#include "base/plural.h"

#include <stdio.h>
#include <string.h>

int ds_onpolicy_drifts(const struct ds_onpolicy_set *s)
{
    return s->match.differ > 0 || s->p.differ > 0;
}

/* Equal bits of logits that are no numbers are no agreement. */
int ds_onpolicy_code(const struct ds_onpolicy_result *r)
{
    int code = DS_EXIT_SAME;
    for (size_t i = 0; i < r->n_sets; i++) {
        if (ds_onpolicy_drifts(&r->sets[i]))
            return DS_EXIT_DRIFT;
        code = r->sets[i].p.blind ? DS_EXIT_ERROR : code;
    }
    return code;
}

static const char *result_name(const struct ds_onpolicy_result *r)
{
    const int code = ds_onpolicy_code(r);
    return code == DS_EXIT_DRIFT ? "drift" : code == DS_EXIT_SAME ? "same" : "incomparable";
}

static const struct ds_header *header(const struct ds_onpolicy_result *r)
{
    return &r->setup->plan.header;
}

static const char *kernels(const struct ds_onpolicy_result *r, const struct ds_onpolicy_set *s)
{
    return ds_storm_kernels(header(r), s->sampled);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void head(struct ds_buf *out, const struct ds_onpolicy_result *r, const char *name)
{
    ds_buf_printf(out, "%s%-14s%s", ds_cli_color(r->o, DS_ROLE_HEAD), name,
                  ds_cli_color(r->o, DS_ROLE_PLAIN));
}

static void begin(struct ds_buf *out, const struct ds_onpolicy_result *r)
{
    const struct ds_serve_plan *p = &r->setup->serve;
    head(out, r, "onpolicy");
    ds_buf_escape(out, header(r)->model_name, (size_t)-1);
    ds_buf_printf(out, ", %s, threads %s\n", header(r)->arms[0].values[DS_FACTOR_DTYPE],
                  header(r)->arms[0].values[DS_FACTOR_THREADS]);
    ds_buf_printf(
        out,
        "%-14s%d request%s of %d prompt%s, %d token%s each; sampled in %zu calls of %d rows "
        "at most,\n%-14sthen scored in a call each\n",
        "", p->n_requests, ds_plural(p->n_requests), r->setup->distinct,
        ds_plural(r->setup->distinct), r->setup->config.tokens, ds_plural(r->setup->config.tokens),
        p->n_steps, p->max_rows, "");
    head(out, r, "sampler");
    ds_report_sampler(header(r), out);
    ds_buf_puts(out, "\n");
}

static void table(struct ds_buf *out, const struct ds_onpolicy_result *r)
{
    int wide = 8;
    for (size_t i = 0; i < r->n_sets; i++) {
        const int n = (int)strlen(kernels(r, &r->sets[i]));
        wide = n > wide ? n : wide;
    }
    wide = wide > 40 ? 40 : wide;
    ds_buf_printf(out, "%s%-*s  tokens  differ  %-11s  %-11s  %-11s  %-11s  %s%s\n",
                  ds_cli_color(r->o, DS_ROLE_HEAD), wide, "kernels", "KL", "k3", "mean |dlogp|",
                  "max |dlogp|", "ratio", ds_cli_color(r->o, DS_ROLE_PLAIN));
    for (size_t i = 0; i < r->n_sets; i++) {
        const struct ds_onpolicy_set *s = &r->sets[i];
        const struct ds_policy *p = &s->p;
        ds_buf_puts(out, ds_cli_color(r->o, ds_onpolicy_drifts(s) ? DS_ROLE_DRIFT : DS_ROLE_SAME));
        ds_buf_printf(out, "%-*.40s", wide, kernels(r, s));
        ds_buf_puts(out, ds_cli_color(r->o, DS_ROLE_PLAIN));
        ds_buf_printf(out, "  %6zu  %6zu  %-11.4g  %-11.4g  %-12.4g  %-11.4g  %.9g to %.9g\n",
                      p->tokens, p->differ, p->kl, p->drawn.k3, p->drawn.mean, p->drawn.max,
                      p->ratio_low, p->ratio_high);
    }
    ds_buf_puts(out, "\n");
}

static void one_set(struct ds_buf *out, const struct ds_onpolicy_result *r,
                    const struct ds_onpolicy_set *s)
{
    const struct ds_storm_match *m = &s->match;
    if (m->differs) {
        head(out, r, "first drift");
        ds_buf_printf(out, "%s: ", kernels(r, s));
        ds_storm_site_text(header(r), m->site, &s->launch, out);
        ds_buf_printf(
            out,
            "\n%-14srequest %d at position %d: sampled in call %u, %d row%s of %d request%s; "
            "scored among %d\n",
            "", m->request, m->position, m->other_call, m->other_m, ds_plural(m->other_m),
            m->other_requests, ds_plural(m->other_requests), m->m);
    }
    if (s->p.differ) {
        head(out, r, "worst");
        ds_buf_printf(out, "%s: request %d's token %d, ", kernels(r, s), s->worst.request,
                      s->worst.step);
        ds_storm_token(r->setup, s->worst.token, out);
        ds_buf_printf(out, ": log p %.6g sampled, %.6g scored; a whole request up to %.4g\n",
                      s->worst.log_a, s->worst.log_b, s->p.sequence_most);
    }
    if (m->tokens_differ) {
        head(out, r, "choices");
        ds_buf_printf(out, "%s: %llu of %llu would be other tokens where they are scored\n",
                      kernels(r, s), (unsigned long long)m->tokens_differ,
                      (unsigned long long)m->tokens);
    }
    if (s->p.blind) {
        head(out, r, "not finite");
        ds_buf_printf(out, "%s: %zu of %zu tokens have no log-probability: NaN among the logits\n",
                      kernels(r, s), s->p.blind, s->p.tokens);
    }
    if (!s->invariant && !ds_onpolicy_drifts(s)) {
        head(out, r, "no power");
        ds_buf_printf(out,
                      "%s does not claim to be batch-invariant, and yet both paths have the same "
                      "bits;\n%-14smore requests or tokens, other --max-batch or --chunk may show "
                      "it\n",
                      kernels(r, s), "");
    }
}

static void verdict(struct ds_buf *out, const struct ds_onpolicy_result *r)
{
    ds_buf_puts(out, ds_cli_color(r->o, ds_onpolicy_code(r) ? DS_ROLE_DRIFT : DS_ROLE_SAME));
    ds_buf_printf(out, "onpolicy: %s: ", result_name(r));
    for (size_t i = 0; i < r->n_sets; i++) {
        const struct ds_onpolicy_set *s = &r->sets[i];
        ds_buf_printf(out, "%s%s ", i ? ", " : "", kernels(r, s));
        if (ds_onpolicy_drifts(s))
            ds_buf_printf(out, "k3 %.3g", s->p.drawn.k3);
        else
            ds_buf_puts(out,
                        s->p.blind ? "every bit the same, NaN among them" : "every bit the same");
    }
    ds_buf_printf(out, "%s\n", ds_cli_color(r->o, DS_ROLE_PLAIN));
}

void ds_onpolicy_text(struct ds_buf *out, const struct ds_onpolicy_result *r)
{
    begin(out, r);
    table(out, r);
    for (size_t i = 0; i < r->n_sets; i++)
        one_set(out, r, &r->sets[i]);
    head(out, r, "next");
    ds_cli_program(out);
    ds_buf_puts(out, " show ");
    ds_buf_quote(out, r->path);
    ds_buf_puts(out, "\n");
    verdict(out, r);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *first_json(const struct ds_onpolicy_result *r, const struct ds_onpolicy_set *s)
{
    const struct ds_storm_match *m = &s->match;
    if (!m->differs)
        return json_null();
    const struct ds_site *site = &header(r)->sites[m->site];
    json_t *j = json_object();
    json_object_set_new(j, "request", json_integer(m->request));
    json_object_set_new(j, "position", json_integer(m->position));
    json_object_set_new(j, "layer", json_integer(site->layer));
    json_object_set_new(j, "stage", ds_json_text(site->stage));
    json_object_set_new(j, "part", ds_json_text(site->part));
    json_object_set_new(j, "op", ds_json_text(s->launch.op));
    json_object_set_new(j, "variant", ds_json_text(s->launch.variant));
    json_object_set_new(j, "sampled_step", json_integer(m->other_call));
    json_object_set_new(j, "sampled_batch",
                        json_pack("{sisi}", "rows", m->other_m, "requests", m->other_requests));
    json_object_set_new(j, "scored_batch",
                        json_pack("{sisi}", "rows", m->m, "requests", m->requests));
    return j;
}

static json_t *worst_json(const struct ds_policy_token *t)
{
    json_t *j = json_object();
    json_object_set_new(j, "request", json_integer(t->request));
    json_object_set_new(j, "step", json_integer(t->step));
    json_object_set_new(j, "token", json_integer(t->token));
    json_object_set_new(j, "logprob_sampled", ds_json_real(t->log_a));
    json_object_set_new(j, "logprob_scored", ds_json_real(t->log_b));
    return j;
}

static json_t *set_json(const struct ds_onpolicy_result *r, const struct ds_onpolicy_set *s)
{
    const struct ds_policy *p = &s->p;
    json_t *j = json_object();
    json_object_set_new(j, "kernels", ds_json_text(kernels(r, s)));
    json_object_set_new(j, "arm_sampled", json_integer(s->sampled));
    json_object_set_new(j, "arm_scored", json_integer(s->scored));
    json_object_set_new(j, "tokens", ds_json_whole(p->tokens));
    json_object_set_new(j, "tokens_different", ds_json_whole(p->differ));
    json_object_set_new(j, "tokens_not_finite", ds_json_whole(p->blind));
    json_object_set_new(j, "choices_different", ds_json_whole(s->match.tokens_differ));
    json_object_set_new(j, "kl", ds_json_real(p->kl));
    json_object_set_new(j, "kl_max", ds_json_real(p->kl_most));
    json_object_set_new(j, "k1", ds_json_real(p->drawn.k1));
    json_object_set_new(j, "k3", ds_json_real(p->drawn.k3));
    json_object_set_new(j, "dlogprob_mean", ds_json_real(p->drawn.mean));
    json_object_set_new(j, "dlogprob_p50", ds_json_real(p->drawn.p50));
    json_object_set_new(j, "dlogprob_p99", ds_json_real(p->drawn.p99));
    json_object_set_new(j, "dlogprob_max", ds_json_real(p->drawn.max));
    json_object_set_new(j, "ratio_min", ds_json_real(p->ratio_low));
    json_object_set_new(j, "ratio_max", ds_json_real(p->ratio_high));
    json_object_set_new(j, "sequence_dlogprob_max", ds_json_real(p->sequence_most));
    json_object_set_new(j, "worst", worst_json(&s->worst));
    json_object_set_new(j, "digests_compared", ds_json_whole(s->match.compared));
    json_object_set_new(j, "digests_different", ds_json_whole(s->match.differ));
    json_object_set_new(j, "claims_invariance", json_boolean(s->invariant));
    json_object_set_new(j, "first_divergence", first_json(r, s));
    return j;
}

int ds_onpolicy_json(struct ds_buf *out, const struct ds_onpolicy_result *r, struct ds_error *err)
{
    const struct ds_header *h = header(r);
    ds_json_begin();
    json_t *j = json_object(), *sets = json_array();
    for (size_t i = 0; i < r->n_sets; i++)
        json_array_append_new(sets, set_json(r, &r->sets[i]));
    json_object_set_new(j, "schema", json_string("driftscope.onpolicy/1"));
    json_object_set_new(j, "result", json_string(result_name(r)));
    json_object_set_new(j, "model", ds_json_text(h->model_name));
    json_object_set_new(j, "dtype", ds_json_text(h->arms[0].values[DS_FACTOR_DTYPE]));
    json_object_set_new(j, "threads", ds_json_text(h->arms[0].values[DS_FACTOR_THREADS]));
    json_object_set_new(j, "schedule", ds_storm_schedule_json(r->setup));
    json_object_set_new(j, "sampler", ds_json_sampler(h));
    json_object_set_new(j, "sets", sets);
    json_object_set_new(j, "record", ds_json_text(r->path));
    return ds_json_print(j, out, err);
}
