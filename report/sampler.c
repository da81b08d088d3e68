/* sampler.c: how the tokens of a record were chosen, in words, from what it says of its options. */
#include "report/report_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

void ds_report_sampler(const struct ds_header *h, struct ds_buf *out)
{
    static const struct {
        const char *name, *text;
    } rest[] = {{"repetition_penalty", "repetition penalty "},
                {"top_k", "top-k "},
                {"top_p", "top-p "},
                {"min_p", "min-p "},
                {"sample_seed", "seed "}};
    const char *temperature = option(h, "temperature");
    if (!temperature)
        return;
    const int draws = strtod(temperature, NULL) > 0;
    ds_buf_puts(out, "temperature ");
    ds_report_name(out, temperature);
    ds_buf_puts(out,
                draws ? "; penalty, temperature, top-k, top-p, min-p act in this order, then the "
                        "draw\n"
                      : ": the largest logit, of equal ones the lowest id\n");
    ds_buf_puts(out, DS_REPORT_INDENT);
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        const char *value = option(h, rest[i].name);
        ds_buf_printf(out, "%s%s", i ? ", " : "", rest[i].text);
        ds_report_name(out, value ? value : "not known");
    }
    ds_buf_puts(out, draws ? "\n" : ": nothing of it acts\n");
}
