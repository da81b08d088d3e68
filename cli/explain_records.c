/* explain_records.c: one record, or two as `diff` joins them, behind one source. */
#include "cli/explain_case.h"

#include <stdio.h>
#include <string.h>

/* Whether a file begins as HDF5 does: a site's name is no such file. */
int ds_is_record(const char *path)
{
    static const unsigned char begins[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char got[8];
    FILE *f = fopen(path, "rbe");
    if (!f)
        return 0;
    const int is = fread(got, 1, sizeof got, f) == sizeof got && !memcmp(got, begins, sizeof got);
    fclose(f);
    return is;
}

static int side_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                     struct ds_error *err)
{
    return ds_record_blob(((struct ds_explain_records *)ctx)->record[side], digest, out, err);
}

static int open_two(struct ds_explain_records *r, struct ds_error *err)
{
    const struct ds_diff_options options = {.blob = side_blob, .ctx = r, .partial = 1, .across_models = 1};
    for (int i = 0; i < DS_SIDES; i++)
        ds_source_record(&r->source[i], r->record[i]);
    if (ds_diff_make(&r->source[DS_SIDE_A], &r->source[DS_SIDE_B], &options, &r->diff, err) != 0)
        return -1;
    r->joined = 1;
    if (!r->diff.analysis)
        return ds_fail(err, "nothing to explain: the records are not comparable: %.200s",
                       r->diff.verdict.reason);
    return 0;
}

int ds_explain_records_open(struct ds_explain_records *r, const char *const *paths, int n,
                            struct ds_error *err)
{
    memset(r, 0, sizeof *r);
    for (int i = 0; i < n; i++)
        if (ds_record_open(paths[i], &r->record[i], err) != 0) {
            ds_prefix(err, "%s", paths[i]);
            return -1;
        }
    if (n == 2)
        return open_two(r, err);
    ds_source_record(&r->source[0], r->record[0]);
    if (ds_analysis_new(&r->source[0], NULL, &r->alone, err) != 0)
        return -1;
    return ds_analysis_verdict(r->alone, &r->verdict, err);
}

void ds_explain_records_close(struct ds_explain_records *r)
{
    if (r->joined)
        ds_diff_free(&r->diff);
    ds_verdict_free(&r->verdict);
    ds_analysis_free(r->alone);
    for (int i = 0; i < DS_SIDES; i++)
        if (r->record[i])
            ds_record_close(r->record[i]);
}

const struct ds_verdict *ds_explain_records_case(struct ds_explain_records *r, struct ds_case *c)
{
    c->records = r;
    c->s = r->joined ? &r->diff.joined : &r->source[0];
    c->a = r->joined ? r->diff.analysis : r->alone;
    c->h = c->s->header;
    return r->joined ? &r->diff.verdict : &r->verdict;
}

/* ---- what only one of two records knows ------------------------------------------------------ */

static int side_of(const struct ds_case *c, uint32_t arm)
{
    return c->records->joined && arm % 2 ? DS_SIDE_B : DS_SIDE_A;
}

const struct ds_header *ds_case_header(const struct ds_case *c, uint32_t arm)
{
    return c->records->source[side_of(c, arm)].header;
}

uint32_t ds_case_own_arm(const struct ds_case *c, uint32_t arm)
{
    return c->records->joined && arm < c->h->n_arms ? c->records->diff.arm_of[arm] : arm;
}

const char *ds_case_setting(const struct ds_case *c, uint32_t arm, const char *factor)
{
    return ds_case_factor(ds_case_header(c, arm), ds_case_own_arm(c, arm), factor);
}

int ds_case_other_data(const struct ds_case *c)
{
    return c->records->joined && c->records->diff.data_differs &&
           c->records->diff.data_differs[c->f.site];
}
