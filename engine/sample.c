/* sample.c: which rows of an arm without a reference are dumped, so that another record can be held against
 * this one by value and not by digest alone: a few positions of the subject at every site, as many as a few
 * MiB hold. What is near the first difference of two records is rather in the first layer, in what comes
 * before the layers or after them than in between. */
#include "engine/trial.h"

#include "base/dtype.h"

#include <string.h>

enum { BUDGET = 3 << 20 };

/* Bytes of one position at the sites of a class. */
static uint64_t bytes_of(const struct ds_header *h, const struct ds_site *sites, int outer)
{
    uint64_t bytes = 0;
    for (size_t s = 0; s < h->n_sites; s++)
        if ((sites[s].layer <= 0 || sites[s].layer >= h->n_layers) == outer)
            bytes += (uint64_t)sites[s].width * ds_dtype_size(ds_dtype_parse(sites[s].dtype));
    return bytes;
}

static uint32_t rows_within(uint64_t budget, uint64_t bytes)
{
    const uint64_t n = bytes ? budget / bytes : DS_SAMPLE_ROWS;
    return n < DS_SAMPLE_ROWS ? (uint32_t)n : DS_SAMPLE_ROWS;
}

/* The prompt's last token, the first that follows it, the prompt's middle, its second: the first one sees
 * itself alone, and rotates by nothing. */
void ds_sample_plan(const struct ds_sweep *s, const struct ds_site *sites, struct ds_sample *out)
{
    const int32_t prompt = (int32_t)s->requests[0].n_prompt;
    const int32_t wanted[DS_SAMPLE_ROWS] = {prompt - 1, prompt, prompt / 2, 1};
    memset(out, 0, sizeof *out);
    if (s->options.dump == DS_DUMP_NONE || s->options.dump == DS_DUMP_ALL ||
        s->options.dump_rows == 0)
        return;
    for (uint32_t i = 0; i < DS_SAMPLE_ROWS; i++) {
        int known = 0;
        for (uint32_t k = 0; k < out->n; k++)
            known |= out->position[k] == wanted[i];
        if (!known && wanted[i] < prompt + s->options.steps)
            out->position[out->n++] = wanted[i];
    }
    const uint64_t outer = bytes_of(s->header, sites, 1), inner = bytes_of(s->header, sites, 0);
    uint32_t n = rows_within(BUDGET / 2, outer);
    out->outer = n < out->n ? n : out->n;
    n = rows_within(BUDGET - out->outer * outer, inner);
    out->inner = n < out->n ? n : out->n;
    if (out->outer > (uint32_t)s->options.dump_rows)
        out->outer = (uint32_t)s->options.dump_rows;
    if (out->inner > (uint32_t)s->options.dump_rows)
        out->inner = (uint32_t)s->options.dump_rows;
    out->n_layers = s->header->n_layers;
}
