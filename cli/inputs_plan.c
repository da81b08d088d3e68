/* inputs_plan.c: --inputs as the prompts of a plan, and as options of its record, from which they come back: `inputs` is the
 * checked file, whole, with every text in it, `inputs_digest` its XXH3-64, `inputs_file` what it was called. See inputs.h. */
#include "cli/run_plan_internal.h"

#include "base/hash.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ds_plan_inputs_read(const struct ds_options *o, struct ds_plan_inputs *x, struct ds_error *err)
{
    static const char *const others[] = {"prompt", "file", "tokens"};
    const char *path = ds_opt_text(o, "inputs");
    memset(x, 0, sizeof *x);
    x->subject = -1;
    if (!path)
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (ds_opt_count(o, others[i]) > 0)
            return ds_fail(err, "--inputs and --%s: prompts come from one of them", others[i]);
    if (ds_opt_flag(o, "chat"))
        return ds_fail(err, "--inputs and --chat: the turns of the file say their roles");
    return ds_inputs_read(path, &x->file, err);
}

void ds_plan_inputs_free(struct ds_plan_inputs *x)
{
    ds_inputs_calls_free(x->calls, x->n_calls);
    if (x->file.doc)
        ds_inputs_free(&x->file);
    memset(x, 0, sizeof *x);
}

/* ---- prompts ----------------------------------------------------------------------------------- */

static int add_prompt(struct ds_run_plan *p, const struct ds_inputs_call *c, struct ds_error *err)
{
    struct ds_prompt *q = &p->header.prompts[p->header.n_prompts];
    if (c->n_prompt > (size_t)p->model->hp.context)
        return ds_fail(err,
                       "request '%s', turn %d: what comes before has %zu tokens; the model's "
                       "context is %d",
                       c->id, c->turn, c->n_prompt, p->model->hp.context);
    q->request = (int32_t)p->header.n_prompts++;
    q->tokens = ds_calloc(c->n_prompt, sizeof *q->tokens, "a prompt", err);
    q->text = strdup(c->text);
    if (!q->tokens || !q->text)
        return ds_fail(err, "out of memory for a prompt");
    memcpy(q->tokens, c->prompt, c->n_prompt * sizeof *q->tokens);
    q->n_tokens = (uint32_t)c->n_prompt;
    return 0;
}

/* --call ID, ID:TURN: of a request alone its first call. */
static int find_subject(const struct ds_options *o, struct ds_plan_inputs *x, struct ds_error *err)
{
    const char *name = ds_opt_text(o, "call");
    x->subject = 0;
    if (!name)
        return 0;
    for (size_t i = 0; i < x->n_calls; i++) {
        const struct ds_inputs_call *c = &x->calls[i];
        const size_t n = strlen(c->id);
        char turn[24];
        snprintf(turn, sizeof turn, ":%d", c->turn);
        if (strncmp(name, c->id, n) == 0 && (!name[n] || strcmp(name + n, turn) == 0)) {
            x->subject = (int32_t)i;
            return 0;
        }
    }
    ds_fail(err, "--call '%.160s': no turn of the model", name);
    return ds_hint(err, "ID:TURN, turns counted from 0, as in --call %.128s:%d",
                   x->calls[x->n_calls - 1].id, x->calls[x->n_calls - 1].turn);
}

int ds_plan_inputs_prompts(const struct ds_options *o, struct ds_run_plan *p, int32_t neighbours,
                           int sweep, struct ds_error *err)
{
    struct ds_plan_inputs *x = &p->inputs;
    struct ds_header *h = &p->header;
    if (ds_inputs_calls(&x->file, p->tokenizer, p->model->hp.vocab, &x->calls, &x->n_calls, err) !=
        0)
        return ds_prefix(err, "%s", ds_opt_text(o, "inputs"));
    const size_t most = x->n_calls + (size_t)(neighbours > 0 ? neighbours : 0) + 1;
    if ((sweep && find_subject(o, x, err) != 0) ||
        !(h->prompts = ds_calloc(most, sizeof *h->prompts, "prompts", err)))
        return -1;
    if (sweep && add_prompt(p, &x->calls[x->subject], err) != 0)
        return -1;
    for (size_t i = 0; i < x->n_calls; i++) {
        if (sweep && ((int32_t)i == x->subject || (int32_t)h->n_prompts > neighbours))
            continue;
        if (add_prompt(p, &x->calls[i], err) != 0)
            return -1;
    }
    return 0;
}

/* ---- the record -------------------------------------------------------------------------------- */

int ds_plan_inputs_keep(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err)
{
    struct ds_header *h = &p->header;
    struct ds_buf text = {0};
    char *call = NULL, *digest = NULL;
    if (!p->inputs.file.doc)
        return 0;
    if (ds_inputs_text(&p->inputs.file, &text, err) != 0 ||
        ds_plan_add_option(h, "inputs_file", strdup(ds_opt_text(o, "inputs")), err) != 0) {
        ds_buf_free(&text);
        return -1;
    }
    if (asprintf(&digest, "%016" PRIx64, ds_hash(text.data, text.len)) < 0)
        digest = NULL;
    if (ds_plan_add_option(h, "inputs", text.data, err) != 0) {
        free(digest);
        return -1;
    }
    if (ds_plan_add_option(h, "inputs_digest", digest, err) != 0)
        return -1;
    if (p->inputs.subject < 0)
        return 0;
    const struct ds_inputs_call *c = &p->inputs.calls[p->inputs.subject];
    if (asprintf(&call, "%s:%d", c->id, c->turn) < 0)
        call = NULL;
    return ds_plan_add_option(h, "inputs_call", call, err);
}

static const char *option_of(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

int ds_plan_inputs_of(const struct ds_header *h, struct ds_inputs *in, struct ds_error *err)
{
    const char *text = option_of(h, "inputs");
    memset(in, 0, sizeof *in);
    return text ? ds_inputs_parse("the record's inputs", text, strlen(text), NULL, in, err) : 0;
}

/* The record is hostile, and tokenizers change: its prompts must be what its own inputs give here. */
static int check_prompts(const struct ds_header *h, const struct ds_plan_inputs *x,
                         struct ds_error *err)
{
    if (h->n_prompts != x->n_calls)
        return ds_fail(err, "the record has %zu prompts; its inputs have %zu calls", h->n_prompts,
                       x->n_calls);
    for (size_t i = 0; i < x->n_calls; i++) {
        const struct ds_inputs_call *c = &x->calls[i];
        const struct ds_prompt *q = &h->prompts[i];
        size_t k = 0;
        while (k < c->n_prompt && k < q->n_tokens && c->prompt[k] == q->tokens[k])
            k++;
        if (k == c->n_prompt && k == q->n_tokens)
            continue;
        ds_fail(err,
                "the record's inputs give other tokens here than in the record: request '%s', "
                "turn %d, from token %zu of the prompt on",
                c->id, c->turn, k);
        return ds_hint(err, "the model's tokenizer or chat form is another one");
    }
    return 0;
}

int ds_plan_inputs_recorded(struct ds_run_plan *p, struct ds_error *err)
{
    struct ds_plan_inputs *x = &p->inputs;
    memset(x, 0, sizeof *x);
    x->subject = -1;
    if (ds_plan_inputs_of(&p->header, &x->file, err) != 0)
        return -1;
    if (!x->file.doc)
        return 0;
    if (ds_inputs_calls(&x->file, p->tokenizer, p->model->hp.vocab, &x->calls, &x->n_calls, err) !=
        0)
        return ds_prefix(err, "the record's inputs");
    return check_prompts(&p->header, x, err);
}

int ds_plan_inputs_compare(const struct ds_options *o, const struct ds_run_plan *p,
                           struct ds_error *err)
{
    const char *path = ds_opt_text(o, "inputs");
    struct ds_inputs now;
    struct ds_buf text = {0};
    if (!path)
        return 0;
    if (!p->inputs.file.doc) {
        ds_fail(err, "the record was made without --inputs");
        return ds_hint(err, "its prompts are in the record itself");
    }
    if (ds_inputs_read(path, &now, err) != 0)
        return -1;
    int rc = ds_inputs_changes(&p->inputs.file, &now, &text, err);
    for (char *line = text.data, *end; rc == 0 && line && *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        ds_cli_note(o, "%s: %s; replayed as recorded", path, line);
    }
    ds_buf_free(&text);
    ds_inputs_free(&now);
    return rc;
}
