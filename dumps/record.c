/* record.c: what a trial and a header are, apart from any file: releasing them, checking their
 * indices, and the tensor and run digests. Must not know HDF5. */
#include "dumps/record.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static void free_texts(struct ds_text *texts, size_t n)
{
    for (size_t i = 0; texts && i < n; i++) {
        free(texts[i].name);
        free(texts[i].value);
    }
    free(texts);
}

void ds_header_free(struct ds_header *h)
{
    if (!h)
        return;
    free(h->command);
    free_texts(h->environment, h->n_environment);
    free_texts(h->hparams, h->n_hparams);
    free_texts(h->options, h->n_options);
    free(h->weights);
    for (size_t i = 0; h->prompts && i < h->n_prompts; i++) {
        free(h->prompts[i].text);
        free(h->prompts[i].tokens);
    }
    free(h->prompts);
    free(h->sites);
    free(h->edges);
    for (size_t i = 0; h->arms && i < h->n_arms; i++) {
        for (size_t j = 0; h->arms[i].values && j < h->n_factors; j++)
            free(h->arms[i].values[j]);
        free(h->arms[i].values);
    }
    free(h->arms);
    for (size_t i = 0; h->factors && i < h->n_factors; i++)
        free(h->factors[i]);
    free(h->factors);
    memset(h, 0, sizeof *h);
}

int ds_site_recomputed(const struct ds_site *s)
{
    return strcmp(s->op, "custom") == 0 &&
           (strcmp(s->stage, "attn_scores") == 0 || strcmp(s->stage, "attn_probs") == 0);
}

/* "final_norm,logits=f32" has the stage. */
static int lists(const char *text, const char *stage)
{
    const size_t n = strlen(stage);
    for (const char *p = text; *p; p += strcspn(p, ",="), p += *p != '\0')
        if (strncmp(p, stage, n) == 0 && (p[n] == ',' || p[n] == '='))
            return 1;
    return 0;
}

const char *ds_site_dtype(const struct ds_header *h, uint32_t site, uint32_t arm)
{
    const struct ds_site *s = &h->sites[site];
    if (strcmp(s->dtype, "i32") == 0 || strcmp(s->stage, "logits") == 0 ||
        strcmp(s->stage, "logits_processed") == 0 || strcmp(s->part, "unrounded") == 0 ||
        (strcmp(s->stage, "router_ids") == 0 && strcmp(s->part, "weights") == 0))
        return s->dtype;
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "dtype_at") == 0 && lists(h->options[i].value, s->stage))
            return "f32";
    for (size_t i = 0; i < h->n_factors && arm < h->n_arms; i++)
        if (strcmp(h->factors[i], "dtype") == 0)
            return h->arms[arm].values[i];
    return s->dtype;
}

/* What travels is stored as it is there, so it is not a row before rounding. */
int ds_site_copies(const struct ds_site *from, const struct ds_site *to, uint32_t kind)
{
    return kind == DS_EDGE_ROW && strcmp(to->stage, "transfer") == 0 &&
           strcmp(from->part, "unrounded") != 0 && strcmp(from->dtype, to->dtype) == 0 &&
           from->width == to->width;
}

void ds_trial_data_free(struct ds_trial_data *t)
{
    if (!t)
        return;
    free(t->calls);
    free(t->rows);
    free(t->launches);
    free(t->captures);
    free(t->digests);
    free(t->drifts);
    free(t->nonfinites);
    free(t->ranges);
    free(t->masks);
    free(t->mask_words);
    free(t->steps);
    free(t->packed);
    free(t->failures);
    for (size_t i = 0; t->blobs && i < t->n_blobs; i++)
        free(t->blobs[i].data);
    free(t->blobs);
    memset(t, 0, sizeof *t);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* first .. first + count - 1 lie inside `limit` items. */
static int in_range(uint64_t first, uint64_t count, uint64_t limit)
{
    return count <= limit && first <= limit - count;
}

static int terminated(const char *s, size_t size)
{
    return memchr(s, 0, size) != NULL;
}

static int check_calls(const struct ds_trial_data *t, struct ds_error *err)
{
    for (size_t i = 0; i < t->n_calls; i++) {
        const struct ds_call *c = &t->calls[i];
        if (c->index != i)
            return ds_fail(err, "call %zu: its index is %u", i, c->index);
        if (c->phase > DS_PHASE_DECODE)
            return ds_fail(err, "call %zu: unknown phase %u", i, c->phase);
        if (!in_range(c->first_row, c->rows, t->n_rows))
            return ds_fail(err, "call %zu: rows %u + %u of %zu", i, c->first_row, c->rows,
                           t->n_rows);
    }
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_row *r = &t->rows[i];
        if (r->call >= t->n_calls)
            return ds_fail(err, "row %zu: call %u of %zu", i, r->call, t->n_calls);
        const struct ds_call *c = &t->calls[r->call];
        if (i < c->first_row || i - c->first_row >= c->rows)
            return ds_fail(err, "row %zu: outside the rows of its call %u", i, r->call);
        if (r->kind > DS_ROW_PAD)
            return ds_fail(err, "row %zu: unknown kind %u", i, r->kind);
    }
    return 0;
}

static int check_captures(const struct ds_header *h, const struct ds_trial_data *t,
                          struct ds_error *err)
{
    for (size_t i = 0; i < t->n_launches; i++) {
        const struct ds_launch *l = &t->launches[i];
        if (!terminated(l->op, sizeof l->op) || !terminated(l->variant, sizeof l->variant) ||
            !terminated(l->algo, sizeof l->algo))
            return ds_fail(err, "launch %zu: a name without an end", i);
    }
    uint64_t total = 0; /* stays below n_digests + 2^32 */
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        if (c->call >= t->n_calls)
            return ds_fail(err, "capture %zu: call %u of %zu", i, c->call, t->n_calls);
        if (c->site >= h->n_sites)
            return ds_fail(err, "capture %zu: site %u of %zu", i, c->site, h->n_sites);
        if (c->launch >= t->n_launches)
            return ds_fail(err, "capture %zu: launch %u of %zu", i, c->launch, t->n_launches);
        const struct ds_call *call = &t->calls[c->call];
        if (c->first_row < call->first_row ||
            !in_range(c->first_row - call->first_row, c->rows, call->rows))
            return ds_fail(err, "capture %zu: rows %u + %u outside call %u", i, c->first_row,
                           c->rows, c->call);
        if (!in_range(c->first_digest, c->rows, t->n_digests))
            return ds_fail(err, "capture %zu: digests %llu + %u of %zu", i,
                           (unsigned long long)c->first_digest, c->rows, t->n_digests);
        /* Each digest belongs to one capture: else a few bytes could stand for any number of rows.
         */
        total += c->rows;
        if (total > t->n_digests)
            return ds_fail(err,
                           "capture %zu: the captures have more rows than there are digests (%zu)",
                           i, t->n_digests);
    }
    return 0;
}

static int check_findings(const struct ds_header *h, const struct ds_trial_data *t,
                          struct ds_error *err)
{
    for (size_t i = 0; i < t->n_drifts; i++) {
        const struct ds_drift *d = &t->drifts[i];
        if (d->site >= h->n_sites || d->row >= t->n_rows || d->ref_arm >= h->n_arms)
            return ds_fail(err, "drift %zu: site %u of %zu, row %u of %zu, arm %u of %zu", i,
                           d->site, h->n_sites, d->row, t->n_rows, d->ref_arm, h->n_arms);
    }
    for (size_t i = 0; i < t->n_nonfinites; i++) {
        const struct ds_nonfinite *f = &t->nonfinites[i];
        if (f->site >= h->n_sites || f->row >= t->n_rows)
            return ds_fail(err, "non-finite row %zu: site %u of %zu, row %u of %zu", i, f->site,
                           h->n_sites, f->row, t->n_rows);
    }
    for (size_t i = 0; i < t->n_ranges; i++) {
        const struct ds_range *r = &t->ranges[i];
        if (r->site >= h->n_sites || r->row >= t->n_rows || !(r->max_abs >= 0))
            return ds_fail(err, "range %zu: site %u of %zu, row %u of %zu, largest value %g", i,
                           r->site, h->n_sites, r->row, t->n_rows, (double)r->max_abs);
    }
    for (size_t i = 0; i < t->n_blobs; i++) {
        const struct ds_blob *b = &t->blobs[i];
        size_t size =
            terminated(b->dtype, sizeof b->dtype) ? ds_dtype_size(ds_dtype_parse(b->dtype)) : 0;
        if (size == 0)
            return ds_fail(err, "dumped row %zu: unknown dtype", i);
        if ((uint64_t)b->elements * size != b->bytes)
            return ds_fail(err, "dumped row %zu: %u elements of %s in %u bytes", i, b->elements,
                           b->dtype, b->bytes);
        if (b->bytes && !b->data)
            return ds_fail(err, "dumped row %zu: no bytes", i);
    }
    return 0;
}

/* Bits beyond the last element say nothing, and what is beyond rounding differs. */
static int mask_is_sound(const struct ds_mask *m, const uint64_t *words)
{
    size_t n = ds_mask_words(m->width);
    for (uint32_t plane = 0; plane < m->planes; plane++) {
        if (m->width % 64 && words[plane * n + n - 1] >> m->width % 64)
            return 0;
        for (size_t i = 0; i < n; i++)
            if (words[plane * n + i] & ~words[i])
                return 0;
    }
    return 1;
}

static int check_masks(const struct ds_header *h, const struct ds_trial_data *t,
                       struct ds_error *err)
{
    uint64_t total = 0; /* stays below n_mask_words + 2^28 */
    for (size_t i = 0; i < t->n_masks; i++) {
        const struct ds_mask *m = &t->masks[i];
        if (m->site >= h->n_sites || m->ref_arm >= h->n_arms || m->phase > DS_PHASE_DECODE ||
            m->rows > t->n_rows)
            return ds_fail(err, "mask %zu: site %u of %zu, arm %u of %zu, phase %u, rows %u of %zu",
                           i, m->site, h->n_sites, m->ref_arm, h->n_arms, m->phase, m->rows,
                           t->n_rows);
        if (m->planes < 1 || m->planes > 2 ||
            !in_range(m->first, m->planes * ds_mask_words(m->width), t->n_mask_words))
            return ds_fail(err, "mask %zu: %u planes of %u bits from word %llu of %zu", i,
                           m->planes, m->width, (unsigned long long)m->first, t->n_mask_words);
        /* As with digests: each word belongs to one mask. */
        total += m->planes * ds_mask_words(m->width);
        if (total > t->n_mask_words || !mask_is_sound(m, t->mask_words + m->first))
            return ds_fail(err, "mask %zu: bits that are another mask's, or no element's", i);
    }
    return 0;
}

static int check_failures(const struct ds_header *h, const struct ds_trial_data *t,
                          struct ds_error *err)
{
    if ((t->info.pass == DS_PASS_FAILED) != (t->n_failures > 0))
        return ds_fail(err, "trial: pass %u with %zu failures", t->info.pass, t->n_failures);
    for (size_t i = 0; i < t->n_failures; i++) {
        const struct ds_failure *f = &t->failures[i];
        if (f->how > DS_FAILED_LATE || f->phase > DS_PHASE_DECODE)
            return ds_fail(err, "failure %zu: unknown kind %u or phase %u", i, f->how, f->phase);
        if (f->site >= h->n_sites && f->site != DS_NOWHERE)
            return ds_fail(err, "failure %zu: site %u of %zu", i, f->site, h->n_sites);
        if (!terminated(f->op, sizeof f->op) || !terminated(f->variant, sizeof f->variant) ||
            !terminated(f->why, sizeof f->why))
            return ds_fail(err, "failure %zu: a text without an end", i);
    }
    return 0;
}

/* An array that is claimed but absent would be read through NULL. */
static int check_arrays(const struct ds_trial_data *t, struct ds_error *err)
{
    const struct {
        const char *name;
        const void *data;
        size_t n;
    } arrays[] = {
        {"calls", t->calls, t->n_calls},
        {"rows", t->rows, t->n_rows},
        {"launches", t->launches, t->n_launches},
        {"captures", t->captures, t->n_captures},
        {"digests", t->digests, t->n_digests},
        {"drifts", t->drifts, t->n_drifts},
        {"nonfinites", t->nonfinites, t->n_nonfinites},
        {"steps", t->steps, t->n_steps},
        {"packed weights", t->packed, t->n_packed},
        {"blobs", t->blobs, t->n_blobs},
        {"failures", t->failures, t->n_failures},
        {"ranges", t->ranges, t->n_ranges},
        {"masks", t->masks, t->n_masks},
        {"mask words", t->mask_words, t->n_mask_words},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (arrays[i].n && !arrays[i].data)
            return ds_fail(err, "%s: %zu claimed, none there", arrays[i].name, arrays[i].n);
    return 0;
}

int ds_trial_data_check(const struct ds_header *h, const struct ds_trial_data *t,
                        struct ds_error *err)
{
    if (t->info.arm >= h->n_arms)
        return ds_fail(err, "trial: arm %u of %zu", t->info.arm, h->n_arms);
    if (t->info.pass > DS_PASS_FAILED)
        return ds_fail(err, "trial: unknown pass %u", t->info.pass);
    if (t->info.healed_to && t->info.pass != DS_PASS_HEAL)
        return ds_fail(err, "trial: healed to arm %u, but no heal trial", t->info.healed_to);
    if (t->info.healed_to >= h->n_arms)
        return ds_fail(err, "trial: healed to arm %u of %zu", t->info.healed_to, h->n_arms);
    if (!terminated(t->info.blas_core, sizeof t->info.blas_core))
        return ds_fail(err, "trial: the BLAS core's name has no end");
    if (!terminated(t->info.blas_config, sizeof t->info.blas_config))
        return ds_fail(err, "trial: the BLAS library's description has no end");
    for (size_t i = 0; t->packed && i < t->n_packed; i++)
        if (t->packed[i].weight >= h->n_weights ||
            !terminated(t->packed[i].variant, sizeof t->packed[i].variant))
            return ds_fail(err, "packed weight %zu: weight %u of %zu, or a name without an end", i,
                           t->packed[i].weight, h->n_weights);
    if (check_arrays(t, err) != 0 || check_calls(t, err) != 0 || check_captures(h, t, err) != 0)
        return -1;
    if (check_findings(h, t, err) != 0 || check_masks(h, t, err) != 0)
        return -1;
    return check_failures(h, t, err);
}

/* ---- digests --------------------------------------------------------------------------------- */

struct keyed {
    int32_t request, position, occurrence;
    /* Keeps equal keys in capture order, so that the result never depends on the sort. */
    uint32_t order;
    uint64_t digest;
};

static int keyed_compare(const void *pa, const void *pb)
{
    const struct keyed *a = pa, *b = pb;
    if (a->request != b->request)
        return a->request < b->request ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    if (a->occurrence != b->occurrence)
        return a->occurrence < b->occurrence ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* The tensor digest of one site from its gathered rows. `scratch` holds n digests. */
static uint64_t tensor_digest(struct keyed *rows, size_t n, uint64_t *scratch)
{
    int sorted = 1;
    for (size_t i = 1; i < n && sorted; i++)
        sorted = keyed_compare(&rows[i - 1], &rows[i]) < 0;
    if (!sorted)
        qsort(rows, n, sizeof *rows, keyed_compare);
    for (size_t i = 0; i < n; i++)
        scratch[i] = rows[i].digest;
    return XXH3_64bits(scratch, n * sizeof *scratch);
}

/* Fills begin[s] .. begin[s + 1] with each site's share and `rows` with its keyed digests, in
 * capture order. */
static void gather(const struct ds_trial_data *t, size_t n_sites, size_t *begin, size_t *next,
                   struct keyed *rows)
{
    for (size_t i = 0; i < t->n_captures; i++)
        for (uint32_t r = 0; r < t->captures[i].rows; r++)
            begin[t->captures[i].site + 1] +=
                t->rows[t->captures[i].first_row + r].kind != DS_ROW_PAD;
    for (size_t s = 0; s < n_sites; s++) {
        next[s] = begin[s];
        begin[s + 1] += begin[s];
    }
    for (size_t i = 0; i < t->n_captures; i++) {
        const struct ds_capture *c = &t->captures[i];
        for (uint32_t r = 0; r < c->rows; r++) {
            const struct ds_row *row = &t->rows[c->first_row + r];
            if (row->kind == DS_ROW_PAD)
                continue;
            struct keyed *k = &rows[next[c->site]];
            k->request = row->request;
            k->position = row->position;
            k->occurrence = row->occurrence;
            k->order = (uint32_t)(next[c->site]++ - begin[c->site]);
            k->digest = t->digests[c->first_digest + r];
        }
    }
}

int ds_trial_tensor_digests(const struct ds_header *h, const struct ds_trial_data *t,
                            uint64_t *tensor, uint8_t *has, struct ds_error *err)
{
    /* Only sites are asked of the header: a probe has no arms. */
    if (check_arrays(t, err) != 0 || check_calls(t, err) != 0 || check_captures(h, t, err) != 0)
        return -1;
    size_t total = 0, most = 0;
    for (size_t i = 0; i < t->n_captures; i++)
        total += t->captures[i].rows;
    size_t *begin = ds_calloc(h->n_sites + 1, sizeof *begin, "tensor digests", err);
    size_t *next = begin ? ds_calloc(h->n_sites + 1, sizeof *next, "tensor digests", err) : NULL;
    struct keyed *rows = next ? ds_calloc(total, sizeof *rows, "tensor digests", err) : NULL;
    uint64_t *scratch = NULL;
    if (rows) {
        gather(t, h->n_sites, begin, next, rows);
        for (size_t s = 0; s < h->n_sites; s++)
            most = begin[s + 1] - begin[s] > most ? begin[s + 1] - begin[s] : most;
        scratch = ds_calloc(most, sizeof *scratch, "tensor digests", err);
    }
    for (size_t s = 0; scratch && s < h->n_sites; s++) {
        has[s] = begin[s + 1] > begin[s];
        if (has[s])
            tensor[s] = tensor_digest(rows + begin[s], begin[s + 1] - begin[s], scratch);
    }
    int failed = scratch == NULL;
    free(scratch);
    free(rows);
    free(next);
    free(begin);
    return failed ? -1 : 0;
}

int ds_trial_run_digest(const struct ds_header *h, const struct ds_trial_data *t, uint64_t *out,
                        struct ds_error *err)
{
    uint64_t *tensor = ds_calloc(h->n_sites, sizeof *tensor, "tensor digests", err);
    uint8_t *has = tensor ? ds_calloc(h->n_sites, sizeof *has, "tensor digests", err) : NULL;
    const int rc = has ? ds_trial_tensor_digests(h, t, tensor, has, err) : -1;
    size_t n = 0;
    /* A site without a recorded row has no tensor and gives nothing to the run digest. */
    for (size_t s = 0; rc == 0 && s < h->n_sites; s++)
        if (has[s])
            tensor[n++] = tensor[s];
    if (rc == 0)
        *out = XXH3_64bits(tensor, n * sizeof *tensor);
    free(has);
    free(tensor);
    return rc;
}
