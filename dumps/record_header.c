/* record_header.c: the header of a record as packed tables and back. Owns how texts are referred to
 * (/texts) and the header's checksum. Must not know HDF5.
 *
 * Texts and prompt tokens are laid down in the order in which they are referred to, without gaps.
 * The reader insists on that: so a reference cannot be used twice, and a small file cannot unfold
 * to a large header. */
#include "dumps/record_layout.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ds_header_image_free(struct ds_header_image *image)
{
    for (int id = 0; id < DS_STORED; id++)
        free(image->table[id].bytes);
    memset(image, 0, sizeof *image);
}

/* Appends n structs to a table of the image. */
static int add_rows(struct ds_header_image *image, int id, const void *structs, size_t n,
                    struct ds_error *err)
{
    size_t bytes = ds_table_bytes(id), have = image->table[id].rows, need;
    if (__builtin_add_overflow(have, n, &need))
        return ds_fail(err, "%s: too many rows", ds_table(id)->name);
    if (ds_grow(&image->table[id].bytes, &image->table[id].cap, need, bytes, ds_table(id)->name,
                err) != 0)
        return -1;
    ds_table_pack(id, (char *)image->table[id].bytes + have * bytes, structs, n);
    image->table[id].rows = need;
    return 0;
}

static int add_text(struct ds_header_image *image, const char *text, struct ds_text_ref *ref,
                    struct ds_error *err)
{
    size_t n = text ? strlen(text) : 0;
    if (n > UINT32_MAX)
        return ds_fail(err, "a text of %zu bytes does not fit in a record", n);
    ref->at = image->table[DS_TABLE_TEXTS].rows;
    ref->bytes = (uint32_t)n;
    return add_rows(image, DS_TABLE_TEXTS, text, n, err);
}

static int add_pairs(struct ds_header_image *image, int id, const struct ds_text *texts, size_t n,
                     struct ds_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct ds_text_row row = {{0}, {0}};
        if (add_text(image, texts[i].name, &row.name, err) != 0 ||
            add_text(image, texts[i].value, &row.value, err) != 0 ||
            add_rows(image, id, &row, 1, err) != 0)
            return -1;
    }
    return 0;
}

static int add_prompts(struct ds_header_image *image, const struct ds_header *h,
                       struct ds_error *err)
{
    for (size_t i = 0; i < h->n_prompts; i++) {
        const struct ds_prompt *p = &h->prompts[i];
        struct ds_prompt_row row = {.request = p->request,
                                    .first_token = image->table[DS_TABLE_PROMPT_TOKENS].rows,
                                    .n_tokens = p->n_tokens};
        if (add_text(image, p->text, &row.text, err) != 0 ||
            add_rows(image, DS_TABLE_PROMPT_TOKENS, p->tokens, p->n_tokens, err) != 0 ||
            add_rows(image, DS_TABLE_PROMPTS, &row, 1, err) != 0)
            return -1;
    }
    return 0;
}

static int add_arms(struct ds_header_image *image, const struct ds_header *h, struct ds_error *err)
{
    for (size_t j = 0; j < h->n_factors; j++) {
        struct ds_text_row row = {{0}, {0}};
        if (add_text(image, h->factors[j], &row.name, err) != 0 ||
            add_rows(image, DS_TABLE_FACTORS, &row, 1, err) != 0)
            return -1;
    }
    for (size_t i = 0; i < h->n_arms; i++)
        for (size_t j = 0; j < h->n_factors; j++) {
            struct ds_arm_row row = {.arm = (uint32_t)i, .factor = (uint32_t)j};
            if (add_text(image, h->arms[i].values[j], &row.value, err) != 0 ||
                add_rows(image, DS_TABLE_ARMS, &row, 1, err) != 0)
                return -1;
        }
    return 0;
}

static int ended(const char *text, size_t size, const char *field, struct ds_error *err)
{
    return memchr(text, 0, size) ? 0 : ds_fail(err, "%s: a text without an end", field);
}

static int by_place(const void *a, const void *b)
{
    const struct ds_site *x = *(const struct ds_site *const *)a,
                         *y = *(const struct ds_site *const *)b;
    int order = (x->layer > y->layer) - (x->layer < y->layer);
    if (!order)
        order = strcmp(x->stage, y->stage);
    return order ? order : strcmp(x->part, y->part);
}

/* (layer, stage, part) names a site: two of one name would be told apart by nobody. */
static int check_names(const struct ds_header *h, struct ds_error *err)
{
    const struct ds_site **sorted = ds_calloc(h->n_sites, sizeof *sorted, "sites", err);
    int rc = sorted ? 0 : -1;
    for (size_t i = 0; sorted && i < h->n_sites; i++)
        sorted[i] = &h->sites[i];
    if (sorted)
        qsort(sorted, h->n_sites, sizeof *sorted, by_place);
    for (size_t i = 1; sorted && i < h->n_sites && rc == 0; i++)
        if (by_place(&sorted[i - 1], &sorted[i]) == 0)
            rc = ds_fail(err, "sites: layer %d %s%s%s is there twice", (int)sorted[i]->layer,
                         sorted[i]->stage, sorted[i]->part[0] ? "/" : "", sorted[i]->part);
    free(sorted);
    return rc;
}

static int by_edge(const void *a, const void *b)
{
    const struct ds_edge *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to != y->to ? (x->to < y->to ? -1 : 1) : (x->kind > y->kind) - (x->kind < y->kind);
}

/* An edge that is there twice would count what it brings twice. */
static int check_edges_once(const struct ds_header *h, struct ds_error *err)
{
    struct ds_edge *sorted = ds_calloc(h->n_edges, sizeof *sorted, "edges", err);
    int rc = sorted ? 0 : -1;
    if (sorted && h->n_edges) {
        memcpy(sorted, h->edges, h->n_edges * sizeof *sorted);
        qsort(sorted, h->n_edges, sizeof *sorted, by_edge);
    }
    for (size_t i = 1; sorted && i < h->n_edges && rc == 0; i++)
        if (by_edge(&sorted[i - 1], &sorted[i]) == 0)
            rc = ds_fail(err, "edges: from %u to %u of kind %u is there twice", sorted[i].from,
                         sorted[i].to, sorted[i].kind);
    free(sorted);
    return rc;
}

/* Sites stand in execution order and an edge leads from an input to what was made of it: one that
 * leads back would let a drift be its own cause. */
static int check_edges(const struct ds_header *h, struct ds_error *err)
{
    /* Every row of every arm is looked at once an edge. A stage reads a few others, and the sum over experts
     * or ranks as many as there are sites that give them. */
    enum { MOST_INPUTS = 16, SOME = 256 };
    if (h->n_edges > SOME && (h->n_edges - SOME) / MOST_INPUTS > h->n_sites)
        return ds_fail(err, "edges: %zu between %zu sites are too many", h->n_edges, h->n_sites);
    for (size_t i = 0; i < h->n_edges; i++)
        if (h->edges[i].from >= h->edges[i].to || h->edges[i].to >= h->n_sites ||
            h->edges[i].kind > DS_EDGE_ALL)
            return ds_fail(err, "edges: edge %zu: from %u to %u of kind %u with %zu sites", i,
                           h->edges[i].from, h->edges[i].to, h->edges[i].kind, h->n_sites);
    return check_edges_once(h, err);
}

int ds_header_check(const struct ds_header *h, struct ds_error *err)
{
    if (h->n_arms > UINT32_MAX || h->n_factors > UINT32_MAX || h->n_sites > UINT32_MAX)
        return ds_fail(err, "too many arms, factors or sites");
    if (h->n_factors == 0 && h->n_arms > 1)
        return ds_fail(err, "arms: %zu arms without a factor", h->n_arms);
    for (size_t i = 0; i < h->n_weights; i++)
        if (ended(h->weights[i].name, sizeof h->weights[i].name, "weights: name", err) != 0 ||
            ended(h->weights[i].dtype, sizeof h->weights[i].dtype, "weights: dtype", err) != 0)
            return -1;
    for (size_t i = 0; i < h->n_sites; i++) {
        const struct ds_site *s = &h->sites[i];
        if (ended(s->stage, sizeof s->stage, "sites: stage", err) != 0 ||
            ended(s->part, sizeof s->part, "sites: part", err) != 0 ||
            ended(s->op, sizeof s->op, "sites: op", err) != 0 ||
            ended(s->dtype, sizeof s->dtype, "sites: dtype", err) != 0)
            return -1;
        if (s->layer < -1 || s->layer > h->n_layers)
            return ds_fail(err, "sites: %s is of layer %d in a model of %d", s->stage,
                           (int)s->layer, (int)h->n_layers);
    }
    return check_names(h, err) != 0 ? -1 : check_edges(h, err);
}

/* The checksum over the identity (without its last field) and every table, in the order of enum
 * ds_table_id. */
static uint64_t image_checksum(const struct ds_header_image *image)
{
    char packed[1024];
    struct ds_part parts[1 + DS_STORED - DS_GROWING];
    size_t bytes = ds_table_bytes(DS_TABLE_IDENTITY);
    ds_table_pack(DS_TABLE_IDENTITY, packed, &image->identity, 1);
    parts[0].count = 1;
    parts[0].hash = ds_checksum_bytes(packed, bytes - sizeof(uint64_t));
    for (int id = DS_GROWING; id < DS_STORED; id++) {
        struct ds_part *p = &parts[1 + id - DS_GROWING];
        p->count = image->table[id].rows;
        p->hash =
            ds_checksum_bytes(image->table[id].bytes, image->table[id].rows * ds_table_bytes(id));
    }
    return ds_checksum_parts(parts, sizeof parts / sizeof parts[0]);
}

static int pack_tables(const struct ds_header *h, struct ds_header_image *image,
                       struct ds_error *err)
{
    if (add_text(image, h->command, &image->identity.command, err) != 0 ||
        add_pairs(image, DS_TABLE_ENVIRONMENT, h->environment, h->n_environment, err) != 0 ||
        add_pairs(image, DS_TABLE_HPARAMS, h->hparams, h->n_hparams, err) != 0 ||
        add_pairs(image, DS_TABLE_OPTIONS, h->options, h->n_options, err) != 0 ||
        add_rows(image, DS_TABLE_WEIGHTS, h->weights, h->n_weights, err) != 0 ||
        add_prompts(image, h, err) != 0 ||
        add_rows(image, DS_TABLE_SITES, h->sites, h->n_sites, err) != 0 ||
        add_rows(image, DS_TABLE_EDGES, h->edges, h->n_edges, err) != 0)
        return -1;
    return add_arms(image, h, err);
}

int ds_header_pack(const struct ds_header *h, struct ds_header_image *image, struct ds_error *err)
{
    memset(image, 0, sizeof *image);
    struct ds_identity *id = &image->identity;
    memcpy(id->format, DS_RECORD_FORMAT, sizeof DS_RECORD_FORMAT);
    id->version = DS_RECORD_VERSION;
    memcpy(id->tool_version, h->tool_version, sizeof id->tool_version);
    memcpy(id->build, h->build, sizeof id->build);
    memcpy(id->start, h->start, sizeof id->start);
    memcpy(id->model_name, h->model_name, sizeof id->model_name);
    memcpy(id->model_arch, h->model_arch, sizeof id->model_arch);
    id->model_digest = h->model_digest;
    id->n_layers = h->n_layers;
    id->n_heads = h->n_heads;
    id->n_kv_heads = h->n_kv_heads;
    id->head_dim = h->head_dim;
    id->repeats = h->repeats;
    id->n_arms = (uint32_t)h->n_arms;
    if (ended(id->tool_version, sizeof id->tool_version, "tool version", err) != 0 ||
        ended(id->build, sizeof id->build, "build", err) != 0 ||
        ended(id->start, sizeof id->start, "start", err) != 0 ||
        ended(id->model_name, sizeof id->model_name, "model name", err) != 0 ||
        ended(id->model_arch, sizeof id->model_arch, "model architecture", err) != 0 ||
        ds_header_check(h, err) != 0 || pack_tables(h, image, err) != 0) {
        ds_header_image_free(image);
        return ds_prefix(err, "record header");
    }
    id->header_checksum = image_checksum(image);
    return 0;
}

/* ---- back ------------------------------------------------------------------------------------ */

/* Unpacks a whole table into a new array. NULL on failure; a valid pointer for no rows. */
static void *take_table(const struct ds_header_image *image, int id, struct ds_error *err)
{
    void *structs =
        ds_calloc(image->table[id].rows, ds_table(id)->struct_bytes, ds_table(id)->name, err);
    if (structs)
        ds_table_unpack(id, structs, image->table[id].bytes, image->table[id].rows);
    return structs;
}

/* Copies the text at *cursor, which must be where the reference points. */
static char *take_text(const struct ds_header_image *image, struct ds_text_ref ref,
                       uint64_t *cursor, struct ds_error *err)
{
    size_t limit = image->table[DS_TABLE_TEXTS].rows;
    if (ref.at != *cursor || ref.bytes > limit - *cursor) {
        ds_fail(err, "texts: a reference to bytes %llu + %u of %zu is out of order",
                (unsigned long long)ref.at, ref.bytes, limit);
        return NULL;
    }
    char *text = ds_calloc((size_t)ref.bytes + 1, 1, "text", err);
    if (text && ref.bytes)
        memcpy(text, (const char *)image->table[DS_TABLE_TEXTS].bytes + ref.at, ref.bytes);
    *cursor += ref.bytes;
    return text;
}

static int take_pairs(const struct ds_header_image *image, int id, uint64_t *cursor,
                      struct ds_text **out, size_t *n, struct ds_error *err)
{
    size_t count = image->table[id].rows;
    struct ds_text_row *rows = take_table(image, id, err);
    struct ds_text *texts = rows ? ds_calloc(count, sizeof *texts, ds_table(id)->name, err) : NULL;
    int failed = texts == NULL;
    *out = texts;
    *n = failed ? 0 : count;
    for (size_t i = 0; !failed && i < count; i++) {
        texts[i].name = take_text(image, rows[i].name, cursor, err);
        texts[i].value = texts[i].name ? take_text(image, rows[i].value, cursor, err) : NULL;
        failed = texts[i].value == NULL;
    }
    free(rows);
    return failed ? -1 : 0;
}

static int take_prompts(const struct ds_header_image *image, uint64_t *cursor, struct ds_header *h,
                        struct ds_error *err)
{
    size_t count = image->table[DS_TABLE_PROMPTS].rows,
           limit = image->table[DS_TABLE_PROMPT_TOKENS].rows, next = 0;
    struct ds_prompt_row *rows = take_table(image, DS_TABLE_PROMPTS, err);
    h->prompts = rows ? ds_calloc(count, sizeof *h->prompts, "prompts", err) : NULL;
    int failed = h->prompts == NULL;
    h->n_prompts = failed ? 0 : count;
    for (size_t i = 0; !failed && i < count; i++) {
        struct ds_prompt *p = &h->prompts[i];
        p->request = rows[i].request;
        p->text = take_text(image, rows[i].text, cursor, err);
        if (p->text && (rows[i].first_token != next || rows[i].n_tokens > limit - next))
            failed = ds_fail(err, "prompts: tokens %llu + %u of %zu are out of order",
                             (unsigned long long)rows[i].first_token, rows[i].n_tokens, limit);
        else
            p->tokens = p->text
                            ? ds_calloc(rows[i].n_tokens, sizeof *p->tokens, "prompt tokens", err)
                            : NULL;
        if (failed || !p->tokens) {
            failed = 1;
            continue;
        }
        ds_table_unpack(DS_TABLE_PROMPT_TOKENS, p->tokens,
                        (const char *)image->table[DS_TABLE_PROMPT_TOKENS].bytes +
                            next * sizeof *p->tokens,
                        rows[i].n_tokens);
        p->n_tokens = rows[i].n_tokens;
        next += rows[i].n_tokens;
    }
    free(rows);
    return failed ? -1 : 0;
}

static int take_factors(const struct ds_header_image *image, uint64_t *cursor, struct ds_header *h,
                        struct ds_error *err)
{
    size_t count = image->table[DS_TABLE_FACTORS].rows;
    struct ds_text_row *rows = take_table(image, DS_TABLE_FACTORS, err);
    h->factors = rows ? ds_calloc(count, sizeof *h->factors, "factors", err) : NULL;
    int failed = h->factors == NULL;
    h->n_factors = failed ? 0 : count;
    for (size_t j = 0; !failed && j < count; j++)
        failed = (h->factors[j] = take_text(image, rows[j].name, cursor, err)) == NULL;
    free(rows);
    return failed ? -1 : 0;
}

static int take_arms(const struct ds_header_image *image, uint64_t *cursor, struct ds_header *h,
                     struct ds_error *err)
{
    size_t n_arms = image->identity.n_arms, n_factors = h->n_factors, total;
    if (__builtin_mul_overflow(n_arms, n_factors, &total) ||
        total != image->table[DS_TABLE_ARMS].rows)
        return ds_fail(err, "arms: %zu rows for %zu arms of %zu factors",
                       image->table[DS_TABLE_ARMS].rows, n_arms, n_factors);
    /* Without factors nothing in the file backs the number of arms: only the base arm can exist. */
    if (n_factors == 0 && n_arms > 1)
        return ds_fail(err, "arms: %zu arms without a factor", n_arms);
    struct ds_arm_row *rows = take_table(image, DS_TABLE_ARMS, err);
    h->arms = rows ? ds_calloc(n_arms, sizeof *h->arms, "arms", err) : NULL;
    int failed = h->arms == NULL;
    h->n_arms = failed ? 0 : n_arms;
    for (size_t i = 0; !failed && i < n_arms; i++) {
        h->arms[i].values = ds_calloc(n_factors, sizeof *h->arms[i].values, "arms", err);
        failed = h->arms[i].values == NULL;
        for (size_t j = 0; !failed && j < n_factors; j++) {
            const struct ds_arm_row *row = &rows[i * n_factors + j];
            if (row->arm != i || row->factor != j)
                failed = ds_fail(err, "arms: row %zu is arm %u, factor %u", i * n_factors + j,
                                 row->arm, row->factor);
            else
                failed = (h->arms[i].values[j] = take_text(image, row->value, cursor, err)) == NULL;
        }
    }
    free(rows);
    return failed ? -1 : 0;
}

static int take_all(const struct ds_header_image *image, struct ds_header *h, struct ds_error *err)
{
    uint64_t cursor = 0;
    if (!(h->command = take_text(image, image->identity.command, &cursor, err)) ||
        take_pairs(image, DS_TABLE_ENVIRONMENT, &cursor, &h->environment, &h->n_environment, err) !=
            0 ||
        take_pairs(image, DS_TABLE_HPARAMS, &cursor, &h->hparams, &h->n_hparams, err) != 0 ||
        take_pairs(image, DS_TABLE_OPTIONS, &cursor, &h->options, &h->n_options, err) != 0 ||
        !(h->weights = take_table(image, DS_TABLE_WEIGHTS, err)) ||
        take_prompts(image, &cursor, h, err) != 0 ||
        !(h->sites = take_table(image, DS_TABLE_SITES, err)) ||
        !(h->edges = take_table(image, DS_TABLE_EDGES, err)))
        return -1;
    h->n_weights = image->table[DS_TABLE_WEIGHTS].rows;
    h->n_sites = image->table[DS_TABLE_SITES].rows;
    h->n_edges = image->table[DS_TABLE_EDGES].rows;
    if (take_factors(image, &cursor, h, err) != 0 || take_arms(image, &cursor, h, err) != 0)
        return -1;
    return ds_header_check(h, err);
}

int ds_header_unpack(const struct ds_header_image *image, struct ds_header *h, struct ds_error *err)
{
    const struct ds_identity *id = &image->identity;
    memset(h, 0, sizeof *h);
    if (id->header_checksum != image_checksum(image))
        return ds_fail(err, "the header does not have its checksum: the file is damaged");
    memcpy(h->tool_version, id->tool_version, sizeof h->tool_version);
    memcpy(h->build, id->build, sizeof h->build);
    memcpy(h->start, id->start, sizeof h->start);
    memcpy(h->model_name, id->model_name, sizeof h->model_name);
    memcpy(h->model_arch, id->model_arch, sizeof h->model_arch);
    h->model_digest = id->model_digest;
    h->n_layers = id->n_layers;
    h->n_heads = id->n_heads;
    h->n_kv_heads = id->n_kv_heads;
    h->head_dim = id->head_dim;
    h->repeats = id->repeats;
    if (take_all(image, h, err) != 0) {
        ds_header_free(h);
        return -1;
    }
    return 0;
}
