/* render_inputs.c: --inputs in words and as JSON, for storm and replay: what the file holds, and at which call a conversation
 * leaves the recording. Owns how it is told; inputs_judge.c judges. See storm.h. */
#include "cli/cli.h"
#include "cli/storm.h"

#include "base/mem.h"
#include "base/plural.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 5 };

static const char *file_of(const struct ds_storm_setup *s)
{
    const struct ds_header *h = &s->plan.header;
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "inputs_file") == 0)
            return h->options[i].value;
    return "";
}

/* ---- what the file holds ----------------------------------------------------------------------- */

/* Calls `take` for each text, those of the file first; request NULL: of the file. */
static void each_text(const struct ds_inputs *in,
                      void (*take)(void *ctx, const char *request, const char *name,
                                   const json_t *text),
                      void *ctx)
{
    const json_t *requests = json_object_get(in->doc, "requests");
    const char *name;
    json_t *text;
    json_object_foreach(json_object_get(in->doc, "texts"), name, text)
    {
        take(ctx, NULL, name, text);
    }
    for (size_t i = 0; i < json_array_size(requests); i++) {
        json_t *r = json_array_get(requests, i);
        json_object_foreach(json_object_get(r, "texts"), name, text)
        {
            take(ctx, json_string_value(json_object_get(r, "id")), name, text);
        }
    }
}

struct text_list {
    struct ds_buf *out;
    size_t n;
};

static void text_line(void *ctx, const char *request, const char *name, const json_t *text)
{
    struct text_list *l = ctx;
    if (l->n++ >= MOST_LISTED)
        return;
    ds_buf_printf(l->out, "%-14stext ", "");
    if (request) {
        ds_buf_escape(l->out, request, (size_t)-1);
        ds_buf_puts(l->out, ": ");
    }
    ds_buf_printf(l->out, "%s %s", name, json_string_value(json_object_get(text, "digest")));
    if (json_object_get(text, "from")) {
        ds_buf_puts(l->out, ", from ");
        ds_buf_escape(l->out, json_string_value(json_object_get(text, "from")), (size_t)-1);
    }
    ds_buf_puts(l->out, "\n");
}

void ds_inputs_head_text(const struct ds_storm_setup *s, struct ds_buf *out)
{
    const struct ds_inputs *in = &s->plan.inputs.file;
    struct ds_inputs_scope scope;
    struct ds_error unused;
    struct text_list list = {.out = out};
    if (!in->doc || ds_inputs_scope_of(in, 0, &scope, &unused) != 0)
        return;
    ds_buf_printf(out, "%-14s", "inputs");
    ds_buf_escape(out, file_of(s), (size_t)-1);
    ds_buf_printf(out, ": %zu conversation%s, %zu call%s of the model", in->n_requests,
                  ds_plural(in->n_requests), s->plan.inputs.n_calls,
                  ds_plural(s->plan.inputs.n_calls));
    if (scope.clock.given)
        ds_buf_printf(out, "; clock %s", scope.clock.text);
    ds_buf_puts(out, "\n");
    each_text(in, text_line, &list);
    if (list.n > MOST_LISTED)
        ds_buf_printf(out, "%-14sand %zu more texts\n", "", list.n - MOST_LISTED);
}

static void text_json(void *ctx, const char *request, const char *name, const json_t *text)
{
    json_t *j = json_object();
    json_object_set_new(j, "request", ds_json_text(request));
    json_object_set_new(j, "name", ds_json_text(name));
    json_object_set_new(j, "digest",
                        ds_json_text(json_string_value(json_object_get(text, "digest"))));
    json_object_set_new(j, "from", ds_json_text(json_string_value(json_object_get(text, "from"))));
    json_array_append_new(ctx, j);
}

static json_t *requests_json(const struct ds_inputs *in)
{
    json_t *list = json_array();
    for (size_t i = 0; i < in->n_requests; i++) {
        const json_t *r = json_array_get(json_object_get(in->doc, "requests"), i);
        struct ds_inputs_scope scope;
        struct ds_error unused;
        json_t *j = json_object();
        const int known = ds_inputs_scope_of(in, i, &scope, &unused) == 0 && scope.clock.given;
        json_object_set_new(j, "id", ds_json_text(json_string_value(json_object_get(r, "id"))));
        json_object_set_new(j, "clock", known ? ds_json_text(scope.clock.text) : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

json_t *ds_inputs_json(const struct ds_storm_setup *s)
{
    const struct ds_inputs *in = &s->plan.inputs.file;
    json_t *j = json_object(), *texts = json_array();
    if (!in->doc) {
        json_decref(j);
        json_decref(texts);
        return json_null();
    }
    each_text(in, text_json, texts);
    json_object_set_new(j, "file", ds_json_text(file_of(s)));
    json_object_set_new(j, "calls", ds_json_whole(s->plan.inputs.n_calls));
    json_object_set_new(j, "requests", requests_json(in));
    json_object_set_new(j, "texts", texts);
    return j;
}

/* ---- what came of it --------------------------------------------------------------------------- */

void ds_inputs_call_text(const struct ds_storm_setup *s, int64_t request, struct ds_buf *out)
{
    const struct ds_plan_inputs *x = &s->plan.inputs;
    if (!x->calls || request < 0)
        return;
    const struct ds_inputs_call *c = &x->calls[(size_t)request % x->n_calls];
    ds_buf_puts(out, " (");
    ds_buf_escape(out, c->id, (size_t)-1);
    ds_buf_printf(out, ", turn %d)", c->turn);
}

/* Whether the other token only spells the recorded text in other pieces. */
static int same_text(const struct ds_storm_setup *s, const struct ds_inputs_followed *f)
{
    const struct ds_inputs_call *c = &s->plan.inputs.calls[f->call];
    struct ds_buf got = {0}, want = {0};
    int rc = s->plan.tokenizer ? ds_tokenizer_decode(s->plan.tokenizer, f->id, 1, &got, NULL) : -1;
    for (size_t k = (size_t)f->token; rc == 0 && k < c->n_expect && want.len < got.len; k++)
        rc = ds_tokenizer_decode(s->plan.tokenizer, c->expect[k], 1, &want, NULL);
    const size_t n = got.len < want.len ? got.len : want.len;
    const int same = rc == 0 && n > 0 && memcmp(got.data, want.data, n) == 0;
    ds_buf_free(&got);
    ds_buf_free(&want);
    return same;
}

static void parting_text(const struct ds_storm_setup *s, const struct ds_inputs_followed *f,
                         struct ds_buf *out)
{
    const struct ds_inputs_call *c = &s->plan.inputs.calls[f->call];
    ds_buf_printf(out, "%-14s", "");
    ds_buf_escape(out, c->id, (size_t)-1);
    ds_buf_printf(out, " stops at turn %d: token %d is ", c->turn, f->token);
    ds_storm_token(s, f->id, out);
    ds_buf_puts(out, ", recorded ");
    ds_storm_token(s, f->expected, out);
    ds_buf_printf(out, " (request %d)\n%-14s", f->request, "");
    if (f->ties > 1)
        ds_buf_printf(out, "%d tokens tie there", f->ties);
    else
        ds_buf_printf(out, "margin %.3g nats", (double)f->margin);
    if (f->behind >= 0)
        ds_buf_printf(out, ", the recorded one %.3g below the best", f->behind);
    else
        ds_buf_puts(out, ", the recorded one not among the best 8");
    if (same_text(s, f))
        ds_buf_puts(out, "; the same text in other tokens, so far");
    if (f->copies > 1)
        ds_buf_printf(out, "; %zu of %zu copies follow", f->followed, f->copies);
    if (f->left_out)
        ds_buf_printf(out, "; %llu later call%s not judged", (unsigned long long)f->left_out,
                      f->left_out == 1 ? " is" : "s are");
    ds_buf_puts(out, "\n");
}

void ds_inputs_followed_text(const struct ds_storm_setup *s, const char *kernels,
                             const struct ds_inputs_followed *list, size_t n, struct ds_buf *out)
{
    size_t copies = 0, followed = 0, listed = 0;
    uint64_t judged = 0;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        copies += list[i].copies;
        followed += list[i].followed;
        judged += list[i].judged;
    }
    ds_buf_printf(out, "%-14s", "recorded");
    ds_buf_escape(out, kernels, (size_t)-1);
    ds_buf_printf(
        out,
        ": %zu of %zu conversation%s follow%s the recording to the end; %llu call%s held against "
        "it\n",
        followed, copies, ds_plural(copies), copies == 1 ? "s" : "", (unsigned long long)judged,
        ds_plural(judged));
    for (size_t i = 0; i < n; i++) {
        if (list[i].parted == 0)
            continue;
        if (listed++ < MOST_LISTED)
            parting_text(s, &list[i], out);
    }
    if (listed > MOST_LISTED)
        ds_buf_printf(out, "%-14sand %zu more\n", "", listed - MOST_LISTED);
}

static json_t *token_json(const struct ds_storm_setup *s, int32_t id)
{
    struct ds_buf text = {0};
    json_t *j = json_null();
    if (s->plan.tokenizer && ds_tokenizer_decode(s->plan.tokenizer, id, 1, &text, NULL) == 0) {
        ds_buf_puts(&text, "");
        j = ds_json_text(text.data);
    }
    ds_buf_free(&text);
    return j;
}

json_t *ds_inputs_followed_json(const struct ds_storm_setup *s,
                                const struct ds_inputs_followed *list, size_t n)
{
    json_t *all = s->plan.inputs.file.doc ? json_array() : json_null();
    for (size_t i = 0; i < n; i++) {
        const struct ds_inputs_followed *f = &list[i];
        json_t *j = json_object(), *first = json_null();
        json_object_set_new(j, "id", ds_json_text(s->plan.inputs.calls[f->first].id));
        json_object_set_new(j, "copies", ds_json_whole(f->copies));
        json_object_set_new(j, "followed", ds_json_whole(f->followed));
        json_object_set_new(j, "parted", ds_json_whole(f->parted));
        json_object_set_new(j, "calls_judged", ds_json_whole(f->judged));
        json_object_set_new(j, "calls_left_out", ds_json_whole(f->left_out));
        if (f->parted) {
            first = json_object();
            json_object_set_new(first, "turn", json_integer(s->plan.inputs.calls[f->call].turn));
            json_object_set_new(first, "request", json_integer(f->request));
            json_object_set_new(first, "token", json_integer(f->token));
            json_object_set_new(first, "got", json_integer(f->id));
            json_object_set_new(first, "got_text", token_json(s, f->id));
            json_object_set_new(first, "expected", json_integer(f->expected));
            json_object_set_new(first, "expected_text", token_json(s, f->expected));
            json_object_set_new(first, "margin", ds_json_real((double)f->margin));
            json_object_set_new(first, "behind", ds_json_real(f->behind));
            json_object_set_new(first, "ties", json_integer(f->ties));
            json_object_set_new(first, "same_text", json_boolean(same_text(s, f)));
        }
        json_object_set_new(j, "first_parting", first);
        json_array_append_new(all, j);
    }
    return all;
}

/* ---- of an arm --------------------------------------------------------------------------------- */

int ds_inputs_parted(const struct ds_inputs_followed *list, size_t n)
{
    int parted = 0;
    for (size_t i = 0; i < n; i++)
        parted |= list[i].parted > 0;
    return parted;
}
