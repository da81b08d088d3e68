/* test_site_map.c: sites and edges of every kind of model and wish; every site is found again by
 * its stage; inputs that do not exist are replaced or left out. */
#include "tests/unit/testing.h"

#include "engine/site_map.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t second_layer[3] = {0, 1, 0};

static const struct ds_hparams dense = {.n_layers = 3,
                                        .d_model = 8,
                                        .n_heads = 2,
                                        .n_kv_heads = 1,
                                        .head_dim = 4,
                                        .d_ff = 16,
                                        .vocab = 32};

struct list {
    struct ds_site *sites;
    struct ds_edge *edges;
    uint32_t n_sites, n_edges;
    struct ds_site_map *map;
};

static void list_new(struct list *l, const struct ds_hparams *hp, const struct ds_site_wants *w)
{
    struct ds_error err;
    assert_ok(ds_site_list(hp, DS_BF16, w, &l->sites, &l->n_sites, &l->edges, &l->n_edges, &err),
              err);
    assert_ok(ds_site_map_new(l->sites, l->n_sites, hp->n_layers, &l->map, &err), err);
    for (uint32_t e = 0; e < l->n_edges; e++)
        assert_true(l->edges[e].from < l->edges[e].to && l->edges[e].to < l->n_sites);
}

static void list_free(struct list *l)
{
    free(l->sites);
    free(l->edges);
    ds_site_map_free(l->map);
}

static uint32_t find(const struct list *l, int32_t layer, const char *stage, const char *part)
{
    for (uint32_t i = 0; i < l->n_sites; i++)
        if (l->sites[i].layer == layer && strcmp(l->sites[i].stage, stage) == 0 &&
            strcmp(l->sites[i].part, part) == 0)
            return i;
    return DS_NO_SITE;
}

/* The inputs of a site as "STAGE/PART STAGE/PART ...", those of another layer with "LAYER,". */
static void inputs_text(const struct list *l, uint32_t site, char *out, size_t size)
{
    out[0] = '\0';
    for (uint32_t e = 0; e < l->n_edges; e++)
        if (l->edges[e].to == site) {
            const struct ds_site *s = &l->sites[l->edges[e].from];
            size_t n = strlen(out);
            char layer[16] = "";
            if (s->layer != l->sites[site].layer)
                snprintf(layer, sizeof layer, "%d,", (int)s->layer);
            snprintf(out + n, size - n, "%s%s%s%s%s", n ? " " : "", layer, s->stage,
                     *s->part ? "/" : "", s->part);
        }
}

static struct ds_hparams experts(void)
{
    struct ds_hparams hp = dense;
    hp.n_experts = 4;
    hp.top_k = 2;
    hp.d_ff_expert = 6;
    hp.d_ff_shared = 10;
    hp.qk_norm = 1;
    return hp;
}

static void test_every_site_is_found_by_its_stage(void **state)
{
    (void)state;
    const struct ds_hparams models[] = {dense, experts()};
    const struct ds_site_wants wants[] = {
        {0},
        {.unrounded = DS_STAGE_BIT(DS_ST_RESID_FFN) | DS_STAGE_BIT(DS_ST_Q_PROJ)},
        {.ranks = 4, .boundary = second_layer, .watched = 1, .slots = 1},
        {.score_keys = 7}};
    for (size_t m = 0; m < 2; m++)
        for (size_t w = 0; w < 4; w++) {
            struct list l;
            list_new(&l, &models[m], &wants[w]);
            uint32_t found = 0;
            for (int32_t layer = -1; layer <= 3; layer++)
                for (int s = 0; s < DS_ST_COUNT; s++) {
                    int group = s < DS_ST_FIRST_OF_LAYER ? -1 : s >= DS_ST_FIRST_AFTER ? 3 : layer;
                    if (group != layer || (layer != -1 && s < DS_ST_FIRST_OF_LAYER) ||
                        ((layer < 0 || layer > 2) && group == layer && s >= DS_ST_FIRST_OF_LAYER &&
                         s < DS_ST_FIRST_AFTER))
                        continue;
                    uint32_t n = ds_site_parts(s, layer, &models[m], &wants[w]);
                    for (uint32_t k = 0; k < n; k++) {
                        uint32_t at = ds_site_map_at(l.map, s, layer, k);
                        assert_true(at < l.n_sites);
                        assert_string_equal(l.sites[at].stage, ds_stage(s)->name);
                        assert_int_equal(l.sites[at].layer, layer);
                        const int64_t keys = strncmp(l.sites[at].stage, "attn_", 5) == 0 &&
                                                     strcmp(l.sites[at].op, "custom") == 0
                                                 ? 7
                                                 : 1;
                        assert_int_equal(l.sites[at].width,
                                         keys * ds_stage_width_of(s, &models[m]));
                        found++;
                    }
                    assert_int_equal(ds_site_map_at(l.map, s, layer, n), DS_NO_SITE);
                    uint32_t before = ds_site_map_unrounded(l.map, s, layer);
                    found += before != DS_NO_SITE;
                    if (before != DS_NO_SITE)
                        assert_string_equal(l.sites[before].part, "unrounded");
                }
            assert_int_equal(found, l.n_sites);
            list_free(&l);
        }
}

static void test_inputs(void **state)
{
    (void)state;
    static const struct ds_site_wants none,
        watched = {.watched = 1}, all = {.ranks = 2, .boundary = second_layer, .slots = 1},
        scores = {.score_keys = 7}, watched_scores = {.watched = 1, .score_keys = 7};
    const struct {
        int moe;
        const struct ds_site_wants *wants;
        int32_t layer;
        const char *stage, *part, *inputs;
    } cases[] = {
        {0, &none, 0, "attn_norm", "", "-1,embed"},
        {0, &none, 1, "attn_norm", "", "0,resid_ffn"},
        {0, &none, 1, "q_rope", "", "-1,positions q_proj"},
        {0, &none, 1, "kv_write", "k", "k_rope"},
        {0, &none, 1, "resid_ffn", "", "resid_attn down"},
        {0, &none, 3, "token", "", "logits_processed"},
        {0, &none, 3, "logits_processed", "", "logits"},
        {0, &all, 0, "attn_norm", "", "-1,embed"},
        {0, &all, 1, "transfer", "src", "0,resid_ffn"},
        {0, &all, 1, "attn_norm", "", "transfer/dst"},
        {0, &all, 1, "resid_attn", "", "transfer/dst o_proj"},
        {0, &all, 2, "o_proj", "r1", "attn_out"},
        {0, &all, 2, "allreduce", "o_proj", "o_proj/r0 o_proj/r1"},
        {0, &all, 2, "o_proj", "", "allreduce/o_proj"},
        {0, &all, 2, "down", "", "allreduce/down"},
        {0, &all, 2, "down", "r0", "act"},
        {0, &all, 2, "kv_write", "v", "-1,slots v_proj"},
        {0, &all, 3, "token", "", "logits_processed"},
        {0, &none, 1, "attn_out", "", "-1,kv_len q_rope kv_write/k kv_write/v"},
        {0, &watched, 1, "kv_write", "k-kept", "k_rope"},
        {0, &watched, 1, "attn_out", "",
         "-1,kv_len q_rope kv_write/k kv_write/v kv_write/k-kept kv_write/v-kept"},
        {0, &scores, 1, "attn_scores", "", "-1,kv_len q_rope kv_write/k"},
        {0, &scores, 1, "attn_probs", "", "-1,kv_len attn_scores"},
        {0, &scores, 1, "attn_out", "", "-1,kv_len q_rope kv_write/k kv_write/v"},
        {0, &watched_scores, 1, "attn_scores", "", "-1,kv_len q_rope kv_write/k kv_write/k-kept"},
        {1, &none, 1, "q_rope", "", "-1,positions q_norm"},
        {1, &none, 1, "k_norm", "", "k_proj"},
        {1, &none, 1, "router_ids", "", "router_logits"},
        {1, &none, 1, "router_ids", "weights", "router_logits router_logits/shared router_ids"},
        {1, &none, 1, "gate", "e1", "ffn_norm router_ids"},
        {1, &none, 1, "act", "e1", "gate/e1 up/e1"},
        {1, &none, 1, "expert_out", "e0", "act/e0 router_ids"},
        {1, &none, 1, "moe_combine", "",
         "router_ids/weights expert_out/e0 expert_out/e1 expert_out/shared"},
        {1, &none, 1, "resid_ffn", "", "resid_attn moe_combine"},
    };
    const struct ds_hparams models[] = {dense, experts()};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct list l;
        char text[256];
        list_new(&l, &models[cases[c].moe], cases[c].wants);
        inputs_text(&l, find(&l, cases[c].layer, cases[c].stage, cases[c].part), text, sizeof text);
        assert_string_equal(text, cases[c].inputs);
        list_free(&l);
    }
}

static void test_formats_and_foreign_lists(void **state)
{
    (void)state;
    struct ds_error err;
    struct list l;
    const struct ds_hparams hp = experts();
    const struct ds_site_wants wants = {.unrounded = DS_STAGE_BIT(DS_ST_Q_PROJ)};
    list_new(&l, &hp, &wants);
    struct ds_site *other = ds_site_stored_as(l.sites, l.n_sites, DS_F16, 0, &err), *want;
    struct ds_edge *edges;
    uint32_t n, n_edges;
    assert_non_null(other);
    assert_ok(ds_site_list(&hp, DS_F16, &wants, &want, &n, &edges, &n_edges, &err), err);
    assert_int_equal(n, l.n_sites);
    assert_memory_equal(other, want, n * sizeof *want);
    /* A site that nobody has is passed over; parts that stand apart are refused. */
    struct ds_site_map *map;
    strcpy(other[2].stage, "elsewhere");
    assert_ok(ds_site_map_new(other, n, hp.n_layers, &map, &err), err);
    assert_int_equal(ds_site_map_at(map, DS_ST_EMBED, -1, 0), DS_NO_SITE);
    ds_site_map_free(map);
    struct ds_site one = other[0];
    other[0] = other[ds_site_map_at(l.map, DS_ST_EXPERT_OUT, 1, 0)];
    other[ds_site_map_at(l.map, DS_ST_EXPERT_OUT, 1, 0)] = one;
    assert_int_equal(ds_site_map_new(other, n, hp.n_layers, &map, &err), -1);
    assert_non_null(strstr(err.msg, "stands apart"));
    assert_int_equal(ds_site_map_new(other, n, 0, &map, &err), -1);
    free(other);
    free(want);
    free(edges);
    list_free(&l);
    struct ds_site *sites;
    assert_int_equal(ds_site_list(&hp, DS_I32, &wants, &sites, &n, &edges, &n_edges, &err), -1);
    const struct ds_site_wants many = {.ranks = 1 << 20};
    assert_int_equal(ds_site_list(&hp, DS_F32, &many, &sites, &n, &edges, &n_edges, &err), -1);
    const struct ds_site_wants wide = {.score_keys = INT32_MAX};
    assert_int_equal(ds_site_list(&hp, DS_F32, &wide, &sites, &n, &edges, &n_edges, &err), -1);
    assert_non_null(strstr(err.msg, "do not fit a row"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_site_is_found_by_its_stage),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_formats_and_foreign_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
