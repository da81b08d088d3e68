/* serve_run.c: the arms of a serving run, one after another, each in a worker process that ends with it:
 * packed weights of two kernel sets never lie side by side. See serve.h. */
#include "engine/serve.h"

#include "base/mem.h"
#include "engine/forward.h"
#include "engine/worker.h"
#include "kernels/plugin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that a worker shares with its parent: where it is, how long each step took, and what of that was the scheduler's. */
struct shared {
    struct ds_place place;
    double seconds[];
};

static size_t shared_size(const struct ds_serve_run *s)
{
    return sizeof(struct shared) + 2 * s->plan->n_steps * sizeof(double);
}

/* The matmul kernels of an arm that pack weights: *packer, where they pack alike and read nothing but that, on the
 * CPU; NULL where some read f32. */
static int packer_of(const struct ds_serve_run *s, uint32_t arm, const struct ds_kernel **packer,
                     int *threads, struct ds_error *err)
{
    struct ds_setting setting;
    const struct ds_kernel *k;
    *packer = NULL;
    if (ds_setting_parse(s->header->arms[arm].values, &setting, err) != 0)
        return -1;
    *threads = setting.threads;
    if (setting.kernels.device != DS_DEVICE_CPU || setting.place.n > 0 || setting.ranks > 1)
        return 0;
    for (int32_t i = 0; (k = ds_kernel_set_used(&setting.kernels, DS_OP_MATMUL, i)); i++) {
        if (!(k->features & DS_FEATURE_PACKED) || !k->prepare || ds_plugin_of(k) ||
            (*packer && (*packer)->prepare != k->prepare)) {
            *packer = NULL;
            return 0;
        }
        *packer = k;
    }
    return 0;
}

/* The arms in the order in which they are run. Who reads numbers that are not packed comes first, then those that pack alike,
 * one kind after the other: so behind the last change of kind the numbers that all were packed from can be given back, in
 * whatever order the sets were named. Every arm has a process of its own, and is none the wiser. */
static int order_arms(const struct ds_serve_run *s, uint32_t *order, struct ds_error *err)
{
    const size_t n = (size_t)s->n_arms;
    const struct ds_kernel **packer = ds_calloc(n, sizeof *packer, "arms", err);
    size_t at = 0;
    int threads, rc = packer ? 0 : -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = packer_of(s, (uint32_t)s->first_arm + (uint32_t)i, &packer[i], &threads, err);
        if (rc == 0 && !packer[i])
            order[at++] = (uint32_t)s->first_arm + (uint32_t)i;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct ds_kernel *first = packer[i];
        for (size_t k = i; first && k < n; k++)
            if (packer[k] && packer[k]->prepare == first->prepare) {
                order[at++] = (uint32_t)s->first_arm + (uint32_t)k;
                packer[k] = NULL;
            }
    }
    free(packer);
    return rc;
}

/* From the first arm on behind which all read nothing but weights that are packed alike, these are packed once, for all of
 * them, and what they were made of is given back. */
static int share_weights(const struct ds_serve_run *s, const uint32_t *arms, size_t n_arms,
                         struct ds_error *err)
{
    const struct ds_kernel *first = NULL, *k;
    int threads = 1, n = 1;
    if (!s->last)
        return 0;
    for (size_t a = 0; a < n_arms; a++) {
        if (packer_of(s, arms[a], &k, &n, err) != 0)
            return -1;
        if (!k || (first && first->prepare != k->prepare))
            return 0;
        first = first ? first : k;
        threads = n > threads ? n : threads;
    }
    return ds_model_prepare_alone(s->model, first, threads, err);
}

/* An arm, from fork to sink. 0, 1 when interrupted, -1. */
static int run_arm(const struct ds_serve_run *s, uint32_t arm, struct shared *shared,
                   struct ds_error *err)
{
    struct ds_setting setting;
    if (ds_setting_parse(s->header->arms[arm].values, &setting, err) != 0)
        return -1;
    struct ds_serve_trial trial = {.run = s, .place = &shared->place, .seconds = shared->seconds};
    struct ds_worker_context c = {.trial = ds_serve_trial, .ctx = &trial};
    struct ds_worker worker = {0};
    struct ds_trial_data t;
    memset(shared, 0, shared_size(s));
    ds_worker_libraries(&c, &setting);
    if (ds_worker_start(&worker, &c, (int32_t)arm + 1, err) != 0)
        return -1;
    const struct ds_trial_order order = {
        .arm = arm, .pass = DS_PASS_NATURAL, .worker = worker.number};
    int rc = ds_worker_trial(&worker, &order, NULL, s->stop, &t, err);
    if (rc == DS_WORKER_DIED) {
        struct ds_error died = *err;
        char text[320];
        ds_place_text(&shared->place, &setting.kernels, s->header->n_layers, text, sizeof text);
        ds_fail(err, "%.600s%s", died.msg, text);
    }
    ds_worker_stop(&worker);
    if (rc != DS_WORKER_OK)
        return rc == DS_WORKER_STOPPED ? 1 : ds_prefix(err, "arm %u", arm);
    rc = ds_trial_data_check(s->header, &t, err);
    if (rc == 0)
        rc = s->sink(s->ctx, &t, shared->seconds, err);
    ds_trial_data_free(&t);
    return rc;
}

int ds_serve_run(const struct ds_serve_run *s, int *interrupted, struct ds_error *err)
{
    *interrupted = 0;
    if (s->model->hp.context > 0 && s->plan->capacity > s->model->hp.context)
        return ds_fail(err, "a request has %d positions, but the model's context has %d",
                       s->plan->capacity, s->model->hp.context);
    if (ds_model_rope_table(s->model, s->plan->capacity, err) != 0)
        return -1;
    ds_model_seal(s->model);
    struct shared *shared =
        mmap(NULL, shared_size(s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return ds_fail(err, "out of memory for what workers share");
    const size_t n = (size_t)s->n_arms;
    uint32_t *arms = ds_calloc(n, sizeof *arms, "arms", err);
    int rc = arms ? order_arms(s, arms, err) : -1;
    for (size_t a = 0; a < n && rc == 0; a++) {
        rc = share_weights(s, arms + a, n - a, err);
        rc = rc == 0 ? run_arm(s, arms[a], shared, err) : rc;
        if (rc == 0 && s->progress)
            s->progress(s->ctx, (double)(a + 1), s->n_arms);
    }
    free(arms);
    munmap(shared, shared_size(s));
    *interrupted = rc > 0;
    return rc < 0 ? -1 : 0;
}
