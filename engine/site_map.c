/* site_map.c: see site_map.h. Owns the order of sites, their texts and the rule by which an input
 * that does not exist is replaced; must not know buffers, kernels' code or calls.
 *
 * A stage whose rows are also shown before rounding has two sites: one of part "unrounded", always
 * f32, which has the stage's inputs, and its own, which has that one as its only input: rounding
 * adds no difference. Who reads the stage may have read either, so both are its inputs. */
#include "engine/site_map.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unrounded_part[] = "unrounded";

enum { MOST_PARTS = 1 << 12, MOST_LAYERS = 1 << 20 };

/* First site of every stage: [n_layers + 2][DS_ST_COUNT], line 0 before the layers, the last one
 * after them. */
struct ds_site_map {
    int32_t n_layers;
    uint64_t unrounded;
    uint32_t *at, *parts;
};

/* ---- lookup ---------------------------------------------------------------------------------- */

static size_t place_of(const struct ds_site_map *map, int stage, int32_t layer)
{
    size_t line = stage < DS_ST_FIRST_OF_LAYER ? 0
                  : stage >= DS_ST_FIRST_AFTER ? (size_t)map->n_layers + 1
                                               : (size_t)layer + 1;
    return line * DS_ST_COUNT + (size_t)stage;
}

uint32_t ds_site_map_at(const struct ds_site_map *map, int stage, int32_t layer, uint32_t part)
{
    size_t i = place_of(map, stage, layer);
    return part < map->parts[i] ? map->at[i] + part : DS_NO_SITE;
}

uint32_t ds_site_map_unrounded(const struct ds_site_map *map, int stage, int32_t layer)
{
    if (!(map->unrounded & DS_STAGE_BIT(stage)))
        return DS_NO_SITE;
    uint32_t own = ds_site_map_at(map, stage, layer, 0);
    return own == DS_NO_SITE ? own : own - 1;
}

static struct ds_site_map *map_alloc(int32_t n_layers, struct ds_error *err)
{
    if (n_layers < 1 || n_layers > MOST_LAYERS) {
        ds_fail(err, "%d layers", (int)n_layers);
        return NULL;
    }
    struct ds_site_map *map = ds_calloc(1, sizeof *map, "site map", err);
    if (!map)
        return NULL;
    size_t places = ((size_t)n_layers + 2) * DS_ST_COUNT;
    map->n_layers = n_layers;
    map->at = ds_calloc(places, sizeof *map->at, "site map", err);
    map->parts = map->at ? ds_calloc(places, sizeof *map->parts, "site map", err) : NULL;
    if (!map->parts) {
        ds_site_map_free(map);
        return NULL;
    }
    return map;
}

void ds_site_map_free(struct ds_site_map *map)
{
    if (!map)
        return;
    free(map->at);
    free(map->parts);
    free(map);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The letter before the number of a part; 0: parts have no numbers. */
static char part_letter(int stage)
{
    static const char letters[] = {
        [DS_PARTS_ONE] = '\0', [DS_PARTS_CHOSEN] = 'e', [DS_PARTS_RANKS] = 'r'};
    return letters[ds_stage(stage)->parts];
}

static void part_text(int stage, uint32_t part, char *out, size_t size)
{
    char letter = part_letter(stage);
    if (letter)
        snprintf(out, size, "%c%u", letter, part);
    else
        snprintf(out, size, "%s", ds_stage(stage)->part);
}

/* Whether the site is one of the stage's; then *part is its number, or -1 for the one before
 * rounding. */
static int is_site_of(const struct ds_site *site, int stage, int32_t *part)
{
    const struct ds_stage_info *s = ds_stage(stage);
    char text[sizeof site->part], letter = part_letter(stage);
    *part = 0;
    if (strcmp(site->stage, s->name) != 0)
        return 0;
    if (!letter && !*s->part && strcmp(site->part, unrounded_part) == 0) {
        *part = -1;
        return 1;
    }
    if (!letter)
        return strcmp(site->part, s->part) == 0;
    unsigned number = 0;
    if (site->part[0] != letter || sscanf(site->part + 1, "%u", &number) != 1 ||
        number >= MOST_PARTS)
        return 0;
    part_text(stage, number, text, sizeof text);
    *part = (int32_t)number;
    return strcmp(text, site->part) == 0;
}

int ds_site_map_new(const struct ds_site *sites, size_t n, int32_t n_layers,
                    struct ds_site_map **out, struct ds_error *err)
{
    struct ds_site_map *map = map_alloc(n_layers, err);
    if (!map)
        return -1;
    for (size_t i = 0; i < n; i++)
        for (int s = 0; s < DS_ST_COUNT; s++) {
            int32_t part, layer = sites[i].layer;
            int inside = s >= DS_ST_FIRST_OF_LAYER && s < DS_ST_FIRST_AFTER;
            if ((inside && (layer < 0 || layer >= n_layers)) || !is_site_of(&sites[i], s, &part))
                continue;
            size_t at = place_of(map, s, layer);
            if (part < 0) {
                map->unrounded |= DS_STAGE_BIT(s);
            } else if (map->parts[at]++ == 0) {
                map->at[at] = (uint32_t)i;
            }
            if (part > 0 ? map->at[at] + (uint32_t)part != i : part == 0 && map->at[at] != i) {
                ds_site_map_free(map);
                return ds_fail(err, "site %zu (%s %s) stands apart from the stage's others", i,
                               sites[i].stage, sites[i].part);
            }
        }
    *out = map;
    return 0;
}

int ds_stages_parse(const char *text, uint64_t *f32_at, struct ds_error *err)
{
    const char *p = text, *end = strchr(text, '=');
    *f32_at = 0;
    if (!end || strcmp(end, "=f32") != 0)
        goto wrong;
    for (;;) {
        const size_t n = strcspn(p, ",=");
        uint64_t found = 0;
        for (int s = 0; s < DS_ST_COUNT; s++)
            if (strncmp(ds_stage(s)->name, p, n) == 0 && ds_stage(s)->name[n] == '\0' &&
                ds_stage(s)->store != DS_STORE_I32 && ds_stage(s)->op != DS_OP_CACHE &&
                ds_stage(s)->op >= 0)
                found |= DS_STAGE_BIT(s);
        if (!found) {
            ds_fail(err, "'%.*s' is no stage whose rows could stay f32", n > 40 ? 40 : (int)n, p);
            return ds_hint(err, "stages as `driftscope show RECORD --sites` has them, such as "
                                "final_norm, resid_ffn, down; not kv_write, transfer");
        }
        *f32_at |= found;
        if (p[n] == '=')
            return 0;
        p += n + 1;
    }
wrong:
    ds_fail(err, "'%.60s' is no list of stages and a format", text);
    return ds_hint(err, "as in final_norm,logits=f32");
}

struct ds_site *ds_site_stored_as(const struct ds_site *sites, size_t n, int dtype, uint64_t f32_at,
                                  struct ds_error *err)
{
    struct ds_site *out = ds_calloc(n, sizeof *out, "sites", err);
    if (!out)
        return NULL;
    memcpy(out, sites, n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        for (int s = 0; s < DS_ST_COUNT; s++) {
            int32_t part;
            if (ds_stage(s)->store == DS_STORE_ACTIVATION && is_site_of(&sites[i], s, &part) &&
                part >= 0)
                snprintf(out[i].dtype, sizeof out[i].dtype, "%s",
                         ds_dtype_name(f32_at & DS_STAGE_BIT(s) ? DS_F32 : dtype));
        }
    return out;
}

/* ---- the list -------------------------------------------------------------------------------- */

uint32_t ds_site_parts(int stage, int32_t layer, const struct ds_hparams *hp,
                       const struct ds_site_wants *wants)
{
    const struct ds_stage_info *s = ds_stage(stage);
    int moe = ds_layer_has_experts(hp, layer), there = 1;
    switch (s->when) {
    case DS_WHEN_DENSE:
        there = !moe;
        break;
    case DS_WHEN_EXPERTS:
        there = moe;
        break;
    case DS_WHEN_SHARED:
        there = moe && hp->d_ff_shared > 0;
        break;
    case DS_WHEN_QK_NORM:
        there = hp->qk_norm;
        break;
    case DS_WHEN_RANKS:
        there = wants->ranks > 1 && (stage < DS_ST_FFN_NORM || moe == (stage > DS_ST_DOWN));
        break;
    case DS_WHEN_BOUNDARY:
        there = wants->boundary && layer >= 0 && layer < hp->n_layers && wants->boundary[layer];
        break;
    case DS_WHEN_WATCHED:
        there = wants->watched;
        break;
    case DS_WHEN_SLOTS:
        there = wants->slots;
        break;
    case DS_WHEN_SCORES:
        there = wants->score_keys > 0;
        break;
    default:
        break;
    }
    return !there                        ? 0
           : s->parts == DS_PARTS_CHOSEN ? (uint32_t)hp->top_k
           : s->parts == DS_PARTS_RANKS  ? (uint32_t)wants->ranks
                                         : 1;
}

/* What is unrolled. */
struct unroll {
    const struct ds_hparams *hp;
    const struct ds_site_wants *wants;
    const struct ds_site_map *map;
    int dtype;
    struct ds_site *sites;
    struct ds_edge *edges; /* NULL while they are counted */
    uint32_t n_edges;
};

/* Numbers the sites; returns their count. */
static uint32_t number_sites(struct ds_site_map *map, const struct ds_hparams *hp,
                             const struct ds_site_wants *wants)
{
    uint32_t n = 0;
    map->unrounded = wants->unrounded;
    for (int32_t layer = -1; layer <= hp->n_layers; layer++) {
        int begin = layer < 0 ? 0 : layer < hp->n_layers ? DS_ST_FIRST_OF_LAYER : DS_ST_FIRST_AFTER;
        int end = layer < 0              ? DS_ST_FIRST_OF_LAYER
                  : layer < hp->n_layers ? DS_ST_FIRST_AFTER
                                         : DS_ST_COUNT;
        for (int s = begin; s < end; s++) {
            size_t at = place_of(map, s, layer);
            map->parts[at] = ds_site_parts(s, layer, hp, wants);
            if (map->parts[at] && wants->unrounded & DS_STAGE_BIT(s))
                n++;
            map->at[at] = n;
            n += map->parts[at];
        }
    }
    return n;
}

static void fill_site(const struct unroll *u, uint32_t number, int stage, int32_t layer,
                      uint32_t part)
{
    const struct ds_stage_info *s = ds_stage(stage);
    struct ds_site *site = &u->sites[number];
    int stored = s->store == DS_STORE_I32 ? DS_I32 : s->store == DS_STORE_F32 ? DS_F32 : u->dtype;
    site->layer = layer;
    snprintf(site->stage, sizeof site->stage, "%s", s->name);
    part_text(stage, part, site->part, sizeof site->part);
    snprintf(site->op, sizeof site->op, "%s", ds_stage_op_name(stage));
    snprintf(site->dtype, sizeof site->dtype, "%s", ds_dtype_name(stored));
    site->width = (uint32_t)ds_stage_width_of(stage, u->hp);
    if (s->width == DS_WIDTH_SCORES)
        site->width *= (uint32_t)u->wants->score_keys;
}

static void add_edge(struct unroll *u, uint32_t from, uint32_t to, uint8_t kind)
{
    if (u->edges)
        u->edges[u->n_edges] = (struct ds_edge){.from = from, .to = to, .kind = kind};
    u->n_edges++;
}

/* Edges into site `to` from all sites of input i of stage `reader`. A part reads the same number of
 * an input that has such parts, too, and all of them where it has none itself. For stages after the
 * layers `layer` is n_layers, whose incoming residual is the last layer's output. `kind` is that of
 * the first edge of the way through inputs that do not exist. */
static void add_input(struct unroll *u, int reader, int i, int32_t layer, uint32_t part,
                      uint32_t to, uint8_t kind)
{
    const struct ds_stage_info *r = ds_stage(reader);
    int stage = r->inputs[i].stage;
    if (stage == DS_ST_RESID_IN) {
        stage = layer == 0 ? DS_ST_EMBED : DS_ST_RESID_FFN;
        layer--;
    }
    uint32_t first = ds_site_map_at(u->map, stage, layer, 0);
    if (first == DS_NO_SITE) {
        for (int k = 0; !r->inputs[i].optional && k < ds_stage(stage)->n_inputs; k++)
            add_input(u, stage, k, layer, part, to, kind);
        return;
    }
    if (ds_site_map_unrounded(u->map, stage, layer) != DS_NO_SITE)
        add_edge(u, first - 1, to, kind);
    int same = ds_stage(stage)->parts != DS_PARTS_ONE && ds_stage(stage)->parts == r->parts;
    for (uint32_t k = 0; ds_site_map_at(u->map, stage, layer, k) != DS_NO_SITE; k++)
        if (!same || k == part)
            add_edge(u, first + k, to, kind);
}

/* Adds all sites of a stage in a layer. */
static void add_stage(struct unroll *u, int stage, int32_t layer)
{
    uint32_t own;
    for (uint32_t k = 0; (own = ds_site_map_at(u->map, stage, layer, k)) != DS_NO_SITE; k++) {
        uint32_t made = own, before = ds_site_map_unrounded(u->map, stage, layer);
        if (u->sites)
            fill_site(u, own, stage, layer, k);
        if (before != DS_NO_SITE) {
            made = before;
            add_edge(u, made, own, DS_EDGE_ROW);
            if (u->sites) {
                fill_site(u, made, stage, layer, k);
                snprintf(u->sites[made].dtype, sizeof u->sites[made].dtype, "f32");
                snprintf(u->sites[made].part, sizeof u->sites[made].part, "%s", unrounded_part);
            }
        }
        for (int i = 0; i < ds_stage(stage)->n_inputs; i++)
            add_input(u, stage, i, layer, k, made, ds_stage(stage)->inputs[i].kind);
    }
}

static void add_all(struct unroll *u)
{
    for (int s = 0; s < DS_ST_FIRST_OF_LAYER; s++)
        add_stage(u, s, -1);
    for (int32_t l = 0; l < u->hp->n_layers; l++)
        for (int s = DS_ST_FIRST_OF_LAYER; s < DS_ST_FIRST_AFTER; s++)
            add_stage(u, s, l);
    for (int s = DS_ST_FIRST_AFTER; s < DS_ST_COUNT; s++)
        add_stage(u, s, u->hp->n_layers);
}

static int check_wants(const struct ds_hparams *hp, int dtype, const struct ds_site_wants *wants,
                       struct ds_error *err)
{
    if (dtype != DS_F32 && dtype != DS_BF16 && dtype != DS_F16)
        return ds_fail(err, "activation dtype %d is not one of f32, bf16, f16", dtype);
    if (wants->ranks > MOST_PARTS || hp->top_k > MOST_PARTS)
        return ds_fail(err, "%d ranks, %d experts for a row: a stage has at most %d parts",
                       (int)wants->ranks, (int)hp->top_k, MOST_PARTS);
    if (wants->score_keys < 0 || (int64_t)hp->n_heads * wants->score_keys > INT32_MAX)
        return ds_fail(err, "scores of %d heads and %d keys do not fit a row", (int)hp->n_heads,
                       (int)wants->score_keys);
    return 0;
}

int ds_site_list(const struct ds_hparams *hp, int dtype, const struct ds_site_wants *wants,
                 struct ds_site **sites, uint32_t *n_sites, struct ds_edge **edges,
                 uint32_t *n_edges, struct ds_error *err)
{
    if (check_wants(hp, dtype, wants, err) != 0)
        return -1;
    struct ds_site_map *map = map_alloc(hp->n_layers, err);
    if (!map)
        return -1;
    struct unroll u = {.hp = hp, .wants = wants, .map = map, .dtype = dtype};
    uint32_t count = number_sites(map, hp, wants);
    add_all(&u);
    u.sites = ds_calloc(count, sizeof *u.sites, "sites", err);
    u.edges = u.sites ? ds_calloc(u.n_edges, sizeof *u.edges, "edges", err) : NULL;
    if (u.edges) {
        u.n_edges = 0;
        add_all(&u);
    }
    ds_site_map_free(map);
    if (!u.edges) {
        free(u.sites);
        return -1;
    }
    *sites = u.sites;
    *n_sites = count;
    *edges = u.edges;
    *n_edges = u.n_edges;
    return 0;
}

/* ---- who reads what -------------------------------------------------------------------------- */

/* Whether the pass keeps rows before rounding of a stage. */
static int is_kept(int stage)
{
    const struct ds_stage_info *s = ds_stage(stage);
    return s->store == DS_STORE_ACTIVATION && s->parts == DS_PARTS_ONE && s->op != DS_OP_CACHE &&
           s->when != DS_WHEN_SHARED && s->when != DS_WHEN_BOUNDARY && s->when != DS_WHEN_RANKS;
}

/* Whether the first and the last layer have the stage: all kinds of layers are among them. */
static int in_layer(int stage, const struct ds_hparams *hp, int last)
{
    static const struct ds_site_wants plain;
    return ds_site_parts(stage, last ? hp->n_layers - 1 : 0, hp, &plain) > 0;
}

int ds_stage_in_model(int stage, const struct ds_hparams *hp)
{
    return in_layer(stage, hp, 0) || in_layer(stage, hp, 1);
}

static uint64_t inputs_of(const struct ds_hparams *hp, int reader)
{
    const struct ds_stage_info *r = ds_stage(reader);
    uint64_t stages = 0;
    for (int i = 0; i < r->n_inputs; i++) {
        int from = r->inputs[i].stage;
        if (from == DS_ST_RESID_IN) {
            stages |= DS_STAGE_BIT(DS_ST_EMBED) | DS_STAGE_BIT(DS_ST_RESID_FFN);
            continue;
        }
        if (!in_layer(from, hp, 0) || !in_layer(from, hp, 1))
            stages |= r->inputs[i].optional ? 0 : inputs_of(hp, from);
        if (ds_stage_in_model(from, hp) && is_kept(from))
            stages |= DS_STAGE_BIT(from);
    }
    return stages;
}

uint64_t ds_site_read_by(const struct ds_hparams *hp, uint32_t ops)
{
    uint64_t stages = 0;
    for (int s = 0; s < DS_ST_COUNT; s++) {
        int op = ds_stage(s)->op;
        if (op >= 0 && op != DS_OP_CACHE && ops >> op & 1 && ds_stage_in_model(s, hp))
            stages |= inputs_of(hp, s);
    }
    return stages;
}
