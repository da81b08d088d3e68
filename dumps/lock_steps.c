/* lock_steps.c: the choices of an answer, and the log-probabilities behind them, held against an entry's. Pure. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct steps {
    struct ds_lock_judging *j;
    double *a, *b, *size, *noise; /* of the steps whose logits both sides have */
    int32_t *number;
    size_t n;
    double kl;
};

static double logprob_of(const struct ds_lock_step *s, int32_t token)
{
    for (size_t i = 0; i < s->n_top; i++)
        if (s->ids[i] == token)
            return s->logprobs[i];
    return (double)NAN;
}

/* Over the tokens that both list, and one outcome for the rest. */
static double kl_of(const struct ds_lock_step *was, const struct ds_lock_step *is)
{
    double a[DS_TOP + 1], b[DS_TOP + 1], rest_a = 1, rest_b = 1;
    size_t n = 0;
    for (size_t i = 0; i < was->n_top; i++) {
        const double other = logprob_of(is, was->ids[i]);
        if (isnan(other))
            continue;
        a[n] = was->logprobs[i];
        b[n] = other;
        rest_a -= exp(a[n]);
        rest_b -= exp(b[n++]);
    }
    /* What is left of 1 behind ten digits is no probability. */
    if (rest_a > 1e-9 && rest_b > 1e-9) {
        a[n] = log(rest_a);
        b[n++] = log(rest_b);
    }
    return ds_logprob_kl(a, b, n);
}

/* Where all bits are equal the logits are, and so is whatever was worked out from them. */
static int check_step(struct steps *s, const struct ds_lock_line *was,
                      const struct ds_lock_line *is, const struct ds_lock_step *x,
                      const struct ds_lock_step *y)
{
    static const double rounding = 1e-5; /* of another exp and of ten digits: far less */
    const struct ds_lock_verdict *v = s->j->v;
    int alike = x->n_top == y->n_top && !(x->margin < y->margin) && !(x->margin > y->margin);
    for (size_t i = 0; alike && i < x->n_top; i++)
        alike = x->ids[i] == y->ids[i] && fabs(x->logprobs[i] - y->logprobs[i]) <= rounding;
    if (alike || v->first || !v->counts.tensors || v->counts.tensors_unstable ||
        v->counts.tensors_missing)
        return 0;
    return ds_lock_found(s->j, DS_LOCK_STEP, was, is,
                         "the logits have the lock's bits, and its numbers of them are others");
}

static int judge_step(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct steps *s = ctx;
    struct ds_lock_verdict *v = s->j->v;
    struct ds_lock_step x, y;
    if (!was || !is)
        return 0;
    if (ds_lock_read_step(was->value, &x) != 0 || ds_lock_read_step(is->value, &y) != 0)
        return ds_fail(s->j->err, "'%s' has no value of a step", was->key);
    const int32_t number = (int32_t)strtol(was->key + strlen("step "), NULL, 10);
    v->counts.steps++;
    if (x.token != y.token) {
        v->first_token =
            v->counts.tokens_differ++ && v->first_token < number ? v->first_token : number;
        if (ds_lock_found(s->j, DS_LOCK_TOKEN, was, is,
                          "token %d, and was %d with a margin of %.3g", y.token, x.token,
                          x.margin) != 0)
            return -1;
    }
    if (check_step(s, was, is, &x, &y) != 0)
        return -1;
    if (!x.n_top || !y.n_top)
        return 0;
    s->number[s->n] = number;
    s->a[s->n] = logprob_of(&x, x.token);
    s->b[s->n] = logprob_of(&y, x.token);
    s->size[s->n] = fabs(s->a[s->n] - s->b[s->n]);
    s->noise[2 * s->n] = x.noise;
    s->noise[2 * s->n + 1] = y.noise;
    const double kl = kl_of(&x, &y);
    s->kl += kl;
    v->kl_most = kl > v->kl_most ? kl : v->kl_most;
    s->n++;
    return 0;
}

int ds_lock_judge_steps(struct ds_lock_judging *j)
{
    const size_t most = j->was->n;
    struct steps s = {.j = j,
                      .a = ds_calloc(most, sizeof *s.a, "steps", j->err),
                      .b = ds_calloc(most, sizeof *s.b, "steps", j->err),
                      .size = ds_calloc(most, sizeof *s.size, "steps", j->err),
                      .noise = ds_calloc(most, 2 * sizeof *s.noise, "steps", j->err),
                      .number = ds_calloc(most, sizeof *s.number, "steps", j->err)};
    struct ds_lock_verdict *v = j->v;
    int rc = s.a && s.b && s.size && s.noise && s.number ? 0 : -1;
    if (rc == 0)
        rc = ds_lock_each_line(j->was, j->is, "step", judge_step, &s);
    if (rc == 0)
        rc = ds_logprob_compare(s.a, s.b, s.n, 0.2, &v->logprobs, j->err);
    if (rc == 0)
        rc = ds_two_sample_test(s.size, s.n, s.noise, 2 * s.n, &v->noise, j->err);
    if (rc == 0 && s.n) {
        v->kl = s.kl / (double)s.n;
        v->noise_samples = 2 * s.n;
        v->first_logprob = v->logprobs.first < s.n ? s.number[v->logprobs.first] : -1;
        v->worst_logprob = v->logprobs.max > 0 ? s.number[v->logprobs.max_at] : -1;
    }
    free(s.a);
    free(s.b);
    free(s.size);
    free(s.noise);
    free(s.number);
    return rc;
}
