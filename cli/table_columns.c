/* table_columns.c: the columns of `table`. One table of what is asked of an observation; factors are in its middle. See
 * table.h. */
#include "cli/table.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cells ----------------------------------------------------------------------------------- */

static struct ds_cell text(const char *s)
{
    return (struct ds_cell){.kind = s ? DS_CELL_TEXT : DS_CELL_NONE, .text = s};
}
static struct ds_cell whole(int64_t x)
{
    return (struct ds_cell){.kind = DS_CELL_WHOLE, .whole = x};
}
static struct ds_cell real(double x)
{
    return (struct ds_cell){.kind = isnan(x) ? DS_CELL_NONE : DS_CELL_REAL, .real = x};
}
static struct ds_cell digest(uint64_t x)
{
    return (struct ds_cell){.kind = DS_CELL_DIGEST, .digest = x};
}
/* 0: not measured. */
static struct ds_cell measured(double x)
{
    return x > 0 ? real(x) : (struct ds_cell){0};
}

void ds_cell_tsv(const struct ds_cell *c, struct ds_buf *out)
{
    switch (c->kind) {
    case DS_CELL_TEXT:
        ds_buf_escape(out, c->text, (size_t)-1);
        break;
    case DS_CELL_WHOLE:
        ds_buf_printf(out, "%" PRId64, c->whole);
        break;
    case DS_CELL_REAL:
        ds_buf_printf(out, "%.9g", c->real);
        break;
    case DS_CELL_DIGEST:
        ds_buf_printf(out, "%016" PRIx64, c->digest);
        break;
    case DS_CELL_NONE:
        break;
    }
}

json_t *ds_cell_json(const struct ds_cell *c)
{
    return c->kind == DS_CELL_TEXT     ? ds_json_text(c->text)
           : c->kind == DS_CELL_WHOLE  ? json_integer(c->whole)
           : c->kind == DS_CELL_REAL   ? ds_json_real(c->real)
           : c->kind == DS_CELL_DIGEST ? ds_json_digest(c->digest)
                                       : json_null();
}

/* ---- what is asked of an observation --------------------------------------------------------- */

#define COLUMN(name) static struct ds_cell name(const struct ds_observation *o)
COLUMN(record)
{
    return text(o->path);
}
COLUMN(start)
{
    return text(o->h->start);
}
COLUMN(version)
{
    return text(o->h->tool_version);
}
COLUMN(build)
{
    return text(o->h->build);
}
COLUMN(model)
{
    return text(o->h->model_name);
}
COLUMN(model_digest)
{
    return digest(o->h->model_digest);
}
COLUMN(arm)
{
    return whole(o->t->arm);
}
COLUMN(repeat)
{
    return whole(o->t->repeat);
}
COLUMN(prompt)
{
    return digest(o->prompt_digest);
}
COLUMN(prompt_tokens)
{
    return whole(o->prompt->n_tokens);
}
COLUMN(request)
{
    return whole(o->request);
}
COLUMN(tokens)
{
    return whole((int64_t)o->n_steps);
}
COLUMN(completion)
{
    return digest(o->row.completion);
}
COLUMN(is_reference)
{
    return whole(o->row.reference);
}
COLUMN(flips)
{
    return whole((int64_t)o->row.flips);
}
COLUMN(decode_steps)
{
    return whole((int64_t)o->row.decode_steps);
}
COLUMN(prob_divergence)
{
    return real(o->row.prob_divergence);
}
COLUMN(run_digest)
{
    return digest(o->t->run_digest);
}
COLUMN(wall_s)
{
    return measured(o->t->wall_s);
}
COLUMN(cpu_s)
{
    return measured(o->t->cpu_s);
}
COLUMN(threads_seen)
{
    return o->t->threads_seen > 0 ? whole(o->t->threads_seen) : (struct ds_cell){0};
}
COLUMN(blas_core)
{
    return o->t->blas_core[0] ? text(o->t->blas_core) : (struct ds_cell){0};
}
COLUMN(div_index)
{
    return o->row.div_index >= 0 ? whole(o->row.div_index) : (struct ds_cell){0};
}

/* Whether some step was fed another token than it chose: then what follows is no completion of its own. */
COLUMN(forced)
{
    for (size_t i = 0; i < o->n_steps; i++)
        if (o->steps[i]->forced >= 0 && o->steps[i]->forced != o->steps[i]->token)
            return whole(1);
    return whole(0);
}

COLUMN(least_margin)
{
    double least = NAN;
    for (size_t i = 0; i < o->n_steps; i++)
        if (!((double)o->steps[i]->margin >= least) && !isnan(o->steps[i]->margin))
            least = (double)o->steps[i]->margin;
    return real(least);
}

COLUMN(tokens_per_second)
{
    return o->t->steps_s > 0 ? real((double)o->trial_steps / o->t->steps_s) : (struct ds_cell){0};
}
COLUMN(first_token_s)
{
    return measured(o->t->first_median_s);
}

struct column {
    const char *name;
    struct ds_cell (*of)(const struct ds_observation *o);
};
/* Known before the observation is compared, and so fit to tell groups apart. */
static const struct column before[] = {
    {"record", record},
    {"start", start},
    {"version", version},
    {"build", build},
    {"model", model},
    {"model_digest", model_digest},
    {"arm", arm},
    {"repeat", repeat},
    {"blas_core", blas_core},
    {"threads_seen", threads_seen},
    {"request", request},
    {"prompt", prompt},
};
static const struct column after[] = {
    {"prompt_tokens", prompt_tokens},
    {"tokens", tokens},
    {"completion", completion},
    {"forced", forced},
    {"reference", is_reference},
    {"div_index", div_index},
    {"flips", flips},
    {"decode_steps", decode_steps},
    {"max_prob_divergence", prob_divergence},
    {"least_margin", least_margin},
    {"run_digest", run_digest},
    {"wall_s", wall_s},
    {"cpu_s", cpu_s},
    {"tokens_per_second", tokens_per_second},
    {"first_token_s", first_token_s},
};
enum { N_BEFORE = sizeof before / sizeof *before, N_AFTER = sizeof after / sizeof *after };

size_t ds_table_column_count(const struct ds_table_columns *c)
{
    return N_BEFORE + c->n_factors + N_AFTER;
}

const char *ds_table_column_name(const struct ds_table_columns *c, size_t i)
{
    return i < N_BEFORE                  ? before[i].name
           : i - N_BEFORE < c->n_factors ? c->factors[i - N_BEFORE]
                                         : after[i - N_BEFORE - c->n_factors].name;
}

int ds_table_column_is_factor(const struct ds_table_columns *c, size_t i)
{
    return i >= N_BEFORE && i - N_BEFORE < c->n_factors;
}

int ds_table_column_groups(const struct ds_table_columns *c, size_t i)
{
    return i < N_BEFORE + c->n_factors;
}

void ds_table_cell(const struct ds_table_columns *c, size_t i, const struct ds_observation *o,
                   struct ds_cell *out)
{
    *out = (struct ds_cell){0};
    if (i < N_BEFORE) {
        *out = before[i].of(o);
        return;
    }
    if (i - N_BEFORE >= c->n_factors) {
        *out = after[i - N_BEFORE - c->n_factors].of(o);
        return;
    }
    for (size_t f = 0; f < o->h->n_factors; f++)
        if (strcmp(o->h->factors[f], c->factors[i - N_BEFORE]) == 0)
            *out = text(o->h->arms[o->t->arm].values[f]);
}

/* ---- factors --------------------------------------------------------------------------------- */

/* A factor that is named as a column is (of another version) would be two columns of one name. */
static int is_there(const struct ds_table_columns *c, const char *name)
{
    for (size_t i = 0; i < ds_table_column_count(c); i++)
        if (strcmp(ds_table_column_name(c, i), name) == 0)
            return 1;
    return 0;
}

int ds_table_columns_add(struct ds_table_columns *c, const struct ds_header *h,
                         struct ds_error *err)
{
    for (size_t f = 0; f < h->n_factors; f++) {
        if (is_there(c, h->factors[f]))
            continue;
        if (ds_grow_by_one(&c->factors, c->n_factors, sizeof *c->factors, "factors", err) != 0)
            return -1;
        if (!(c->factors[c->n_factors] = strdup(h->factors[f])))
            return ds_fail(err, "out of memory for a factor");
        c->n_factors++;
    }
    return 0;
}

void ds_table_columns_free(struct ds_table_columns *c)
{
    for (size_t f = 0; f < c->n_factors; f++)
        free(c->factors[f]);
    free(c->factors);
}
