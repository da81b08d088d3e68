/* environment_values.c: the lists of a record: names and values as its header has them. */
#include "report/environment_internal.h"

#include "base/mem.h"
#include "dumps/option_text.h"
#include "dumps/validity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ds_header *side_header(const struct ds_env_of *w, int side)
{
    return w->sides[side];
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* A factor's values in the order of the arms, each once: "1, 2, 4". */
static char *factor_values(const struct ds_header *h, size_t f, struct ds_error *err)
{
    enum { MOST = 256 };
    const char *seen[MOST];
    size_t n = 0;
    struct ds_buf b = {0};
    for (size_t arm = 0; arm < h->n_arms && n < MOST; arm++) {
        const char *value = h->arms[arm].values[f];
        size_t i = 0;
        while (i < n && strcmp(seen[i], value) != 0)
            i++;
        if (i < n)
            continue;
        seen[n++] = value;
        ds_buf_printf(&b, "%s%s", n > 1 ? ", " : "", value[0] ? value : "\"\"");
    }
    if (n == MOST)
        ds_buf_puts(&b, ", ...");
    if (b.failed || !b.data) {
        ds_buf_free(&b);
        ds_fail(err, "out of memory: values of factors");
        return NULL;
    }
    return b.data;
}

/* "Zen (0.3.21), none": each library once. */
static void add_blas(char out[256], const char *core, const char *config)
{
    char one[160];
    size_t used = strlen(out);
    if (!core[0] && !config[0])
        snprintf(one, sizeof one, "none open");
    else
        snprintf(one, sizeof one, "%s%s%s%s", core[0] ? core : "core unknown",
                 config[0] ? " (" : "", config, config[0] ? ")" : "");
    if (!strstr(out, one))
        snprintf(out + used, 256 - used, "%s%s", used ? ", " : "", one);
}

/* Of two records, arm 2p of the joined source is pair p of A, 2p + 1 of B: their trials cannot be told by the
 * records' own arms. Then only how many there are is known. */
static void count_trials(struct ds_env *o, const struct ds_env_of *w)
{
    for (size_t i = 0; i < w->n_trials && (!o->two || o->comparable); i++) {
        const struct ds_trial *t = w->trials[i];
        int side = o->two && t->arm % 2;
        o->passes[side][t->pass < 4 ? t->pass : 3]++;
        if (t->pass != DS_PASS_FAILED)
            add_blas(o->blas[side], t->blas_core, t->blas_config);
        uint32_t arm = ds_report_own_arm(w->report, t->arm);
        if (t->pass == DS_PASS_NATURAL && w->sides[side] && arm < w->sides[side]->n_arms)
            o->trials[side][arm]++;
    }
}

int ds_env_count(struct ds_env *o, const struct ds_env_of *w, struct ds_error *err)
{
    for (int side = 0; side < 1 + o->two; side++) {
        const struct ds_header *h = side_header(w, side);
        o->values[side] = ds_calloc(h->n_factors, sizeof(char *), "factors", err);
        o->trials[side] = ds_calloc(h->n_arms, sizeof(uint32_t), "arms", err);
        if (!o->values[side] || !o->trials[side])
            return -1;
        o->n_values[side] = h->n_factors;
        for (size_t f = 0; f < h->n_factors; f++)
            if (!(o->values[side][f] = factor_values(h, f, err)))
                return -1;
        for (size_t i = 0; i < h->n_edges; i++)
            o->edges[side][h->edges[i].kind < 3 ? h->edges[i].kind : 2]++;
    }
    count_trials(o, w);
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static const char *const record_names[] = {"file",   "written by", "build", "started", "command",
                                           "trials", "BLAS",       "sites", "edges"};
static const char *const model_names[] = {"model", "architecture",    "weights digest", "layers",
                                          "heads", "key-value heads", "head dimension"};
enum {
    RECORD_NAMES = (int)(sizeof record_names / sizeof *record_names),
    MODEL_NAMES = (int)(sizeof model_names / sizeof *model_names)
};

static const struct ds_text *text_at(const struct ds_header *h, int list, uint32_t at)
{
    return list == DS_ENV_HPARAMS   ? &h->hparams[at]
           : list == DS_ENV_OPTIONS ? &h->options[at]
                                    : &h->environment[at];
}

size_t ds_env_entries(const struct ds_env_of *w, int side, int list)
{
    const struct ds_header *h = side_header(w, side);
    switch (list) {
    case DS_ENV_RECORD:
        return RECORD_NAMES;
    case DS_ENV_MODEL:
        return MODEL_NAMES;
    case DS_ENV_HPARAMS:
        return h->n_hparams;
    case DS_ENV_ENVIRONMENT:
        return h->n_environment;
    case DS_ENV_OPTIONS:
        return h->n_options;
    case DS_ENV_PROMPTS:
        return 2 * h->n_prompts;
    case DS_ENV_FACTORS:
        return h->n_factors;
    case DS_ENV_ARMS:
        return h->n_arms;
    case DS_ENV_WEIGHTS:
        return h->n_weights;
    default:
        return 0;
    }
}

const char *ds_env_name(const struct ds_env_of *w, int side, int list, uint32_t at, char out[512])
{
    const struct ds_header *h = side_header(w, side);
    switch (list) {
    case DS_ENV_RECORD:
        return record_names[at];
    case DS_ENV_MODEL:
        return model_names[at];
    case DS_ENV_PROMPTS:
        snprintf(out, 512, "request %d%s", h->prompts[at / 2].request, at % 2 ? " tokens" : "");
        return out;
    case DS_ENV_FACTORS:
        return h->factors[at];
    case DS_ENV_ARMS:
        snprintf(out, 512, "arm %u", at);
        return out;
    case DS_ENV_WEIGHTS:
        return h->weights[at].name;
    default:
        return text_at(h, list, at)->name;
    }
}

static void copy_buf(struct ds_buf *b, char out[512])
{
    snprintf(out, 512, "%s", b->data && !b->failed ? b->data : "");
    ds_buf_free(b);
}

static void passes_text(const size_t n[4], const struct ds_env_of *w, int two, char out[512])
{
    struct ds_buf b = {0};
    ds_buf_printf(&b, "%zu natural, %zu heal, %zu without probes, %zu lost", n[DS_PASS_NATURAL],
                  n[DS_PASS_HEAL], n[DS_PASS_BARE], n[DS_PASS_FAILED]);
    if (two)
        ds_buf_puts(&b, " in the arms that are compared");
    else
        ds_buf_printf(&b, "; %zu incomplete, %zu damaged", w->incomplete, w->damaged);
    copy_buf(&b, out);
}

static const char *record_value(const struct ds_env *o, const struct ds_env_of *w, int side,
                                uint32_t at, char out[512])
{
    const struct ds_header *h = side_header(w, side);
    const size_t *e = o->edges[side];
    const char *path = side ? w->report->path_b : w->report->path;
    switch (at) {
    case 0:
        return path ? path : "not on disk";
    case 1:
        snprintf(out, 512, "driftscope %s", h->tool_version);
        return out;
    case 2:
        return h->build;
    case 3:
        return h->start;
    case 4:
        return h->command ? h->command : "";
    case 5:
        /* Of records that cannot be compared it is not known whose trials these are. */
        if (o->two && !o->comparable)
            return "not known";
        passes_text(o->passes[side], w, o->two, out);
        return out;
    case 6:
        return o->blas[side][0] ? o->blas[side] : "not known";
    case 7:
        snprintf(out, 512, "%zu", h->n_sites);
        return out;
    default:
        snprintf(out, 512, "%zu: %zu of the same row, %zu causal, %zu of all rows", h->n_edges,
                 e[DS_EDGE_ROW], e[DS_EDGE_CAUSAL], e[DS_EDGE_ALL]);
        return out;
    }
}

static const char *model_value(const struct ds_header *h, uint32_t at, char out[512])
{
    const int32_t whole[] = {h->n_layers, h->n_heads, h->n_kv_heads, h->head_dim};
    if (at == 0)
        return h->model_name;
    if (at == 1)
        return h->model_arch;
    if (at == 2)
        snprintf(out, 512, "%016" PRIx64, h->model_digest);
    else
        snprintf(out, 512, "%d", whole[at - 3]);
    return out;
}

static const char *prompt_value(const struct ds_prompt *p, int tokens, char out[512])
{
    enum { MOST = 60 };
    struct ds_buf b = {0};
    if (!tokens)
        return p->text && p->text[0] ? p->text : "given as token ids";
    ds_buf_printf(&b, "%u:", p->n_tokens);
    for (uint32_t i = 0; i < p->n_tokens && i < MOST; i++)
        ds_buf_printf(&b, " %d", p->tokens[i]);
    if (p->n_tokens > MOST)
        ds_buf_printf(&b, " and %u more", p->n_tokens - MOST);
    copy_buf(&b, out);
    return out;
}

const char *ds_env_value(const struct ds_env *o, const struct ds_env_of *w, int side, int list,
                         uint32_t at, char out[512])
{
    const struct ds_header *h = side_header(w, side);
    struct ds_buf b = {0};
    switch (list) {
    case DS_ENV_RECORD:
        return record_value(o, w, side, at, out);
    case DS_ENV_MODEL:
        return model_value(h, at, out);
    case DS_ENV_PROMPTS:
        return prompt_value(&h->prompts[at / 2], at % 2, out);
    case DS_ENV_FACTORS:
        return o->values[side][at];
    case DS_ENV_ARMS:
        ds_report_arm_values(h, at, &b);
        if (!o->two)
            ds_buf_printf(&b, "; %u trial%s", o->trials[side][at],
                          o->trials[side][at] == 1 ? "" : "s");
        copy_buf(&b, out);
        return out;
    case DS_ENV_WEIGHTS:
        snprintf(out, 512, "%s %" PRId64 "x%" PRId64 " %016" PRIx64, h->weights[at].dtype,
                 h->weights[at].rows, h->weights[at].cols, h->weights[at].digest);
        return out;
    case DS_ENV_OPTIONS:
        return ds_option_text(h->options[at].name, h->options[at].value, out);
    default:
        return text_at(h, list, at)->value;
    }
}

/* ---- findings and items ---------------------------------------------------------------------- */

/* What whole, validity and notes say, as one list: numbers of validity first. */
static void finding_texts(const struct ds_env_of *w, uint32_t at, struct ds_env_texts *out)
{
    const struct ds_verdict *v = w->verdict;
    const struct ds_validity *x = v ? v->validity : NULL;
    size_t n = x ? x->n_items : 0;
    if (at == DS_ENV_NONE) {
        out->name = w->error ? "no verdict" : "incomparable";
        out->text[0] = w->error ? w->error : v ? v->reason : "";
    } else if (at < n) {
        out->name = ds_validity_name(x->items[at].kind);
        out->text[0] = x->items[at].text;
    } else if (v && at - n < v->n_notes) {
        out->name = "note";
        out->text[0] = v->notes[at - n];
    } else {
        out->name = "note";
        out->text[0] = w->note ? w->note : "";
    }
}

void ds_env_row_texts(const struct ds_env *o, const struct ds_env_of *w, const struct ds_env_row *r,
                      struct ds_env_texts *out)
{
    out->name = "";
    out->text[0] = out->text[1] = NULL;
    if (r->list == DS_ENV_FINDINGS) {
        finding_texts(w, r->at[0], out);
        return;
    }
    if (r->list == DS_ENV_ITEMS) {
        const struct ds_diff_item *x = &w->diff->items[r->at[0]];
        out->name = x->name ? x->name : "";
        out->text[0] = x->a;
        out->text[1] = x->b;
        return;
    }
    for (int side = 1; side >= 0; side--) {
        if (r->at[side] == DS_ENV_NONE)
            continue;
        out->name = ds_env_name(w, side, r->list, r->at[side], out->room[2]);
        out->text[side] = ds_env_value(o, w, side, r->list, r->at[side], out->room[side]);
    }
}

void ds_env_heading(const struct ds_env *o, const struct ds_env_row *r, char out[512])
{
    static const char *const names[DS_ENV_LISTS] = {
        "record",  "model", "hyperparameters", "environment", "options of the run", "prompts",
        "factors", "arms",  "weights"};
    if (r->list == DS_ENV_FINDINGS)
        snprintf(out, 512, "what to know about the record%s", o->two ? "s" : "");
    else if (r->list == DS_ENV_ITEMS)
        snprintf(out, 512, "differs: %s", ds_diff_kind_name((int)r->at[0]));
    else
        snprintf(out, 512, "%s%s",
                 !o->two || r->list == DS_ENV_RECORD ? ""
                 : r->equal                          ? "equal: "
                                                     : "differs: ",
                 names[r->list]);
}
