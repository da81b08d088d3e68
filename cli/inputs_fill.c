/* inputs_fill.c: what a serving run's model said, put into its inputs where nothing was recorded: so that a run becomes
 * the recording that later ones are held against. See inputs.h. */
#include "cli/inputs.h"

#include "dumps/storm.h"

#include <stdlib.h>

static int is_fed(const json_t *turn)
{
    return json_object_get(turn, "content") || json_object_get(turn, "text") ||
           json_object_get(turn, "tokens");
}

/* The model's turn at the end, made where there is none. Borrowed. */
static json_t *last_turn(json_t *turns)
{
    json_t *last = json_array_get(turns, json_array_size(turns) - 1), *own;
    if (!is_fed(last))
        return last;
    own = json_object();
    if (json_object_get(last, "role"))
        json_object_set_new(own, "role", json_string("assistant"));
    return json_array_append_new(turns, own) == 0 ? own : NULL;
}

static int fill(json_t *turn, const struct ds_step *const *steps, size_t n, struct ds_error *err)
{
    json_t *ids = json_array();
    for (size_t k = 0; k < n; k++)
        json_array_append_new(ids, json_integer(steps[k]->token));
    if (json_array_size(ids) == n && json_object_set_new(turn, "expect", ids) == 0)
        return 0;
    return ds_fail(err, "out of memory for what the model said");
}

int ds_inputs_fill(struct ds_inputs *in, const struct ds_trial_data *t, size_t n_requests,
                   struct ds_error *err)
{
    size_t *begin, call = 0;
    const struct ds_step **steps;
    if (ds_storm_steps(t, n_requests, &begin, &steps, err) != 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < in->n_requests; i++) {
        json_t *turns = json_object_get(json_array_get(json_object_get(in->doc, "requests"), i),
                                        "turns"),
               *last = last_turn(turns);
        if (!last)
            rc = ds_fail(err, "out of memory for what the model said");
        for (size_t k = 0; k < json_array_size(turns); k++)
            call += !is_fed(json_array_get(turns, k));
        /* Its number is that of the request: the first copy. */
        if (rc == 0 && call <= n_requests && begin[call] > begin[call - 1] &&
            !json_object_get(last, "expect"))
            rc = fill(last, steps + begin[call - 1], begin[call] - begin[call - 1], err);
    }
    free(begin);
    free(steps);
    return rc;
}
