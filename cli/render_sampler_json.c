/* render_sampler_json.c: how the tokens of a record were chosen, as JSON. */
#include "cli/render_json.h"

#include <stdlib.h>
#include <string.h>

static const char *option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; h && i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

/* Texts of a record, which may say anything: what is no number is 0. */
static void put_real(json_t *j, const struct ds_header *h, const char *name)
{
    const char *text = option(h, name);
    json_object_set_new(j, name, ds_json_real(text ? strtod(text, NULL) : 0));
}

json_t *ds_json_sampler(const struct ds_header *h)
{
    const char *temperature = option(h, "temperature"), *top_k = option(h, "top_k"),
               *seed = option(h, "sample_seed");
    if (!temperature)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "draws", json_boolean(strtod(temperature, NULL) > 0));
    put_real(j, h, "temperature");
    put_real(j, h, "repetition_penalty");
    json_object_set_new(j, "top_k", ds_json_whole(top_k ? strtoull(top_k, NULL, 10) : 0));
    put_real(j, h, "top_p");
    put_real(j, h, "min_p");
    json_object_set_new(j, "seed", ds_json_whole(seed ? strtoull(seed, NULL, 10) : 0));
    return j;
}
