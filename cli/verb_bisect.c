/* verb_bisect.c: `driftscope bisect`: which kernels bring a difference in. Owns the state file and
 * signals; the search is the engine's. */
#include "cli/cli.h"
#include "cli/lab_kernels.h"
#include "cli/options.h"
#include "cli/render_bisect.h"
#include "cli/run_plan.h"

#include "base/mem.h"
#include "dumps/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
    const struct ds_options *o;
    struct ds_run_plan plan;
    struct ds_factor_values kernels;
    struct ds_bisect b;
    struct ds_sweep sweep;
    struct ds_bisect_view view;
    uint64_t identity; /* of everything that an outcome depends on */
    const char *state; /* file, or NULL */
};

/* ---- the state file -------------------------------------------------------------------------- */

/* Text: a line that names the format and the search, then "SET OUTCOME" lines. */
static const char FORMAT[] = "driftscope.bisect.state/1";

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return (h ^ n) * UINT64_C(0x100000001b3);
}

static uint64_t identity_of(const struct search *s)
{
    const struct ds_header *h = &s->plan.header;
    uint64_t id = UINT64_C(0xcbf29ce484222325);
    id = mix(id, &h->model_digest, sizeof h->model_digest);
    for (size_t i = 0; i < h->n_prompts; i++)
        id = mix(id, h->prompts[i].tokens, h->prompts[i].n_tokens * sizeof(int32_t));
    for (size_t k = 0; k < h->n_factors; k++) {
        id = mix(id, s->b.a[k], strlen(s->b.a[k]));
        id = mix(id, s->b.b[k], strlen(s->b.b[k]));
    }
    for (size_t i = 0; i < s->kernels.n; i++)
        id = mix(id, s->kernels.value[i], strlen(s->kernels.value[i]));
    for (size_t i = 0; i < h->n_options; i++)
        id = mix(id, h->options[i].value, strlen(h->options[i].value));
    for (size_t i = 0; i < h->n_environment; i++)
        id = mix(id, h->environment[i].value, strlen(h->environment[i].value));
    int32_t how[] = {s->b.per_layer, s->b.tokens, s->b.condition, s->plan.options.repeats};
    return mix(id, how, sizeof how);
}

static int save_state(void *ctx, const struct ds_bisect *b, struct ds_error *err)
{
    struct search *s = ctx;
    ds_cli_progress(s->o, "sets", b->sets_tried, b->sets_tried + (double)b->n_atoms);
    if (!s->state)
        return 0;
    struct ds_buf beside = {0};
    ds_buf_printf(&beside, "%s.new", s->state);
    FILE *f = beside.failed ? NULL : fopen(beside.data, "w");
    int ok = f && fprintf(f, "%s %016" PRIx64 "\n", FORMAT, s->identity) > 0;
    for (size_t i = 0; ok && i < b->n_known; i++)
        ok = fprintf(f, "%s %d\n", b->known[i].set, b->known[i].outcome) > 0;
    ok = f && !ferror(f) && ok;
    ok = f && fclose(f) == 0 && ok && rename(beside.data, s->state) == 0;
    if (!ok) {
        ds_fail(err, "%s: cannot be written: %s", s->state, strerror(errno));
        if (f)
            unlink(beside.data);
    }
    ds_buf_free(&beside);
    return ok ? 0 : -1;
}

static int read_line(struct search *s, const char *line, size_t number, struct ds_error *err)
{
    struct ds_bisect *b = &s->b;
    size_t n = strspn(line, "01");
    if (n != b->n_atoms || line[n] != ' ' || line[n + 1] < '0' || line[n + 1] > '2' ||
        (line[n + 2] != '\n' && line[n + 2] != '\0'))
        return ds_fail(err, "%s: line %zu is no outcome of this search", s->state, number);
    char *set = ds_calloc(n + 1, 1, "a set", err);
    if (!set || ds_grow(&b->known, &b->cap_known, b->n_known + 1, sizeof *b->known, "known sets",
                        err) != 0) {
        free(set);
        return -1;
    }
    memcpy(set, line, n);
    b->known[b->n_known++] = (struct ds_bisect_known){set, line[n + 1] - '0'};
    return 0;
}

static int read_state(struct search *s, struct ds_error *err)
{
    FILE *f = s->state ? fopen(s->state, "r") : NULL;
    if (!f)
        return !s->state || errno == ENOENT
                   ? 0
                   : ds_fail(err, "%s: cannot be opened: %s", s->state, strerror(errno));
    char *line = NULL, want[64];
    size_t cap = 0, number = 1;
    int rc = 0;
    snprintf(want, sizeof want, "%s %016" PRIx64 "\n", FORMAT, s->identity);
    if (getline(&line, &cap, f) < 0 || strcmp(line, want) != 0) {
        rc = ds_fail(err, "%s: is not the state of this search", s->state);
        ds_hint(err, "another model, prompt, set, option or environment makes another search: give "
                     "a new file, or remove this one");
    }
    while (rc == 0 && getline(&line, &cap, f) >= 0)
        rc = read_line(s, line, ++number, err);
    free(line);
    fclose(f);
    return rc;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The two sets: those of --kernels, or one and pinned. */
static int choose_sets(struct search *s, struct ds_error *err)
{
    if (ds_factor_parse(DS_FACTOR_KERNELS, ds_opt_text(s->o, "kernels"), &s->kernels, err) != 0)
        return -1;
    if (s->kernels.n > 2)
        return ds_fail(err, "--kernels names %zu sets: two can be compared", s->kernels.n);
    s->view.from = s->kernels.value[0];
    s->view.to = s->kernels.n == 2 ? s->kernels.value[1] : "pinned";
    return ds_kernel_set_parse_on(ds_lab_device(s->o), s->view.from, &s->b.from, err) != 0 ||
                   ds_kernel_set_parse_on(ds_lab_device(s->o), s->view.to, &s->b.to, err) != 0
               ? -1
               : 0;
}

/* The two arms: those of the one factor with two values; none: arm 0 twice. */
static int choose_arms(struct search *s, struct ds_error *err)
{
    const struct ds_header *h = &s->plan.header;
    const char *first = NULL;
    s->b.a = s->b.b = h->arms[0].values;
    for (size_t f = 0; f < h->n_factors; f++) {
        if (strcmp(h->factors[f], ds_factor_names[DS_FACTOR_KERNELS]) == 0)
            continue;
        for (size_t i = 1; i < h->n_arms; i++) {
            if (strcmp(h->arms[i].values[f], h->arms[0].values[f]) == 0)
                continue;
            if (first && strcmp(first, h->factors[f]) != 0)
                return ds_fail(err, "--%s and --%s both have several values: a search is about one",
                               first, h->factors[f]);
            if (first && strcmp(s->b.b[f], h->arms[i].values[f]) != 0)
                return ds_fail(err, "--%s has more than two values: a search is about two",
                               h->factors[f]);
            first = h->factors[f];
            s->b.b = first ? h->arms[i].values : s->b.b;
            s->view.value_a = h->arms[0].values[f];
            s->view.value_b = h->arms[i].values[f];
        }
    }
    s->view.factor = first;
    s->b.condition = first != NULL;
    if (!first && s->kernels.n < 2) {
        ds_fail(err, "one kernel set and no factor with two values: nothing to compare");
        return ds_hint(err, "give --batch 1,8, say, or a second set");
    }
    return 0;
}

static int set_up(struct search *s, struct ds_error *err)
{
    char kernels[2048];
    if (choose_sets(s, err) != 0)
        return -1;
    int n = snprintf(kernels, sizeof kernels, "%s,%s", s->view.from, s->view.to);
    if (n < 0 || (size_t)n >= sizeof kernels)
        return ds_fail(err, "--kernels is too long");
    /* Both sets are arms of the plan, so that every site that either wants is there. */
    if (ds_run_plan_with(s->o, kernels, &s->plan, err) != 0 || choose_arms(s, err) != 0)
        return -1;
    s->plan.options.resid_only = 1; /* the answer is compared: few digests are enough */
    s->plan.options.dump = 0;
    s->b.per_layer = ds_opt_flag(s->o, "per-layer");
    s->b.tokens = strcmp(ds_opt_text(s->o, "compare"), "tokens") == 0;
    s->state = ds_opt_text(s->o, "state");
    s->view.model = s->plan.header.model_name;
    s->sweep = (struct ds_sweep){.model = s->plan.model,
                                 .options = s->plan.options,
                                 .header = &s->plan.header,
                                 .requests = s->plan.requests,
                                 .n_requests = s->plan.n_requests,
                                 .forced = s->plan.n_forced ? s->plan.forced : NULL,
                                 .n_forced = s->plan.n_forced,
                                 .stop = ds_cli_stop()};
    s->b.sweep = &s->sweep;
    s->b.ctx = s;
    s->b.tried = save_state;
    s->view.b = &s->b;
    if (ds_bisect_atoms(&s->b, err) != 0)
        return -1;
    s->identity = identity_of(s);
    return read_state(s, err);
}

/* The sets that show the two answers, as --kernels takes them. */
static int name_sets(struct search *s, struct ds_error *err)
{
    const struct ds_bisect *b = &s->b;
    uint8_t *other = ds_calloc(b->n_atoms, 1, "kernels", err);
    if (!other || b->result != DS_BISECT_FOUND) {
        free(other);
        return other ? 0 : -1;
    }
    for (size_t i = 0; i < b->n_atoms; i++)
        other[i] = !(b->condition ? b->cause[i] : b->cure[i]);
    s->view.set_cause = ds_bisect_set_text(b, b->condition ? other : b->cause, err);
    s->view.set_cure = ds_bisect_set_text(b, b->condition ? b->cure : other, err);
    free(other);
    return s->view.set_cause && s->view.set_cure ? 0 : -1;
}

static int report(struct search *s, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = name_sets(s, err);
    if (rc == 0 && ds_opt_flag(s->o, "json"))
        rc = ds_render_bisect_json(&s->view, &out, err);
    else if (rc == 0)
        ds_render_bisect_text(&s->view, &out);
    if (rc == 0)
        rc = ds_cli_emit(s->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

static int search(struct search *s, struct ds_error *err)
{
    if (ds_lab_choose_device(s->o, err) != 0 || set_up(s, err) != 0)
        return ds_cli_error(s->o, err);
    int rc = ds_bisect_run(&s->b, err);
    ds_cli_progress(s->o, "", -1, 0);
    if (rc != 0)
        return ds_cli_error(s->o, err);
    if (s->b.result == DS_BISECT_INTERRUPTED) {
        ds_cli_note(s->o,
                    s->state ? "interrupted: %zu tried sets are in %s; the same command goes "
                               "on from there"
                             : "interrupted: %zu sets were tried; --state FILE keeps them%s",
                    s->b.n_known, s->state ? s->state : "");
        return DS_EXIT_INTERRUPTED;
    }
    if (report(s, err) != 0)
        return ds_cli_error(s->o, err);
    return ds_cli_exit(s->o, s->b.result == DS_BISECT_SAME ? DS_EXIT_SAME : DS_EXIT_DRIFT);
}

int ds_verb_bisect(const struct ds_options *o)
{
    struct search s = {.o = o};
    struct ds_error err = {{0}, {0}};
    ds_cli_stop_on_signal();
    int code = search(&s, &err);
    free(s.view.set_cause);
    free(s.view.set_cure);
    ds_bisect_free(&s.b);
    ds_factor_free(&s.kernels);
    ds_run_plan_free(&s.plan);
    return code;
}
