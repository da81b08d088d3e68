/* doctor_options.c: options of a launch line that no rule knows, as they are not judged or are misspelt. Owns the names of those that
 * change no result; what the others say is doctor_rules.c's. */
#include "cli/doctor.h"

#include "base/mem.h"
#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read elsewhere (doctor_model.c, doctor_config.c), or of no matter to results: addresses, logs, limits. */
static const struct {
    unsigned scope;
    const char *spec;
} other_options[] = {
    {DS_DOCTOR_GPU_ENGINES,
     "--config=|--generation-config=|--override-generation-config=|--"
     "sampling-defaults=|--quantization=|-q=|--torchao-config=|"
     "--revision=|--model=|--model-path=|--chat-template=|--host=|--port=|--"
     "uds=|--api-key=|--served-model-name=|--tokenizer=|"
     "--tokenizer-path=|--trust-remote-code|--download-dir=|--max-model-len="
     "|--context-length=|--uvicorn-log-level=|--log-level=|"
     "--log-requests|--disable-log-requests|--disable-log-stats|--enable-"
     "log-requests|--enable-metrics|--node-rank=|--nccl-port=|"
     "--dist-init-addr=|--nnodes=|--enable-auto-tool-choice|--tool-call-"
     "parser=|--reasoning-parser=|--gpu-memory-utilization=|--mem-fraction-static=|--async-"
     "scheduling|--no-async-scheduling|--cuda-graph-max-bs=|--cuda-graph-bs=|--schedule-"
     "conservativeness=|--swap-space=|--watchdog-timeout="},
    {DS_DOCTOR_LLAMA,
     "--model=|-m=|--hf-repo=|-hf=|-hfr=|--chat-template=|--chat-template-file=|--host=|--port=|--"
     "alias=|-a=|--api-key=|--log-file=|"
     "--ctx-size=|-c=|--predict=|--n-predict=|-n=|--prompt=|-p=|--file=|-f=|--jinja|--no-webui|--"
     "verbose|-v|--threads-http=|--metrics|"
     "--slots|--no-mmap|--mlock|-cnv|-no-cnv|--no-warmup|--timeout=|-to=|--models-preset="},
};
enum { N_OTHER = sizeof other_options / sizeof other_options[0], MOST_NAMES = 1024 };

/* Calls fn with every list of flags that counts for these engines; stops where it returns 1. */
static int each_spec(unsigned engines, int (*fn)(void *ctx, const char *spec), void *ctx)
{
    for (size_t i = 0; i < ds_doctor_rule_count; i++)
        if (ds_doctor_rules[i].source && (ds_doctor_rules[i].scope & engines) &&
            fn(ctx, ds_doctor_rules[i].source))
            return 1;
    for (size_t i = 0; i < ds_doctor_guard_count; i++)
        if (ds_doctor_guards[i].source && (ds_doctor_guards[i].scope & engines) &&
            fn(ctx, ds_doctor_guards[i].source))
            return 1;
    for (size_t i = 0; i < N_OTHER; i++)
        if ((other_options[i].scope & engines) && fn(ctx, other_options[i].spec))
            return 1;
    return 0;
}

struct asked {
    const struct ds_doctor_command *c;
    const char *word;
};

static int means(void *ctx, const char *spec)
{
    const struct asked *a = ctx;
    return ds_doctor_means(a->c, a->word, spec);
}

/* ---- misspelt ------------------------------------------------------------------------------------ */

struct names {
    char *at[MOST_NAMES];
    size_t n;
};

static int add_names(void *ctx, const char *spec)
{
    struct names *x = ctx;
    for (const char *p = spec; *p && strncmp(p, "env:", 4) != 0;) {
        const size_t len = strcspn(p, "| "), skip = *p == '!',
                     n = len - skip - (len > 0 && p[len - 1] == '=');
        if (n > 3 && x->n < MOST_NAMES && (x->at[x->n] = strndup(p + skip, n)))
            x->n++;
        p += len + (p[len] != '\0');
    }
    return 0;
}

/* The known name, of any engine, that a word is spelled like; "" none. */
static void spelled_like(const char *word, char *out, size_t size)
{
    struct names x = {.n = 0};
    char *name = strndup(word, strcspn(word, "="));
    each_spec(DS_DOCTOR_ENGINES, add_names, &x);
    const int at = name ? ds_nearest(name, (const char *const *)x.at, x.n) : -1;
    snprintf(out, size, "%s", at >= 0 ? x.at[at] : "");
    for (size_t i = 0; i < x.n; i++)
        free(x.at[i]);
    free(name);
}

int ds_doctor_look_options(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err)
{
    struct ds_buf unknown = {0}, spelled = {0};
    for (size_t i = c->first; i < c->n_words; i++) {
        const struct asked a = {c, c->words[i]};
        const int n = (int)strcspn(a.word, "=");
        char like[64];
        if (!ds_doctor_looks_like_flag(a.word) ||
            each_spec(c->engine, means, (void *)(uintptr_t)&a))
            continue;
        ds_buf_printf(&unknown, "%s%.*s", unknown.len ? ", " : "", n, a.word);
        spelled_like(a.word, like, sizeof like);
        if (like[0])
            ds_buf_printf(&spelled, "; %.*s is spelled like %s", n, a.word, like);
    }
    const int rc = unknown.failed || spelled.failed ? ds_fail(err, "out of memory for options")
                   : unknown.len
                       ? ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err,
                                       "not known to this list, and so not judged: %s%s",
                                       unknown.data, spelled.data ? spelled.data : "")
                       : ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "all are known to this list");
    ds_buf_free(&unknown);
    ds_buf_free(&spelled);
    return rc;
}
