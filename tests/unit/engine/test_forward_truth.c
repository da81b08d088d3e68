/* test_forward_truth.c: every stage against an independent transcription of the model in double
 * precision. */
#include "tests/unit/engine/forward_testing.h"

#include <math.h>

/* GQA, head_dim * heads != hidden, biases, an untied head, RoPE on half of each head, scaled
 * positions; K above 256. */
static const char spec[] = "random:llama,layers=3,hidden=72,heads=6,kv_heads=2,head_dim=16,rope_"
                           "dim=8,rope_scale=2.5,ffn=600,"
                           "vocab=331,bias=1,tied=0,seed=11,eps=0.001";

enum { LENGTH = 37 };

/* The transcription: one matrix [LENGTH][width] per site, in the order of sites that the header
 * promises. */
struct truth {
    double *value[128];
    int n;
};

static double *matrix(struct truth *t, int64_t width)
{
    double *y = calloc((size_t)(LENGTH * width), sizeof *y);
    assert_non_null(y);
    assert_true(t->n < 128);
    return t->value[t->n++] = y;
}

static double *norm(struct truth *t, const double *x, const struct ds_weight *w, double eps)
{
    int64_t d = w->cols;
    double *y = matrix(t, d);
    for (int64_t r = 0; r < LENGTH; r++) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += x[r * d + i] * x[r * d + i];
        for (int64_t i = 0; i < d; i++)
            y[r * d + i] = x[r * d + i] / sqrt(sum / (double)d + eps) * (double)w->data[i];
    }
    return y;
}

static double *product(struct truth *t, const double *x, const struct ds_weight *w,
                       const struct ds_weight *bias)
{
    double *y = matrix(t, w->rows);
    for (int64_t r = 0; r < LENGTH; r++)
        for (int64_t j = 0; j < w->rows; j++) {
            double sum = bias ? (double)bias->data[j] : 0.0;
            for (int64_t i = 0; i < w->cols; i++)
                sum += x[r * w->cols + i] * (double)w->data[j * w->cols + i];
            y[r * w->rows + j] = sum;
        }
    return y;
}

static double *rotated(struct truth *t, const double *x, int heads, const struct ds_hparams *hp)
{
    int64_t width = heads * hp->head_dim;
    double *y = matrix(t, width);
    memcpy(y, x, (size_t)(LENGTH * width) * sizeof *y);
    for (int r = 0; r < LENGTH; r++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < hp->rope_dim / 2; i++) {
                double angle =
                    r / (double)hp->rope_scale / pow((double)hp->rope_base, 2.0 * i / hp->rope_dim);
                int64_t at = r * width + h * hp->head_dim + 2 * i;
                y[at] = x[at] * cos(angle) - x[at + 1] * sin(angle);
                y[at + 1] = x[at] * sin(angle) + x[at + 1] * cos(angle);
            }
    return y;
}

static double *attended(struct truth *t, const double *q, const double *k, const double *v,
                        const struct ds_hparams *hp)
{
    int heads = hp->n_heads, group = heads / hp->n_kv_heads, dim = hp->head_dim,
        kv = hp->n_kv_heads * dim;
    double *y = matrix(t, heads * dim);
    for (int r = 0; r < LENGTH; r++)
        for (int h = 0; h < heads; h++) {
            double score[LENGTH], total = 0, most = -HUGE_VAL;
            const double *query = q + (r * heads + h) * dim;
            for (int s = 0; s <= r; s++) {
                double dot = 0;
                for (int i = 0; i < dim; i++)
                    dot += query[i] * k[s * kv + h / group * dim + i];
                score[s] = dot / sqrt((double)dim);
                most = fmax(most, score[s]);
            }
            for (int s = 0; s <= r; s++)
                total += score[s] = exp(score[s] - most);
            for (int s = 0; s <= r; s++)
                for (int i = 0; i < dim; i++)
                    y[(r * heads + h) * dim + i] +=
                        score[s] / total * v[s * kv + h / group * dim + i];
        }
    return y;
}

static double *sum(struct truth *t, const double *a, const double *b, int64_t width)
{
    double *y = matrix(t, width);
    for (int64_t i = 0; i < LENGTH * width; i++)
        y[i] = a[i] + b[i];
    return y;
}

static double *copy(struct truth *t, const double *x, int64_t width)
{
    double *y = matrix(t, width);
    return memcpy(y, x, (size_t)(LENGTH * width) * sizeof *y);
}

static void transcribe(const struct ds_model *m, int32_t text, struct truth *t)
{
    const struct ds_hparams *hp = &m->hp;
    double eps = (double)hp->rms_eps, *positions = matrix(t, 1), *visible = matrix(t, 1),
           *x = matrix(t, hp->d_model);
    for (int r = 0; r < LENGTH; r++) {
        positions[r] = r;
        visible[r] = r + 1;
        for (int i = 0; i < hp->d_model; i++)
            x[r * hp->d_model + i] =
                (double)m->embed->data[(int64_t)token_of(text, r, hp->vocab) * hp->d_model + i];
    }
    for (int l = 0; l < hp->n_layers; l++) {
        const struct ds_layer *w = &m->layers[l];
        double *n = norm(t, x, w->attn_norm, eps), *q = product(t, n, w->q, w->q_bias);
        double *k = product(t, n, w->k, w->k_bias), *v = product(t, n, w->v, w->v_bias);
        q = rotated(t, q, hp->n_heads, hp);
        k = rotated(t, k, hp->n_kv_heads, hp);
        copy(t, k, w->k->rows);
        copy(t, v, w->v->rows);
        double *o = product(t, attended(t, q, k, v, hp), w->o, w->o_bias);
        x = sum(t, x, o, hp->d_model);
        n = norm(t, x, w->ffn_norm, eps);
        double *gate = product(t, n, w->gate, w->gate_bias), *up = product(t, n, w->up, w->up_bias);
        double *act = matrix(t, hp->d_ff);
        for (int64_t i = 0; i < (int64_t)LENGTH * hp->d_ff; i++)
            act[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        x = sum(t, x, product(t, act, w->down, w->down_bias), hp->d_model);
    }
    x = norm(t, x, m->final_norm, eps);
    double *logits = product(t, x, m->head, NULL), *processed = matrix(t, hp->vocab),
           *token = matrix(t, 1);
    memcpy(processed, logits, sizeof *logits * LENGTH * (size_t)hp->vocab);
    for (int r = 0; r < LENGTH; r++)
        for (int j = 0; j < hp->vocab; j++)
            if (logits[r * hp->vocab + j] > logits[r * hp->vocab + (int)token[r]])
                token[r] = j;
}

/* Relative L2 distance of one site's rows, all positions together. */
static double distance(const struct ds_probe *p, uint32_t site, int32_t request, const double *want)
{
    double diff = 0, size = 0;
    uint32_t width = p->sites[site].width;
    for (int r = 0; r < LENGTH; r++) {
        const char *row = *row_at(p, site, request, r);
        assert_non_null(row);
        for (uint32_t i = 0; i < width; i++) {
            float x;
            int32_t whole;
            memcpy(&x, row + 4 * (size_t)i, 4);
            memcpy(&whole, row + 4 * (size_t)i, 4);
            double got = strcmp(p->sites[site].dtype, "i32") == 0 ? whole : (double)x,
                   w = want[r * width + i];
            diff += (got - w) * (got - w);
            size += w * w;
        }
    }
    return sqrt(diff / size);
}

static void compare_with_truth(const char *kernels)
{
    struct ds_model *m = open_model(spec);
    assert_true(m->layers[0].q_bias && m->head != m->embed && m->hp.rope_dim < m->hp.head_dim &&
                m->hp.rope_scale > 1.0f);
    struct setting s = {
        .kernels = kernels, .threads = 2, .chunk = 16, .page_size = 5, .all_logits = 1};
    const int32_t texts[] = {2, 5};
    struct ds_probe *p = run_texts(m, &s, texts, 2, LENGTH);
    double worst = 0;
    uint32_t worst_site = 0;
    for (int i = 0; i < 2; i++) {
        struct truth t = {{0}, 0};
        transcribe(m, texts[i], &t);
        assert_int_equal(t.n, p->n_sites);
        for (uint32_t site = 0; site < p->n_sites; site++) {
            double d = distance(p, site, texts[i], t.value[site]);
            if (!(d <= 1e-5)) {
                print_error("%s, text %d, layer %d %s%s: relative L2 %.3g\n", kernels,
                            (int)texts[i], (int)p->sites[site].layer, p->sites[site].stage,
                            p->sites[site].part, d);
                fail();
            }
            if (d > worst) {
                worst = d;
                worst_site = site;
            }
            free(t.value[site]);
        }
    }
    print_message("           worst relative L2 of %s: %.2g at layer %d %s\n", kernels, worst,
                  (int)p->sites[worst_site].layer, p->sites[worst_site].stage);
    assert_true(worst > 0); /* f32 must show some rounding, or nothing was compared */
    keeper_free(p);
    ds_model_close(m);
}

static void test_reference_kernels_follow_the_transcription(void **state)
{
    (void)state;
    compare_with_truth("reference");
}

static void test_pinned_kernels_follow_the_transcription(void **state)
{
    (void)state;
    compare_with_truth("pinned");
}

static void test_vendor_kernels_follow_the_transcription(void **state)
{
    (void)state;
    struct ds_error err;
    if (ds_blas_open("", &err) != 0) {
        print_message("           no OpenBLAS here: %s\n", err.msg);
        skip();
    }
    compare_with_truth("vendor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_kernels_follow_the_transcription),
        cmocka_unit_test(test_pinned_kernels_follow_the_transcription),
        cmocka_unit_test(test_vendor_kernels_follow_the_transcription),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
