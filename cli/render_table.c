/* render_table.c: the figures of `table` as text, TSV and JSON. Owns how they are told, with their published names; computes
 * nothing. See dumps/metrics.h for what they are. */
#include "cli/table.h"

#include "base/plural.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct figure {
    const char *name;
    size_t offset;
};
#define FIGURE(name, member)                                                                       \
    {                                                                                              \
        name, offsetof(struct ds_metrics_summary, member)                                          \
    }
static const struct figure figures[] = {
    FIGURE("unique_completions_per_prompt", unique_completions),
    FIGURE("diverging_share", diverging_share),
    FIGURE("Div_Index", div_index),
    FIGURE("Avg_Std@top1_prob", avg_std_top1_prob),
    FIGURE("flips_per_decode_step", flips_per_decode_step),
    FIGURE("max_probability_divergence", max_prob_divergence),
};
enum { N_FIGURES = sizeof figures / sizeof *figures };

static const struct ds_metric *figure_of(const struct ds_metrics_summary *s, size_t i)
{
    return (const struct ds_metric *)(const void *)((const char *)s + figures[i].offset);
}

/* The n-th of tab-separated values. */
static const char *value_at(const char *group, size_t n, size_t *len)
{
    for (; n > 0 && *group; group++)
        n -= *group == '\t';
    *len = strcspn(group, "\t");
    return group;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void metric_text(const struct ds_metric *m, char *out, size_t size)
{
    if (!m->known)
        snprintf(out, size, "-");
    else if (m->bounded)
        snprintf(out, size, "%.3g (%.3g-%.3g)", m->value, m->low, m->high);
    else
        snprintf(out, size, "%.3g", m->value);
}

static void group_text(const struct ds_table_result *r, size_t g, struct ds_buf *out)
{
    const struct ds_metrics_summary *s = ds_metrics_summary(r->metrics, g);
    char text[64];
    ds_buf_puts(out, ds_cli_color(r->o, DS_ROLE_HEAD));
    for (size_t i = 0; i < r->n_by; i++) {
        size_t len;
        const char *value = value_at(ds_metrics_group(r->metrics, g), i, &len);
        ds_buf_puts(out, i ? ", " : "");
        ds_buf_escape(out, r->by[i], (size_t)-1);
        ds_buf_puts(out, " ");
        ds_buf_add(out, len ? value : "-", len ? len : 1);
    }
    ds_buf_printf(out,
                  "%s\n    %" PRIu64 " observation%s of %" PRIu64 " prompt%s, %" PRIu64
                  " choices; %" PRIu64 " unique completion%s, %" PRIu64 " prompt%s diverge%s\n",
                  ds_cli_color(r->o, DS_ROLE_PLAIN), s->observations, ds_plural(s->observations),
                  s->prompts, ds_plural(s->prompts), s->choices, s->unique, ds_plural(s->unique),
                  s->diverging, ds_plural(s->diverging), s->diverging == 1 ? "s" : "");
    for (size_t i = 0; i < N_FIGURES; i++) {
        metric_text(figure_of(s, i), text, sizeof text);
        ds_buf_printf(out, "    %-30s%s\n", figures[i].name, text);
    }
    if (s->no_probability)
        ds_buf_printf(out,
                      "    %" PRIu64 " choice%s without a probability left out of Avg_Std and of "
                      "max_probability_divergence\n",
                      s->no_probability, ds_plural(s->no_probability));
    if (s->left_out)
        ds_buf_printf(out,
                      "    %" PRIu64 " token%s beyond the 8 best of one side left out of "
                      "max_probability_divergence\n",
                      s->left_out, ds_plural(s->left_out));
    ds_buf_puts(out, "\n");
}

void ds_table_text(const struct ds_table_result *r, struct ds_buf *out)
{
    uint64_t unique = 0, prompts = 0, most = 0;
    const size_t n = ds_metrics_groups(r->metrics);
    for (size_t g = 0; g < n; g++) {
        const struct ds_metrics_summary *s = ds_metrics_summary(r->metrics, g);
        group_text(r, g, out);
        if (s->unique - s->prompts >= most) {
            most = s->unique - s->prompts;
            unique = s->unique;
            prompts = s->prompts;
        }
    }
    if (r->trials_left_out)
        ds_buf_printf(out, "%zu trial%s without tokens left out\n", r->trials_left_out,
                      ds_plural(r->trials_left_out));
    ds_buf_printf(out,
                  "in brackets 95 %% of %d bootstrap samples of prompts (seed %" PRIu64 ")\n"
                  "table: %zu observation%s of %zu record%s in %zu group%s; at most %" PRIu64
                  " completion%s of %" PRIu64 " prompt%s in one\n",
                  DS_METRICS_SAMPLES, r->seed, r->observations, ds_plural(r->observations),
                  r->records, ds_plural(r->records), n, ds_plural(n), unique, ds_plural(unique),
                  prompts, ds_plural(prompts));
}

/* ---- TSV ------------------------------------------------------------------------------------- */

static void number(double x, int known, struct ds_buf *out)
{
    ds_buf_puts(out, "\t");
    if (known)
        ds_buf_printf(out, "%.9g", x);
}

void ds_table_metrics_tsv(const struct ds_table_result *r, struct ds_buf *out)
{
    for (size_t i = 0; i < r->n_by; i++) {
        ds_buf_escape(out, r->by[i], (size_t)-1);
        ds_buf_puts(out, "\t");
    }
    ds_buf_puts(out, "prompts\tobservations\tchoices\tunique_completions\tflips\tdecode_steps\t"
                     "no_probability\ttokens_left_out");
    for (size_t i = 0; i < N_FIGURES; i++)
        ds_buf_printf(out, "\t%s\t%s_low\t%s_high", figures[i].name, figures[i].name,
                      figures[i].name);
    ds_buf_puts(out, "\tseed\n");
    for (size_t g = 0; g < ds_metrics_groups(r->metrics); g++) {
        const struct ds_metrics_summary *s = ds_metrics_summary(r->metrics, g);
        ds_buf_printf(out,
                      "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                      "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64,
                      ds_metrics_group(r->metrics, g), s->prompts, s->observations, s->choices,
                      s->unique, s->flips, s->decode_steps, s->no_probability, s->left_out);
        for (size_t i = 0; i < N_FIGURES; i++) {
            const struct ds_metric *m = figure_of(s, i);
            number(m->value, m->known, out);
            number(m->low, m->bounded, out);
            number(m->high, m->bounded, out);
        }
        ds_buf_printf(out, "\t%" PRIu64 "\n", r->seed);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *metric_json(const struct ds_metric *m)
{
    json_t *j = m->known ? json_object() : json_null();
    if (!m->known)
        return j;
    json_object_set_new(j, "value", ds_json_real(m->value));
    json_object_set_new(j, "low", m->bounded ? ds_json_real(m->low) : json_null());
    json_object_set_new(j, "high", m->bounded ? ds_json_real(m->high) : json_null());
    return j;
}

static json_t *group_json(const struct ds_table_result *r, size_t g)
{
    const struct ds_metrics_summary *s = ds_metrics_summary(r->metrics, g);
    json_t *j = json_object(), *by = json_object();
    for (size_t i = 0; i < r->n_by; i++) {
        struct ds_buf name = {0}, text = {0};
        size_t len;
        const char *value = value_at(ds_metrics_group(r->metrics, g), i, &len);
        ds_buf_escape(&name, r->by[i], (size_t)-1);
        ds_buf_add(&text, value, len);
        json_object_set_new(by, name.data ? name.data : "",
                            json_string(len && text.data ? text.data : ""));
        ds_buf_free(&name);
        ds_buf_free(&text);
    }
    json_object_set_new(j, "by", by);
    json_object_set_new(j, "prompts", ds_json_whole(s->prompts));
    json_object_set_new(j, "observations", ds_json_whole(s->observations));
    json_object_set_new(j, "choices", ds_json_whole(s->choices));
    json_object_set_new(j, "unique_completions", ds_json_whole(s->unique));
    json_object_set_new(j, "flips", ds_json_whole(s->flips));
    json_object_set_new(j, "decode_steps", ds_json_whole(s->decode_steps));
    json_object_set_new(j, "no_probability", ds_json_whole(s->no_probability));
    json_object_set_new(j, "tokens_left_out", ds_json_whole(s->left_out));
    for (size_t i = 0; i < N_FIGURES; i++)
        json_object_set_new(j, figures[i].name, metric_json(figure_of(s, i)));
    return j;
}

int ds_table_metrics_json(const struct ds_table_result *r, struct ds_buf *out, struct ds_error *err)
{
    ds_buf_puts(out, "],\n\"groups\": [");
    for (size_t g = 0; g < ds_metrics_groups(r->metrics); g++) {
        ds_buf_puts(out, g ? ",\n" : "\n");
        ds_json_begin();
        if (ds_json_print_line(group_json(r, g), out, err) != 0)
            return -1;
    }
    ds_json_begin();
    json_t *j = json_object();
    struct ds_buf rest = {0};
    json_object_set_new(j, "records", ds_json_whole(r->records));
    json_object_set_new(j, "observations", ds_json_whole(r->observations));
    json_object_set_new(j, "trials_left_out", ds_json_whole(r->trials_left_out));
    json_object_set_new(j, "samples", json_integer(DS_METRICS_SAMPLES));
    json_object_set_new(j, "seed", ds_json_whole(r->seed));
    const int rc = ds_json_print_line(j, &rest, err);
    ds_buf_puts(out, "],\n");
    ds_buf_puts(out, rc == 0 ? rest.data + 1 : ""); /* the object goes on */
    ds_buf_free(&rest);
    return rc;
}
