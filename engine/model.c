/* model.c: opening and closing a model, finding named ones in the cache, the rope table. Owns what
 * a MODEL argument means; knows no file format. */
#include "engine/model_priv.h"

#include "base/mem.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- names in the cache ---------------------------------------------------------------------- */

static const struct {
    const char *name, *file;
} cached[] = {
    {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
};

/* The folder's two parts, or -1 when no variable names one. A relative XDG folder is to be ignored
 * by its specification. */
static int cache_folder(const char **base, const char **below)
{
    const char *own = getenv("DRIFTSCOPE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (own && *own) {
        *base = own;
        *below = "";
    } else if (xdg && *xdg == '/') {
        *base = xdg;
        *below = "/driftscope";
    } else if (home && *home) {
        *base = home;
        *below = "/.cache/driftscope";
    } else {
        return -1;
    }
    return 0;
}

int ds_model_cache_path(const char *name, char *path, size_t size)
{
    size_t i = 0;
    while (i < COUNT(cached) && strcmp(name, cached[i].name) != 0)
        i++;
    if (size)
        path[0] = '\0';
    if (i == COUNT(cached))
        return -1;
    const char *base, *below;
    if (cache_folder(&base, &below))
        return 1;
    int n = snprintf(path, size, "%s%s/%s", base, below, cached[i].file);
    if (n < 0 || (size_t)n >= size) {
        if (size)
            path[0] = '\0';
        return 1;
    }
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? 0 : 1;
}

/* ---- open, close ----------------------------------------------------------------------------- */

/* A word that is neither a file nor a known name. */
static int no_such_model(const char *spec, struct ds_error *err)
{
    const char *names[COUNT(cached) + 1];
    for (size_t i = 0; i < COUNT(cached); i++)
        names[i] = cached[i].name;
    names[COUNT(cached)] = "random:llama";
    ds_fail(err, "%.300s: no such file, and no model of that name is known", spec);
    int near = ds_nearest(spec, names, COUNT(names));
    if (near >= 0)
        return ds_hint(err, "did you mean \"%s\"?", names[near]);
    return ds_hint(err,
                   "a model is a .gguf file, \"smollm2\", or random:llama,layers=4,hidden=64,...");
}

static int open_path(const char *path, int keep, int threads, struct ds_model **out,
                     struct ds_error *err)
{
    if (strlen(path) >= sizeof(*out)->path)
        return ds_fail(err, "the path is longer than %zu bytes: %.100s...", sizeof(*out)->path - 1,
                       path);
    struct ds_gguf *g;
    struct ds_model *m;
    if (ds_gguf_open(path, &g, err) || ds_model_from_gguf(g, keep, threads, &m, err))
        return -1;
    const char *slash = strrchr(path, '/');
    snprintf(m->name, sizeof m->name, "%s", slash && slash[1] ? slash + 1 : path);
    snprintf(m->path, sizeof m->path, "%s", path);
    *out = m;
    return 0;
}

int ds_model_open(const char *spec, int threads, struct ds_model **out, struct ds_error *err)
{
    return ds_model_open_as(spec, DS_WEIGHTS_F32, threads, out, err);
}

int ds_model_open_as(const char *spec, int keep, int threads, struct ds_model **out,
                     struct ds_error *err)
{
    *out = NULL;
    if (strncmp(spec, "random:", strlen("random:")) == 0) {
        if (keep == DS_WEIGHTS_F32)
            return ds_model_from_random(spec, threads, out, err);
        ds_fail(err, "%.200s: a random model has no file whose format its weights could keep",
                spec);
        return ds_hint(err, "use --weights f32");
    }
    char path[sizeof(*out)->path];
    int known = ds_model_cache_path(spec, path, sizeof path);
    if (known == 0)
        return open_path(path, keep, threads, out, err);
    if (known == 1) {
        if (path[0])
            ds_fail(err, "%s is not in the cache: %s does not exist", spec, path);
        else
            ds_fail(
                err,
                "%s: no cache folder (none of DRIFTSCOPE_CACHE, XDG_CACHE_HOME and HOME is of use)",
                spec);
        return ds_hint(err, "`make model` in a checkout downloads it; without: -m FILE.gguf, or -m "
                            "random:llama,layers=4,hidden=64");
    }
    struct stat st;
    if (!strchr(spec, '/') && stat(spec, &st) != 0)
        return no_such_model(spec, err);
    return open_path(spec, keep, threads, out, err);
}

void ds_model_embed_rows(const struct ds_model *m, const int32_t *ids, int64_t n, float *out)
{
    const struct ds_weight *w = m->embed;
    const size_t width = (size_t)w->cols;
    for (int64_t i = 0; i < n; i++, out += width) {
        if (w->data) {
            memcpy(out, w->data + (size_t)ids[i] * width, width * sizeof *out);
            continue;
        }
        const struct ds_quant_type *t = ds_quant_find((uint32_t)w->file_type);
        const unsigned char *row = w->file_data;
        t->to_f32(row + (size_t)ids[i] * (width / t->block * t->bytes), out, width);
    }
}

void ds_model_close(struct ds_model *m)
{
    if (!m)
        return;
    ds_model_drop_prepared(m);
    ds_model_drop_uploaded(m);
    if (m->arena)
        munmap(m->arena, m->arena_bytes);
    ds_gguf_close(m->gguf);
    free(m->weights);
    free(m->layers);
    free(m->rope_table);
    free(m);
}

/* ---- rope table ------------------------------------------------------------------------------ */

int ds_model_rope_table(struct ds_model *m, int64_t positions, struct ds_error *err)
{
    if (positions <= m->rope_positions)
        return 0;
    if (positions > INT32_MAX)
        return ds_fail(err, "rope table: %lld positions asked for; at most %d are possible",
                       (long long)positions, INT32_MAX);
    int64_t pairs = m->hp.rope_dim / 2;
    double *frequency = ds_calloc((size_t)pairs, sizeof *frequency, "rope frequencies", err);
    float *table = frequency ? ds_calloc((size_t)positions * (size_t)pairs, 2 * sizeof *table,
                                         "rope table", err)
                             : NULL;
    if (!table) {
        free(frequency);
        return -1;
    }
    for (int64_t i = 0; i < pairs; i++) {
        frequency[i] = pow((double)m->hp.rope_base, -2.0 * (double)i / (double)m->hp.rope_dim);
        if (m->rope_freqs)
            frequency[i] /= (double)m->rope_freqs[i];
    }
    if (m->rope_table)
        memcpy(table, m->rope_table, (size_t)(m->rope_positions * pairs) * 2 * sizeof *table);
    for (int64_t p = m->rope_positions; p < positions; p++)
        for (int64_t i = 0; i < pairs; i++) {
            double angle = (double)p / (double)m->hp.rope_scale * frequency[i];
            table[(p * pairs + i) * 2] = (float)cos(angle);
            table[(p * pairs + i) * 2 + 1] = (float)sin(angle);
        }
    free(frequency);
    free(m->rope_table);
    m->rope_table = table;
    m->rope_positions = positions;
    return 0;
}
