/* names.c: the words and names that all parts of a report share. */
#include "report/report_internal.h"

#include "dumps/census.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *ds_report_color(const struct ds_report *r, enum ds_role role)
{
    return r->color ? r->color(r->color_ctx, role) : "";
}

void ds_report_name(struct ds_buf *out, const char *text)
{
    ds_buf_escape(out, text ? text : "", (size_t)-1);
}

void ds_report_place(struct ds_buf *out, int32_t layer, const char *stage, const char *part)
{
    if (layer >= 0) /* before the layers there is none */
        ds_buf_printf(out, "layer %d ", layer);
    ds_report_name(out, stage);
    if (part && part[0]) {
        ds_buf_puts(out, "/");
        ds_report_name(out, part);
    }
}

void ds_report_kernel(struct ds_buf *out, const char *op, const char *variant)
{
    ds_report_name(out, op);
    ds_buf_puts(out, "/");
    ds_report_name(out, variant);
}

void ds_report_head(const struct ds_report *r, const char *name, struct ds_buf *out)
{
    ds_buf_printf(out, "%s%-13s%s ", ds_report_color(r, DS_ROLE_HEAD), name,
                  ds_report_color(r, DS_ROLE_PLAIN));
}

/* An arm without a trial was lost or not run yet: nothing is known of it. */
void ds_report_arms(const struct ds_verdict *v, struct ds_buf *out)
{
    uint64_t arms = v->counts.arms, planned = v->counts.arms_planned;
    ds_buf_printf(out, "%" PRIu64, arms);
    if (planned > arms)
        ds_buf_printf(out, " of %" PRIu64, planned);
    ds_buf_puts(out, planned <= 1 && arms == 1 ? " arm" : " arms");
}

uint32_t ds_report_own_arm(const struct ds_report *r, uint32_t arm)
{
    return r->diff && r->diff->arm_of && arm < r->diff->header.n_arms ? r->diff->arm_of[arm] : arm;
}

int ds_report_until_stable(const struct ds_report *r)
{
    for (size_t i = 0; !r->diff && r->header && i < r->header->n_options; i++)
        if (strcmp(r->header->options[i].name, "until_stable") == 0)
            return strcmp(r->header->options[i].value, "0") != 0;
    return 0;
}

/* Trials that the record is to have in the end; 0 when that is not a question (diff). */
uint64_t ds_report_planned(const struct ds_report *r)
{
    if (r->diff || !r->header)
        return 0;
    uint64_t planned = (uint64_t)r->header->n_arms * r->header->repeats;
    const struct ds_census *c = r->v->census;
    for (size_t i = 0; c && ds_report_until_stable(r) && i < c->n_arms; i++)
        if (c->arms[i].distinct > 1 && c->arms[i].trials < r->header->repeats)
            planned -= r->header->repeats - c->arms[i].trials;
    return planned;
}

/* " with threads 2": what else is not as in the base arm. */
void ds_report_rest(const struct ds_report *r, const struct ds_finding *f, struct ds_buf *out)
{
    const struct ds_header *h = r->header;
    int first = 1;
    for (size_t i = 0; !r->diff && i < h->n_factors && f->arm < h->n_arms; i++) {
        if (strcmp(h->factors[i], f->factor) == 0 ||
            strcmp(h->arms[f->arm].values[i], h->arms[0].values[i]) == 0)
            continue;
        ds_buf_puts(out, first ? " with " : ", ");
        ds_report_name(out, h->factors[i]);
        ds_buf_puts(out, " ");
        ds_report_name(out, h->arms[f->arm].values[i]);
        first = 0;
    }
}

void ds_report_row_key(const struct ds_row_key *key, struct ds_buf *out)
{
    ds_buf_printf(out, "%d:%d", key->request, key->position);
    if (key->occurrence)
        ds_buf_printf(out, "#%d", key->occurrence);
}

/* ---- numbers --------------------------------------------------------------------------------- */

void ds_report_number(double x, struct ds_buf *out)
{
    if (isnan(x))
        ds_buf_puts(out, "NaN");
    else if (isinf(x))
        ds_buf_puts(out, x > 0 ? "Inf" : "-Inf");
    else
        ds_buf_printf(out, "%.9g", x);
}

void ds_report_ulp(uint64_t distance, struct ds_buf *out)
{
    if (distance == UINT64_MAX)
        ds_buf_puts(out, "NaN");
    else
        ds_buf_printf(out, "%" PRIu64, distance);
}

void ds_report_digest(uint64_t digest, struct ds_buf *out)
{
    ds_buf_printf(out, "%016" PRIx64, digest);
}

/* ---- lists ----------------------------------------------------------------------------------- */

void ds_report_item(struct ds_buf *out, const char *indent, const struct ds_buf *item, int first,
                    size_t *column)
{
    if (!first && *column + 2 + item->len + 1 > 100) {
        ds_buf_printf(out, ",\n%s", indent);
        *column = strlen(indent);
    } else if (!first) {
        ds_buf_puts(out, ", ");
        *column += 2;
    }
    ds_buf_add(out, item->data, item->len);
    out->failed |= item->failed;
    *column += item->len;
}

void ds_report_wrapped(struct ds_buf *out, const char *indent, size_t column, const char *text)
{
    struct ds_buf b = {0};
    ds_report_name(&b, text);
    const char *at = b.data ? b.data : "";
    for (int first = 1; *at; first = 0) {
        const size_t lead = first ? 0 : 1, n = strcspn(at + lead, " ");
        if (!first && column + lead + n > 100) {
            ds_buf_printf(out, "\n%s", indent);
            column = strlen(indent);
            at += lead;
            ds_buf_add(out, at, n);
        } else {
            ds_buf_add(out, at, lead + n);
            column += lead;
            at += lead;
        }
        column += n;
        at += n;
    }
    out->failed |= b.failed;
    ds_buf_free(&b);
}
