/* render_fingerprint.c: what fingerprint found, as text and as JSON (schema driftscope.fingerprint/1, JSON.md). Owns
 * order, words and names only. */
#include "cli/fingerprint.h"
#include "cli/json.h"

#include "base/plural.h"

#include <math.h>
#include <string.h>

enum { SHOWN_MISMATCHES = 5 };

/* ---- words ------------------------------------------------------------------------------------------------ */

static void put_token(struct ds_buf *out, const struct ds_fp_sequence *s, size_t k)
{
    if (k >= s->n_tokens) {
        ds_buf_puts(out, "nothing");
        return;
    }
    const struct ds_fp_token *t = &s->tokens[k];
    if (t->text) {
        ds_buf_puts(out, "'");
        ds_buf_escape(out, t->text, t->len);
        ds_buf_puts(out, "'");
        if (t->id >= 0)
            ds_buf_printf(out, " (%lld)", (long long)t->id);
    } else
        ds_buf_printf(out, "token %lld", (long long)t->id);
}

static void put_request(struct ds_buf *out, const struct ds_fp_sequence *s)
{
    if (s->request && s->custom)
        ds_buf_escape(out, s->request, (size_t)-1);
    else
        ds_buf_printf(out, "line %zu", s->line);
    if (s->choice)
        ds_buf_printf(out, ", choice %lld", (long long)s->choice);
}

static const char *side_name(int side)
{
    return side ? "B" : "A";
}

/* Why a pair was not compared, or not to its end. */
static void put_mismatch(struct ds_buf *out, const struct ds_fp_pair *p)
{
    put_request(out, p->a);
    ds_buf_puts(out, ": ");
    switch (p->match) {
    case DS_FP_PROMPT:
        ds_buf_printf(out, "the prompts differ from token %zu on", p->at);
        return;
    case DS_FP_BOS:
        ds_buf_printf(out, "%s has one token more at the beginning%s", side_name(p->longer),
                      p->in_prompt ? " of the prompt, " : ", ");
        if (p->in_prompt)
            ds_buf_printf(out, "%lld", (long long)(p->longer ? p->b : p->a)->prompt[0]);
        else
            put_token(out, p->longer ? p->b : p->a, 0);
        ds_buf_printf(out, ": a BOS that %s lacks", side_name(!p->longer));
        return;
    case DS_FP_SHIFTED:
        ds_buf_printf(out, "shifted: %s has %zu token%s more at the beginning",
                      side_name(p->longer), p->by, p->by == 1 ? "" : "s");
        return;
    case DS_FP_ENDED:
        ds_buf_printf(out, "%s ended behind token %zu, and %s went on",
                      side_name(p->a->n_tokens > p->b->n_tokens), p->at,
                      side_name(p->a->n_tokens < p->b->n_tokens));
        return;
    case DS_FP_RETOKENIZED:
        ds_buf_printf(out, "re-tokenised: the same text, but token %zu is ", p->at);
        break;
    default:
        ds_buf_printf(out, "token %zu is ", p->at);
        break;
    }
    put_token(out, p->a, p->at);
    ds_buf_puts(out, " in A and ");
    put_token(out, p->b, p->at);
    ds_buf_puts(out, " in B");
}

static void put_cause(struct ds_buf *out, const struct ds_lp_cause *c)
{
    const char *side = side_name(c->side);
    switch (c->kind) {
    case DS_LP_PADDING:
        ds_buf_printf(
            out, "masked padding: %zu of %zu tokens, at the ends of sequences, are exactly 0 in %s",
            c->n, c->of, side);
        break;
    case DS_LP_TEMPERATURE:
        ds_buf_printf(out,
                      "temperature: differences between the alternatives have one ratio, as at "
                      "temperature %.4g in "
                      "B if A's is 1; it explains %.4g %% of them (%zu pairs)",
                      c->value, 100 * c->share, c->n);
        break;
    case DS_LP_FILTER:
        if (c->value > 0)
            ds_buf_printf(out,
                          "raw against processed: %zu of %zu alternatives are masked in %s, up to "
                          "probability %.3g",
                          c->n, c->of, side, c->value);
        else
            ds_buf_printf(
                out,
                "raw against processed: %s lists as many alternatives as sum to 1 at %zu of %zu "
                "positions "
                "where the other side leaves some over: top-p or min-p, and the rest renormalised",
                side, c->n, c->of);
        break;
    case DS_LP_PENALTY:
        ds_buf_printf(out,
                      "raw against processed: %zu of %zu tokens that came before are moved down in "
                      "%s, by %.3g nats on "
                      "the average, and the others are not: a penalty",
                      c->n, c->of, side, c->value);
        break;
    case DS_LP_TOP_K:
        ds_buf_printf(out,
                      "top-k renormalised: the listed alternatives sum to 1 in %s at %zu of %zu "
                      "positions where the "
                      "other side leaves some over",
                      side, c->n, c->of);
        break;
    case DS_LP_COARSE_HEAD:
        if (c->value > 0)
            ds_buf_printf(out,
                          "bf16 head: %zu of %zu differences between alternatives are multiples of "
                          "%.6g in %s: logits of "
                          "a coarse format",
                          c->n, c->of, c->value, side);
        else
            ds_buf_printf(out, "bf16 head: %zu of %zu log-probabilities are bf16 numbers in %s",
                          c->n, c->of, side);
        break;
    case DS_LP_FEWER_BITS:
        ds_buf_printf(out,
                      "products of fewer bits (TF32), or weights rounded to BF16: %.3g %% of the "
                      "difference is the same for a token in unlike sequences (%zu tokens), and it "
                      "is only %.2g %% of the spread of the log-probabilities (about 0.1 %% for "
                      "TF32, 0.6 %% for BF16); weights one small step apart look alike",
                      100 * c->share, c->n, 100 * c->value);
        break;
    default:
        ds_buf_printf(out,
                      "other weights (stale ones, or of another format): %.3g %% of the difference "
                      "is the same for a "
                      "token in unlike sequences (%zu tokens, F = %.3g)",
                      100 * c->share, c->n, c->value);
        break;
    }
}

/* ---- text --------------------------------------------------------------------------------------------------- */

static void put_stats(struct ds_buf *out, const char *head, const struct ds_logprob_stats *s)
{
    ds_buf_printf(out, "%-14s%8zu %11.3g %11.3g %11.3g %11.6g %9.3g %% %11.3g\n", head, s->n, s->k1,
                  s->k2, s->k3, s->mean_ratio, 100 * s->clipped, s->max);
}

static void put_table(struct ds_buf *out, const struct ds_options *o, const struct ds_fp_result *r)
{
    ds_buf_printf(out, "\n%s%-14s%8s %11s %11s %11s %11s %11s %11s%s\n",
                  ds_cli_color(o, DS_ROLE_HEAD), "", "number", "k1", "k2", "k3", "mean exp|d|",
                  "clipped", "max |d|", ds_cli_color(o, DS_ROLE_PLAIN));
    put_stats(out, "tokens", &r->tokens);
    put_stats(out, "sequences", &r->sequences);
    for (size_t i = 0; i < r->n_buckets; i++) {
        char head[48];
        const struct ds_fp_bucket *b = &r->buckets[i];
        if (b->from == b->to)
            snprintf(head, sizeof head, "at %zu", b->from);
        else
            snprintf(head, sizeof head, "at %zu-%zu", b->from, b->to);
        put_stats(out, head, &b->stats);
    }
}

static void put_worst(struct ds_buf *out, const struct ds_fp_result *r)
{
    for (size_t i = 0; i < r->n_worst; i++) {
        const struct ds_fp_worst *w = &r->worst[i];
        ds_buf_printf(out, "%-14s", i ? "" : "worst");
        put_request(out, r->pairs[w->pair].a);
        ds_buf_printf(out, ", token %zu, ", w->position);
        put_token(out, r->pairs[w->pair].a, w->position);
        ds_buf_printf(out, ": %.9g in A, %.9g in B, d = %.3g\n", w->a, w->b, w->a - w->b);
    }
}

static void put_one_sided(struct ds_buf *out, const struct ds_fp_result *r)
{
    if (r->one_sided == 0)
        return;
    const struct ds_lp_position *q = &r->positions.positions[r->one_sided_at];
    ds_buf_printf(out, "%-14s%zu token%s without a log-probability on one side; first: ", "missing",
                  r->one_sided, ds_plural(r->one_sided));
    put_request(out, r->pairs[q->sequence].a);
    ds_buf_printf(out, ", token %u: %.9g in A, %.9g in B\n", q->position, q->a, q->b);
}

/* Where the chosen tokens' own log-probabilities are equal: else they tell. */
static void put_others(struct ds_buf *out, const struct ds_fp_result *r)
{
    if (r->others == 0 || r->tokens.first != (size_t)-1)
        return;
    const struct ds_lp_position *q = &r->positions.positions[r->others_at];
    ds_buf_printf(out,
                  "%-14sat %zu token%s other log-probabilities of what was not chosen; first: ",
                  "alternatives", r->others, ds_plural(r->others));
    put_request(out, r->pairs[q->sequence].a);
    ds_buf_printf(out, ", token %u\n", q->position);
}

static void put_mismatches(struct ds_buf *out, const struct ds_fp_result *r)
{
    size_t shown = 0, of = 0;
    for (size_t i = 0; i < r->n_pairs; i++) {
        if (r->pairs[i].match == DS_FP_EQUAL)
            continue;
        if (of++ >= SHOWN_MISMATCHES)
            continue;
        ds_buf_printf(out, "%-14s", shown++ ? "" : "tokens");
        put_mismatch(out, &r->pairs[i]);
        ds_buf_puts(out, "\n");
    }
    if (of > shown)
        ds_buf_printf(out, "%-14sand %zu more pairs\n", "", of - shown);
}

static void put_answer(struct ds_buf *out, const struct ds_fp_result *r)
{
    ds_buf_puts(out, "fingerprint: ");
    if (r->tokens.n == 0)
        ds_buf_puts(out, "nothing compared: no two sequences have the same tokens");
    else if (!ds_fp_differs(r))
        ds_buf_printf(out, "%s: %zu log-probabilities are equal",
                      ds_fp_incomplete(r) ? "incomplete" : "same", r->tokens.n);
    else {
        ds_buf_printf(out, "drift: KL about %.3g nats a token (k3), at most %.3g", r->tokens.k3,
                      r->tokens.max);
        for (size_t i = 0; i < r->n_causes; i++)
            ds_buf_printf(out, "%s%s", i ? ", " : "; ", ds_lp_cause_name(r->causes[i].kind));
        if (r->n_causes == 0)
            ds_buf_puts(out, "; no simple cause shows");
        if (r->tokens.not_finite)
            ds_buf_printf(out, "; %zu token%s infinitely far", r->tokens.not_finite,
                          ds_plural(r->tokens.not_finite));
        if (r->one_sided)
            ds_buf_printf(out, "; %zu token%s without a log-probability on one side", r->one_sided,
                          ds_plural(r->one_sided));
        if (r->others && r->tokens.first == (size_t)-1)
            ds_buf_printf(out, "; other alternatives at %zu token%s", r->others,
                          ds_plural(r->others));
    }
    if (r->unpaired_a || r->unpaired_b)
        ds_buf_printf(out, "; %zu of A and %zu of B were not compared", r->unpaired_a,
                      r->unpaired_b);
    if (r->alone_a || r->alone_b)
        ds_buf_printf(out, "; %zu tokens of A and %zu of B behind the other's end were not",
                      r->alone_a, r->alone_b);
    ds_buf_puts(out, "\n");
}

/* What the servers gave errors for. */
static void put_failures(struct ds_buf *out, const struct ds_fp_result *r)
{
    const struct ds_fp_file *side[] = {r->a, r->b};
    for (int i = 0; i < 2; i++) {
        if (side[i]->n_failed == 0)
            continue;
        ds_buf_printf(out, "\n%-14s%zu of %c: an error of the server instead, first in line %zu",
                      "", side[i]->n_failed, 'A' + i, side[i]->failed_line);
        if (side[i]->failure) {
            ds_buf_puts(out, ": '");
            ds_buf_escape(out, side[i]->failure, strnlen(side[i]->failure, 120));
            ds_buf_puts(out, "'");
        }
    }
}

void ds_fp_text(struct ds_buf *out, const struct ds_options *o, const struct ds_fp_result *r)
{
    ds_buf_puts(out, "fingerprint   A ");
    ds_buf_escape(out, r->a->path, (size_t)-1);
    ds_buf_puts(out, ", B ");
    ds_buf_escape(out, r->b->path, (size_t)-1);
    ds_buf_printf(out, "\n%-14s%zu pair%s by %s", "", r->n_pairs, ds_plural((long long)r->n_pairs),
                  r->paired_by);
    if (r->unpaired_a || r->unpaired_b)
        ds_buf_printf(out, "; %zu of A and %zu of B without a partner", r->unpaired_a,
                      r->unpaired_b);
    for (int m = 0; m < DS_FP_MATCHES; m++)
        if (r->matches[m])
            ds_buf_printf(out, "%s%s %zu",
                          m == 0          ? ": "
                          : r->matches[0] ? ", "
                                          : ": ",
                          ds_fp_match_name(m), r->matches[m]);
    if (r->repeated) {
        ds_buf_printf(out, "\n%-14s%zu of A and %zu of B have the %s of one before them (", "",
                      r->repeated_a, r->repeated_b, r->paired_by);
        ds_buf_escape(out, r->repeated, (size_t)-1);
        ds_buf_puts(out, "): these are paired in the order of their lines");
    }
    put_failures(out, r);
    ds_buf_printf(out,
                  "\n%-14sd = A - B in nats; r = exp(-d), clipped: outside of 1 - %g .. 1 + %g\n",
                  "", r->eps, r->eps);
    put_mismatches(out, r);
    for (size_t i = 0; i < r->n_causes; i++) {
        ds_buf_printf(out, "%-14s%s", i ? "" : "cause", ds_cli_color(o, DS_ROLE_DRIFT));
        put_cause(out, &r->causes[i]);
        ds_buf_printf(out, "%s\n", ds_cli_color(o, DS_ROLE_PLAIN));
    }
    if (r->tokens.n) {
        put_table(out, o, r);
        ds_buf_puts(out, "\n");
        put_worst(out, r);
    }
    put_one_sided(out, r);
    put_others(out, r);
    put_answer(out, r);
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

static void set_stats(json_t *j, const struct ds_logprob_stats *s)
{
    json_object_set_new(j, "n", ds_json_whole(s->n));
    json_object_set_new(j, "not_finite", ds_json_whole(s->not_finite));
    json_object_set_new(j, "k1", ds_json_real(s->k1));
    json_object_set_new(j, "k2", ds_json_real(s->k2));
    json_object_set_new(j, "k3", ds_json_real(s->k3));
    json_object_set_new(j, "mean_exp_abs", ds_json_real(s->mean_ratio));
    json_object_set_new(j, "mean_abs", ds_json_real(s->mean));
    json_object_set_new(j, "p50_abs", ds_json_real(s->p50));
    json_object_set_new(j, "p99_abs", ds_json_real(s->p99));
    json_object_set_new(j, "max_abs", ds_json_real(s->max));
    json_object_set_new(j, "clipped", ds_json_real(s->clipped));
}

static json_t *stats_json(const struct ds_logprob_stats *s)
{
    json_t *j = json_object();
    set_stats(j, s);
    return j;
}

static json_t *token_json(const struct ds_fp_sequence *s, size_t k)
{
    struct ds_buf b = {0};
    put_token(&b, s, k);
    json_t *j = json_string(b.data && !b.failed ? b.data : "");
    ds_buf_free(&b);
    return j;
}

static json_t *request_json(const struct ds_fp_sequence *s)
{
    return s->request && s->custom ? ds_json_text(s->request) : json_null();
}

static json_t *pairs_json(const struct ds_fp_result *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->n_pairs; i++) {
        const struct ds_fp_pair *p = &r->pairs[i];
        json_t *j = json_object();
        json_object_set_new(j, "request", request_json(p->a));
        json_object_set_new(j, "line_a", ds_json_whole(p->a->line));
        json_object_set_new(j, "line_b", ds_json_whole(p->b->line));
        json_object_set_new(j, "choice", json_integer(p->a->choice));
        json_object_set_new(j, "match", json_string(ds_fp_match_name(p->match)));
        json_object_set_new(j, "at", p->match == DS_FP_EQUAL ? json_null() : ds_json_whole(p->at));
        json_object_set_new(j, "tokens_a", ds_json_whole(p->a->n_tokens));
        json_object_set_new(j, "tokens_b", ds_json_whole(p->b->n_tokens));
        json_object_set_new(j, "stats", stats_json(&r->each[i]));
        json_array_append_new(out, j);
    }
    return out;
}

static json_t *causes_json(const struct ds_fp_result *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->n_causes; i++) {
        const struct ds_lp_cause *c = &r->causes[i];
        struct ds_buf text = {0};
        json_t *j = json_object();
        put_cause(&text, c);
        json_object_set_new(j, "cause", json_string(ds_lp_cause_name(c->kind)));
        json_object_set_new(j, "side", json_string(side_name(c->side)));
        json_object_set_new(j, "value", ds_json_real(c->value));
        json_object_set_new(j, "share", ds_json_real(c->share));
        json_object_set_new(j, "holds_for", ds_json_whole(c->n));
        json_object_set_new(j, "of", ds_json_whole(c->of));
        json_object_set_new(j, "evidence", ds_json_text(text.data));
        json_array_append_new(out, j);
        ds_buf_free(&text);
    }
    return out;
}

static json_t *worst_json(const struct ds_fp_result *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->n_worst; i++) {
        const struct ds_fp_worst *w = &r->worst[i];
        json_t *j = json_object();
        json_object_set_new(j, "pair", ds_json_whole(w->pair));
        json_object_set_new(j, "position", ds_json_whole(w->position));
        json_object_set_new(j, "token", token_json(r->pairs[w->pair].a, w->position));
        json_object_set_new(j, "a", ds_json_real(w->a));
        json_object_set_new(j, "b", ds_json_real(w->b));
        json_array_append_new(out, j);
    }
    return out;
}

static json_t *positions_json(const struct ds_fp_result *r)
{
    json_t *out = json_array();
    for (size_t i = 0; i < r->n_buckets; i++) {
        json_t *j = json_object();
        json_object_set_new(j, "from", ds_json_whole(r->buckets[i].from));
        json_object_set_new(j, "to", ds_json_whole(r->buckets[i].to));
        json_object_set_new(j, "stats", stats_json(&r->buckets[i].stats));
        json_array_append_new(out, j);
    }
    return out;
}

int ds_fp_json(struct ds_buf *out, const struct ds_fp_result *r, struct ds_error *err)
{
    ds_json_begin();
    json_t *j = json_object(), *matches = json_object();
    for (int m = 0; m < DS_FP_MATCHES; m++)
        json_object_set_new(matches, ds_fp_match_name(m), ds_json_whole(r->matches[m]));
    json_object_set_new(j, "schema", json_string("driftscope.fingerprint/1"));
    json_object_set_new(j, "result",
                        json_string(r->tokens.n == 0      ? "incomparable"
                                    : ds_fp_differs(r)    ? "drift"
                                    : ds_fp_incomplete(r) ? "incomplete"
                                                          : "same"));
    json_object_set_new(j, "a", ds_json_text(r->a->path));
    json_object_set_new(j, "b", ds_json_text(r->b->path));
    json_object_set_new(j, "paired_by", json_string(r->paired_by));
    json_object_set_new(j, "unpaired_a", ds_json_whole(r->unpaired_a));
    json_object_set_new(j, "unpaired_b", ds_json_whole(r->unpaired_b));
    json_object_set_new(j, "failed_a", ds_json_whole(r->a->n_failed));
    json_object_set_new(j, "failed_b", ds_json_whole(r->b->n_failed));
    json_object_set_new(j, "repeated_a", ds_json_whole(r->repeated_a));
    json_object_set_new(j, "repeated_b", ds_json_whole(r->repeated_b));
    json_object_set_new(j, "tokens_alone_a", ds_json_whole(r->alone_a));
    json_object_set_new(j, "tokens_alone_b", ds_json_whole(r->alone_b));
    json_object_set_new(j, "one_sided", ds_json_whole(r->one_sided));
    json_object_set_new(j, "other_alternatives", ds_json_whole(r->others));
    json_object_set_new(j, "matches", matches);
    json_object_set_new(j, "eps", ds_json_real(r->eps));
    json_object_set_new(j, "tokens", stats_json(&r->tokens));
    json_object_set_new(j, "sequences", stats_json(&r->sequences));
    json_object_set_new(j, "positions", positions_json(r));
    json_object_set_new(j, "causes", causes_json(r));
    json_object_set_new(j, "worst", worst_json(r));
    json_object_set_new(j, "pairs", pairs_json(r));
    return ds_json_print(j, out, err);
}
