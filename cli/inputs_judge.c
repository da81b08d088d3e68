/* inputs_judge.c: whether the model said again what was recorded: each conversation call by call, to the first call that
 * differs. Pure. See inputs.h. */
#include "cli/inputs.h"

#include "base/mem.h"
#include "dumps/storm.h"

#include <math.h>
#include <stdlib.h>

struct judge {
    const struct ds_inputs_call *calls;
    size_t n_calls, n_requests;
    size_t *begin; /* of each request in steps */
    const struct ds_step **steps;
};

/* How far below the chosen token the recorded one stands. */
static double behind(const struct ds_step *s, int32_t id)
{
    for (int i = 0; i < DS_TOP; i++)
        if (s->ids[i] == id)
            return (double)s->logits[0] - (double)s->logits[i];
    return (double)NAN;
}

/* The first token of a request that is not the recorded one; as many as are recorded: none; -1: it has fewer tokens. */
static int64_t first_other(const struct judge *j, size_t request)
{
    const struct ds_inputs_call *c = &j->calls[request % j->n_calls];
    const size_t from = j->begin[request], n = j->begin[request + 1] - from;
    for (size_t k = 0; k < c->n_expect; k++) {
        if (k >= n)
            return -1;
        if (j->steps[from + k]->token != c->expect[k])
            return (int64_t)k;
    }
    return (int64_t)c->n_expect;
}

static void take_parting(const struct judge *j, size_t request, int32_t token,
                         struct ds_inputs_followed *f)
{
    const size_t call = request % j->n_calls;
    const struct ds_step *s = j->steps[j->begin[request] + (size_t)token];
    f->parted++;
    if (f->request >= 0 && (call > f->call || (call == f->call && token >= f->token)))
        return;
    f->call = call;
    f->request = (int32_t)request;
    f->token = token;
    f->id = s->token;
    f->expected = j->calls[call].expect[token];
    f->margin = s->margin;
    f->ties = s->ties;
    f->behind = behind(s, f->expected);
}

/* One copy, its calls in their order. */
static void judge_copy(const struct judge *j, size_t copy, struct ds_inputs_followed *f)
{
    const size_t parted = f->parted;
    size_t k = 0;
    f->copies++;
    for (; k < f->calls; k++) {
        const size_t request = copy * j->n_calls + f->first + k;
        if (request >= j->n_requests)
            break;
        if (j->calls[f->first + k].n_expect == 0)
            continue;
        const int64_t other = first_other(j, request);
        if (other < 0)
            break;
        f->judged++;
        if ((size_t)other < j->calls[f->first + k].n_expect) {
            take_parting(j, request, (int32_t)other, f);
            k++;
            break;
        }
    }
    f->followed += k == f->calls && f->parted == parted;
    for (; k < f->calls; k++)
        f->left_out += j->calls[f->first + k].n_expect > 0;
}

int ds_inputs_judge(const struct ds_inputs_call *calls, size_t n_calls,
                    const struct ds_trial_data *t, size_t n_requests,
                    struct ds_inputs_followed **out, size_t *n, struct ds_error *err)
{
    struct judge j = {.calls = calls, .n_calls = n_calls, .n_requests = n_requests};
    *n = 0;
    *out = ds_calloc(n_calls, sizeof **out, "conversations", err);
    if (!*out || ds_storm_steps(t, n_requests, &j.begin, &j.steps, err) != 0) {
        free(*out);
        *out = NULL;
        return -1;
    }
    for (size_t first = 0, next; first < n_calls; first = next) {
        size_t recorded = 0;
        for (next = first; next < n_calls && calls[next].first == (int32_t)first; next++)
            recorded += calls[next].n_expect > 0;
        if (recorded > 0) {
            struct ds_inputs_followed *f = &(*out)[(*n)++];
            *f = (struct ds_inputs_followed){.first = first, .calls = next - first, .request = -1};
            for (size_t copy = 0; copy * n_calls + first < n_requests; copy++)
                judge_copy(&j, copy, f);
        }
    }
    free(j.begin);
    free(j.steps);
    return 0;
}
