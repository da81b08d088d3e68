/* doctor_model.c: the model that is meant, as far as it is here: clocks in its chat template, sampling defaults
 * that it brings along, the formats of its weights. Reads GGUF files and the JSON files of Hugging Face folders;
 * what is not here is not known. */
#include "cli/doctor.h"

#include "engine/gguf.h"
#include "engine/model.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST_TEXT = 64 << 20 };

/* ---- which model -------------------------------------------------------------------------------- */

static int is_kind(const char *path, mode_t kind)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

const char *ds_doctor_model(const struct ds_doctor_command *c)
{
    const char *name;
    switch (c->engine) {
    case DS_DOCTOR_VLLM:
        name = ds_doctor_flag(c, "--model=");
        return name                                                    ? name
               : c->first < c->n_words && c->words[c->first][0] != '-' ? c->words[c->first]
                                                                       : NULL;
    case DS_DOCTOR_SGLANG:
        return ds_doctor_flag(c, "--model-path=|--model=");
    default:
        name = ds_doctor_value(c, "--model=|-m= env:LLAMA_ARG_MODEL");
        return name ? name : ds_doctor_value(c, "--hf-repo=|-hf=|-hfr= env:LLAMA_ARG_HF_REPO");
    }
}

/* A JSON file of the model's folder; NULL: it is not there or no JSON. */
static json_t *folder_json(const char *folder, const char *file)
{
    char *path = NULL;
    if (!folder || asprintf(&path, "%s/%s", folder, file) < 0)
        return NULL;
    json_t *j = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
    free(path);
    return j;
}

/* The .gguf file of this program's -m. 0; 1: it has none (random:); -1 with err. */
static int own_file(const struct ds_doctor *d, char *path, size_t size, struct ds_error *err)
{
    const char *spec = ds_opt_text(d->o, "model");
    if (strncmp(spec, "random:", strlen("random:")) == 0)
        return 1;
    const int known = ds_model_cache_path(spec, path, size);
    if (known > 0)
        return ds_fail(err, "%s is not in the cache", spec);
    if (known < 0)
        snprintf(path, size, "%s", spec);
    return 0;
}

/* ---- clocks -------------------------------------------------------------------------------------- */

static int judge_template(struct ds_doctor *d, const struct ds_doctor_rule *r,
                          const struct ds_doctor_command *c, const char *text, size_t n,
                          struct ds_error *err)
{
    if (memmem(text, n, "strftime_now", strlen("strftime_now")))
        return ds_doctor_say(d, r, c, DS_DOCTOR_FOUND, err,
                             "the chat template writes the date of the day (strftime_now): another "
                             "prompt every day");
    if (memmem(text, n, "date_string", strlen("date_string")))
        return ds_doctor_say(
            d, r, c, DS_DOCTOR_UNKNOWN, err,
            "the chat template has date_string: some engines put the date of the day "
            "there");
    return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "no clock in the chat template");
}

static int judge_gguf_template(struct ds_doctor *d, const struct ds_doctor_rule *r,
                               const struct ds_doctor_command *c, const char *path,
                               struct ds_error *err)
{
    struct ds_gguf *g;
    struct ds_gguf_str text;
    if (ds_gguf_open(path, &g, err) != 0)
        return -1;
    const int found = ds_gguf_get_str(g, "tokenizer.chat_template", &text, err);
    const int rc = found < 0    ? -1
                   : found == 0 ? ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err,
                                                "the model has no chat template")
                                : judge_template(d, r, c, text.data, text.len, err);
    ds_gguf_close(g);
    return rc;
}

static int judge_template_file(struct ds_doctor *d, const struct ds_doctor_rule *r,
                               const struct ds_doctor_command *c, const char *path,
                               struct ds_error *err)
{
    struct ds_buf text = {0};
    int rc = ds_cli_read_file("chat template", path, LARGEST_TEXT, &text, err);
    if (rc == 0)
        rc = judge_template(d, r, c, text.data ? text.data : "", text.len, err);
    ds_buf_free(&text);
    return rc;
}

/* chat_template.jinja of the folder, else the field of tokenizer_config.json: a text, or texts by name. 1: it
 * has none. */
static int judge_folder_template(struct ds_doctor *d, const struct ds_doctor_rule *r,
                                 const struct ds_doctor_command *c, const char *folder,
                                 struct ds_error *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s/chat_template.jinja", folder) < 0)
        return ds_fail(err, "out of memory for a path");
    if (is_kind(path, S_IFREG)) {
        const int rc = judge_template_file(d, r, c, path, err);
        free(path);
        return rc;
    }
    free(path);
    json_t *config = folder_json(folder, "tokenizer_config.json");
    char *text = json_dumps(json_object_get(config, "chat_template"), JSON_ENCODE_ANY);
    const int rc = text ? judge_template(d, r, c, text, strlen(text), err) : 1;
    free(text);
    json_decref(config);
    return rc;
}

static int unknown_template(struct ds_doctor *d, const struct ds_doctor_rule *r,
                            const struct ds_doctor_command *c, struct ds_error *err)
{
    return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err,
                         "the model's chat template is not here: it may write the date of the day");
}

int ds_doctor_look_clock(struct ds_doctor *d, const struct ds_doctor_rule *r,
                         const struct ds_doctor_command *c, struct ds_error *err)
{
    char path[4096];
    struct ds_error why;
    if (!c) {
        const int own = own_file(d, path, sizeof path, &why);
        if (own < 0 && !ds_opt_given(d->o, "model"))
            return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s", why.msg);
        if (own < 0)
            return ds_fail(err, "%s", why.msg);
        return own ? ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "the model has no chat template")
                   : judge_gguf_template(d, r, c, path, err);
    }
    const char *file = ds_doctor_value(c, "--chat-template-file= env:LLAMA_ARG_CHAT_TEMPLATE_FILE");
    const char *given = file ? file : ds_doctor_flag(c, "--chat-template=");
    if (given && is_kind(given, S_IFREG))
        return judge_template_file(d, r, c, given, err);
    if (given && strstr(given, "{")) /* the template itself */
        return judge_template(d, r, c, given, strlen(given), err);
    const char *model = given ? NULL : ds_doctor_model(c);
    if (model && is_kind(model, S_IFREG))
        return judge_gguf_template(d, r, c, model, err);
    const int rc =
        model && is_kind(model, S_IFDIR) ? judge_folder_template(d, r, c, model, err) : 1;
    return rc == 1 ? unknown_template(d, r, c, err) : rc;
}

/* ---- formats -------------------------------------------------------------------------------------- */

static int is_plain(const char *type)
{
    return strcmp(type, "f32") == 0 || strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0;
}

static int judge_types(struct ds_doctor *d, const struct ds_doctor_rule *r,
                       const struct ds_doctor_command *c, const char *path, struct ds_error *err)
{
    struct ds_gguf *g;
    struct ds_buf names = {0};
    char space[32];
    size_t quantized = 0;
    if (ds_gguf_open(path, &g, err) != 0)
        return -1;
    const size_t n = ds_gguf_tensor_count(g);
    for (size_t i = 0; i < n; i++) {
        const char *type = ds_quant_name(ds_gguf_tensor_at(g, i)->type, space, sizeof space);
        if (is_plain(type))
            continue;
        quantized++;
        if (!names.data || !strstr(names.data, type))
            ds_buf_printf(&names, "%s%s", names.len ? ", " : "", type);
    }
    ds_gguf_close(g);
    const int rc =
        names.failed ? ds_fail(err, "out of memory for formats")
        : quantized  ? ds_doctor_say(d, r, c, DS_DOCTOR_FOUND, err,
                                     "%zu of %zu tensors are %s: every engine multiplies by them in "
                                      "its own way",
                                     quantized, n, names.data)
                     : ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "no tensor is quantized");
    ds_buf_free(&names);
    return rc;
}

/* "Q4_K_M" in a file's or repository's name. */
static int named_quantized(const char *name)
{
    for (const char *p = name; *p; p++) {
        if (p > name && isalnum((unsigned char)p[-1]))
            continue;
        if (((p[0] == 'Q' || p[0] == 'q') && isdigit((unsigned char)p[1]) && p[2] == '_') ||
            (strncasecmp(p, "IQ", 2) == 0 && isdigit((unsigned char)p[2]) && p[3] == '_') ||
            strncasecmp(p, "MXFP4", 5) == 0)
            return 1;
    }
    return 0;
}

static int judge_config(struct ds_doctor *d, const struct ds_doctor_rule *r,
                        const struct ds_doctor_command *c, const char *folder, struct ds_error *err)
{
    json_t *config = folder_json(folder, "config.json");
    const json_t *q = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const int rc =
        !config ? ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s has no config.json", folder)
        : q     ? ds_doctor_say(d, r, c, DS_DOCTOR_FOUND, err,
                                "the model's config.json says quantized (%s): every engine multiplies "
                                    "by such weights in its own way",
                            method ? method : "no method named")
                : ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err,
                                "the model's config.json names no "
                                    "quantization");
    json_decref(config);
    return rc;
}

int ds_doctor_look_quantization(struct ds_doctor *d, const struct ds_doctor_rule *r,
                                const struct ds_doctor_command *c, struct ds_error *err)
{
    char path[4096];
    struct ds_error why;
    if (!c) {
        const int own = own_file(d, path, sizeof path, &why);
        return own < 0 ? ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s", why.msg)
               : own   ? ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "no tensor is quantized")
                       : judge_types(d, r, c, path, err);
    }
    const char *model = ds_doctor_model(c);
    const char *given = c->engine & DS_DOCTOR_GPU_ENGINES
                            ? ds_doctor_flag(c, "--quantization=|-q=|--torchao-config=")
                            : NULL;
    if (given && *given)
        return ds_doctor_say(d, r, c, DS_DOCTOR_FOUND, err,
                             "weights are quantized (%s): other results than without", given);
    if (model && is_kind(model, S_IFREG))
        return judge_types(d, r, c, model, err);
    if (model && is_kind(model, S_IFDIR))
        return judge_config(d, r, c, model, err);
    if (model && named_quantized(model))
        return ds_doctor_say(
            d, r, c, DS_DOCTOR_FOUND, err,
            "%s is quantized, its name says: every engine multiplies by such weights "
            "in its own way",
            model);
    return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err,
                         "the model is not here: it may be quantized");
}

int ds_doctor_look_version(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err)
{
    const char *model = ds_doctor_model(c), *revision = ds_doctor_flag(c, "--revision=");
    if (revision && *revision)
        return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "revision %s", revision);
    if (model && (is_kind(model, S_IFREG) || is_kind(model, S_IFDIR)))
        return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "the model is a file or folder here");
    return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err, "%s%swhatever it is when it is fetched",
                         model ? model : "the model", model ? ": " : " is ");
}

/* ---- sampling defaults ------------------------------------------------------------------------------ */

/* Settings of a generation config, with the value at which each does nothing at temperature 0. "temperature"
 * is one itself. Only those behind it act on the greedy choice. */
static const struct {
    const char *name;
    double idle, idle_too;
    int greedy; /* acts on the choice at temperature 0 */
} settings[] = {{"temperature", 0, 0, 1},
                {"repetition_penalty", 1, 1, 1},
                {"presence_penalty", 0, 0, 1},
                {"frequency_penalty", 0, 0, 1},
                {"top_k", 0, -1, 0},
                {"top_p", 1, 1, 0},
                {"min_p", 0, 0, 0}};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

/* Adds "repetition_penalty 1.05, top_k 20"; how many. */
static size_t list_settings(const json_t *j, int all, struct ds_buf *out)
{
    size_t n = 0;
    for (int i = 0; i < N_SETTINGS; i++) {
        const json_t *v = json_object_get(j, settings[i].name);
        const double x = json_number_value(v);
        if (!json_is_number(v) || !(x < settings[i].idle || x > settings[i].idle) ||
            !(x < settings[i].idle_too || x > settings[i].idle_too) || !(all || settings[i].greedy))
            continue;
        ds_buf_printf(out, "%s%s %g", n++ ? ", " : "", settings[i].name, x);
    }
    return n;
}

static int judge_defaults(struct ds_doctor *d, const struct ds_doctor_rule *r,
                          const struct ds_doctor_command *c, const char *folder,
                          struct ds_error *err)
{
    json_t *j = folder_json(folder, "generation_config.json");
    struct ds_buf names = {0};
    const size_t n = list_settings(j, 1, &names);
    json_decref(j);
    const int rc =
        names.failed ? ds_fail(err, "out of memory for settings")
        : n          ? ds_doctor_say(
                           d, r, c, DS_DOCTOR_FOUND, err,
                           "generation_config.json sets %s for requests that do not; a penalty acts at "
                                    "temperature 0, too",
                           names.data)
            : ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err,
                            "no generation_config.json that sets "
                            "anything");
    ds_buf_free(&names);
    return rc;
}

int ds_doctor_look_defaults(struct ds_doctor *d, const struct ds_doctor_rule *r,
                            const struct ds_doctor_command *c, struct ds_error *err)
{
    const int vllm = c->engine == DS_DOCTOR_VLLM;
    const char *given = ds_doctor_flag(c, vllm ? "--generation-config=" : "--sampling-defaults=");
    if (given && strcmp(given, vllm ? "vllm" : "openai") == 0)
        return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err,
                             "the engine's own sampling defaults, not the model's");
    const char *folder = vllm && given && strcmp(given, "auto") != 0 ? given : ds_doctor_model(c);
    if (folder && is_kind(folder, S_IFDIR))
        return judge_defaults(d, r, c, folder, err);
    return ds_doctor_say(
        d, r, c, DS_DOCTOR_UNKNOWN, err,
        "the model's generation_config.json, which is not here, may set penalties and "
        "a temperature for requests that do not");
}

/* What one flag of the two forms says: its JSON, or keys of it, "--override-generation-config.top_k 5". NULL: no JSON object. */
static json_t *read_override(const struct ds_doctor_command *c, const char *flag, const char *given)
{
    json_t *j = json_object();
    const char *key, *value;
    if (given && *given == '{') {
        json_decref(j);
        j = json_loads(given, 0, NULL);
    }
    for (size_t at = 0; j && (key = ds_doctor_key(c, flag, &at, &value));) {
        char name[64];
        json_t *x = json_loads(value, JSON_DECODE_ANY, NULL);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "="), key);
        json_object_set_new(j, name, x ? x : json_string(value));
    }
    return j;
}

/* What temperature 0 makes of the filters, as the engine's source has it (doctor_rules.c: [vp], [sp]). */
int ds_doctor_look_filters(struct ds_doctor *d, const struct ds_doctor_rule *r,
                           const struct ds_doctor_command *c, struct ds_error *err)
{
    return ds_doctor_say(
        d, r, c, DS_DOCTOR_FIXED, err, "%s",
        c->engine == DS_DOCTOR_VLLM
            ? "a request at temperature 0 is greedy: vLLM ignores its top-k, top-p and min-p, "
              "wherever they are set; penalties act"
            : "a request at temperature 0 is one with top-k 1: top-p and min-p leave SGLang's "
              "best token; penalties act");
}

int ds_doctor_look_override(struct ds_doctor *d, const struct ds_doctor_rule *r,
                            const struct ds_doctor_command *c, struct ds_error *err)
{
    static const char flag[] = "--override-generation-config";
    const char *given = ds_doctor_flag(c, "--override-generation-config=");
    struct ds_buf names = {0};
    size_t at = 0;
    const char *value;
    const int keys = ds_doctor_key(c, flag, &at, &value) != NULL;
    if (!given)
        return ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err, "no --override-generation-config");
    json_t *j = keys || *given == '{' ? read_override(c, flag, given) : NULL;
    if (!json_is_object(j)) {
        json_decref(j);
        return ds_doctor_say(d, r, c, DS_DOCTOR_UNKNOWN, err,
                             "--override-generation-config %s is no JSON object", given);
    }
    const size_t n = list_settings(j, 0, &names);
    json_decref(j);
    const int rc =
        names.failed ? ds_fail(err, "out of memory for settings")
        : n          ? ds_doctor_say(d, r, c, DS_DOCTOR_FOUND, err,
                                     "requests that set nothing get %s: it acts on the choice", names.data)
                     : ds_doctor_say(d, r, c, DS_DOCTOR_FIXED, err,
                                     "--override-generation-config sets nothing that acts at "
                                              "temperature 0");
    ds_buf_free(&names);
    return rc;
}
