/* render_check.c: see render_check.h: the text. */
#include "cli/render_check.h"

#include "kernels/registry.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- over all shapes -------------------------------------------------------------------------------- */

int ds_checked_ran(const struct ds_checked *v)
{
    for (size_t i = 0; i < v->n; i++)
        for (int p = 0; p < DS_PROPERTY_COUNT; p++)
            if (v->result[i].property[p].state >= DS_STATE_HOLDS)
                return 1;
    return 0;
}

int ds_checked_failure(const struct ds_checked *v, size_t *at)
{
    for (size_t i = 0; i < v->n; i++) {
        int p = ds_check_failure(v->kernel, &v->result[i]);
        *at = i;
        if (p >= 0)
            return p;
    }
    return -1;
}

int ds_checked_state(const struct ds_checked *v, int property, size_t *at)
{
    int state = DS_STATE_NOT_RUN;
    *at = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct ds_property_result *p = &v->result[i].property[property];
        if (p->state < state ||
            (p->state == DS_STATE_BROKEN && state == DS_STATE_BROKEN &&
             p->smallest_cost >= v->result[*at].property[property].smallest_cost))
            continue;
        if (p->state > state || p->state == DS_STATE_BROKEN)
            *at = i;
        state = p->state;
    }
    return state;
}

int64_t ds_checked_compared(const struct ds_checked *v, int property)
{
    int64_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += v->result[i].property[property].compared;
    return n;
}

int64_t ds_checked_differ(const struct ds_checked *v, int property)
{
    int64_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += v->result[i].property[property].differ;
    return n;
}

int64_t ds_checked_not_tried(const struct ds_checked *v, int property)
{
    int64_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += v->result[i].property[property].not_tried;
    return n;
}

static void put_shape(struct ds_buf *b, const struct ds_checked *v, size_t i)
{
    if (v->n > 1) {
        ds_buf_puts(b, " (at ");
        ds_shape_print(b, &v->shape[i]);
        ds_buf_puts(b, ")");
    }
}

static void put_name(struct ds_buf *b, const struct ds_kernel *k)
{
    ds_buf_printf(b, "%s/%s", ds_op_name(k->op), k->name);
}

static void put_plural(struct ds_buf *b, int64_t n, const char *what)
{
    ds_buf_printf(b, "%" PRId64 " %s%s", n, what, n == 1 ? "" : "s");
}

/* ---- one variant -------------------------------------------------------------------------------------- */

enum { INDENT = 14 };

static void begin_line(struct ds_buf *b, const char *label)
{
    ds_buf_printf(b, "  %-*s", INDENT, label);
}

static void put_size(struct ds_buf *b, const struct ds_difference *d)
{
    if (!d->elements)
        return;
    ds_buf_puts(b, "; ");
    put_plural(b, d->elements, "element");
    if (d->values_equal)
        ds_buf_puts(b, ", bits differ, values equal");
    else if (d->max_ulp == UINT64_MAX)
        ds_buf_puts(b, ", NaN on one side");
    else if (d->max_ulp)
        ds_buf_printf(b, ", up to %" PRIu64 " ULP", d->max_ulp);
}

static void put_not_tried(struct ds_buf *b, int64_t n)
{
    if (n) {
        ds_buf_puts(b, "; ");
        put_plural(b, n, "setting");
        ds_buf_puts(b, " not tried");
    }
}

/* What describe says of the pair: where the launch choice is one for both, the bits hang on something else. */
static void put_choice(struct ds_buf *b, const struct ds_property_result *p)
{
    if (!p->choice[0][0])
        return;
    begin_line(b, "");
    if (p->same_choice)
        ds_buf_printf(b, "describe says the same launch choice for both: %s\n", p->choice[0]);
    else
        ds_buf_printf(b, "describe says: %s against %s\n", p->choice[0], p->choice[1]);
}

/* "rows 3-6 | 7- (row 2); kv_len 3-511 same | 512-32768 differ" */
static void put_classes(struct ds_buf *b, const struct ds_property_result *p)
{
    const size_t own = strcspn(p->classes, ";");
    ds_buf_printf(b, "%s %.*s", p->classes_of, (int)own, p->classes);
    if (p->classes_at[0])
        ds_buf_printf(b, " (%s)", p->classes_at);
    ds_buf_puts(b, p->classes + own);
}

static void put_broken(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v,
                       int property, size_t at)
{
    const struct ds_property_result *p = &v->result[at].property[property];
    const int fails = ds_property_always(v->kernel, property) ||
                      (v->kernel->claims & ds_property_claim(property)) != 0;
    ds_buf_printf(b, "%sbroken%s: %s", ds_cli_color(o, fails ? DS_ROLE_DRIFT : DS_ROLE_UNSTABLE),
                  ds_cli_color(o, DS_ROLE_PLAIN), p->smallest);
    put_size(b, &p->smallest_size);
    put_shape(b, v, at);
    if (property == DS_PROPERTY_FORMATS && fails)
        ds_buf_puts(b, ", but a kernel that takes the format promises equal bits");
    else if (fails && !ds_property_always(v->kernel, property))
        ds_buf_puts(b, ", but it is claimed");
    ds_buf_puts(b, "\n");
    put_choice(b, p);
    begin_line(b, "");
    ds_buf_printf(b, "%" PRId64 " of ", ds_checked_differ(v, property));
    put_plural(b, ds_checked_compared(v, property), "comparison");
    put_not_tried(b, ds_checked_not_tried(v, property));
    ds_buf_puts(b, "\n");
    for (size_t i = 0; i < v->n; i++) {
        const struct ds_property_result *q = &v->result[i].property[property];
        if (!q->classes[0])
            continue;
        begin_line(b, "");
        put_classes(b, q);
        put_shape(b, v, i);
        ds_buf_puts(b, "\n");
    }
}

static void put_property(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v,
                         int property)
{
    size_t at;
    const int state = ds_checked_state(v, property, &at);
    const char *note = v->result[at].property[property].note;
    if (state == DS_STATE_NOT_APPLICABLE)
        return;
    begin_line(b, ds_property_name(property));
    if (state == DS_STATE_BROKEN) {
        put_broken(o, b, v, property, at);
        return;
    }
    if (state == DS_STATE_HOLDS) {
        ds_buf_printf(b, "%sholds%s over ", ds_cli_color(o, DS_ROLE_SAME),
                      ds_cli_color(o, DS_ROLE_PLAIN));
        put_plural(b, ds_checked_compared(v, property), "comparison");
    } else
        ds_buf_puts(b, "not run");
    put_not_tried(b, ds_checked_not_tried(v, property));
    if (note[0]) {
        ds_buf_puts(b, "; ");
        ds_buf_escape(b, note, (size_t)-1);
    }
    ds_buf_puts(b, "\n");
}

static void put_faults(struct ds_buf *b, const struct ds_checked *v)
{
    for (size_t i = 0; i < v->n; i++)
        for (int f = 0; f < v->result[i].n_faults; f++) {
            const struct ds_check_fault *x = &v->result[i].fault[f];
            begin_line(b, x->fault.kind == DS_FAULT_REFUSED ? "refusal" : "fault");
            ds_fault_print(b, &x->fault);
            ds_buf_printf(b, ", with %s, in %s", x->setting, ds_property_name(x->property));
            put_shape(b, v, i);
            if (x->times > 1)
                ds_buf_printf(b, "; %" PRId64 " times", x->times);
            ds_buf_puts(b, "\n");
        }
}

static void put_accuracy(struct ds_buf *b, const struct ds_checked *v)
{
    for (size_t i = 0; i < v->n; i++) {
        const struct ds_accuracy *a = &v->result[i].accuracy;
        if (!a->elements)
            continue;
        begin_line(b, "accuracy");
        if (a->wrong)
            ds_buf_printf(b,
                          "%" PRId64 " of %" PRId64 " elements are another id, or NaN or infinite "
                          "where the exact ones are not; ",
                          a->wrong, a->elements);
        ds_buf_printf(b, "at most %.3g ULP off, rms %.3g", a->max_ulp, a->rms_ulp);
        if (a->max_bound >= 0)
            ds_buf_printf(b, "; at most %.2g of the reorder bound, rms %.2g", a->max_bound,
                          a->rms_bound);
        put_shape(b, v, i);
        ds_buf_puts(b, "\n");
    }
}

static void put_speed(struct ds_buf *b, const struct ds_checked *v)
{
    const int multiplies = v->kernel->op == DS_OP_MATMUL || v->kernel->op == DS_OP_ATTENTION;
    for (size_t i = 0; i < v->n; i++) {
        const struct ds_check_result *r = &v->result[i];
        if (!r->n_speeds)
            continue;
        begin_line(b, "speed");
        for (int j = 0; j < r->n_speeds; j++) {
            const struct ds_speed_point *p = &r->speed[j];
            ds_buf_puts(b, j ? ", " : "");
            put_plural(b, p->rows, "row");
            if (p->kv_len)
                ds_buf_printf(b, " at KV %d", p->kv_len);
            ds_buf_printf(b, " %.3g %s", (multiplies ? 2 * p->work : p->bytes) / p->seconds / 1e9,
                          multiplies ? "GF/s" : "GB/s");
            if (p->ratio > 0 && strcmp(r->vendor, v->kernel->name) != 0)
                ds_buf_printf(b, " (%.2fx %s)", p->ratio, r->vendor);
        }
        put_shape(b, v, i);
        ds_buf_puts(b, "\n");
    }
}

static void put_claims(struct ds_buf *b, const struct ds_kernel *k)
{
    static const char *const names[] = {"repeat", "batch", "slot", "threads", "chunk"};
    if (!k->claims)
        ds_buf_puts(b, " nothing");
    for (int i = 0; i < 5; i++)
        if (k->claims >> i & 1)
            ds_buf_printf(b, " %s", names[i]);
}

static void put_variant(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v)
{
    ds_buf_puts(b, ds_cli_color(o, DS_ROLE_HEAD));
    put_name(b, v->kernel);
    ds_buf_printf(b, "%s  claims", ds_cli_color(o, DS_ROLE_PLAIN));
    put_claims(b, v->kernel);
    ds_buf_puts(b, "; at ");
    for (size_t i = 0; i < v->n; i++) {
        ds_buf_puts(b, i ? ", " : "");
        ds_shape_print(b, &v->shape[i]);
    }
    ds_buf_puts(b, "\n");
    for (size_t i = 0; i < v->n; i++)
        if (v->result[i].why_not[0]) {
            begin_line(b, "not run");
            ds_buf_escape(b, v->result[i].why_not, (size_t)-1);
            put_shape(b, v, i);
            ds_buf_puts(b, "\n");
        }
    for (int p = 0; p < DS_PROPERTY_COUNT && ds_checked_ran(v); p++)
        put_property(o, b, v, p);
    put_faults(b, v);
    put_accuracy(b, v);
    put_speed(b, v);
}

/* ---- all of them ------------------------------------------------------------------------------------------ */

static void put_matrix(struct ds_buf *b, const struct ds_checked *v, size_t n)
{
    ds_buf_printf(b, "%-24s", "kernel");
    for (int p = 0; p < DS_PROPERTY_COUNT; p++)
        ds_buf_printf(b, " %-*s", (int)strlen(ds_property_name(p)), ds_property_name(p));
    ds_buf_puts(b, "\n");
    for (size_t i = 0; i < n; i++) {
        struct ds_buf name = {0};
        if (!ds_checked_ran(&v[i]))
            continue;
        put_name(&name, v[i].kernel);
        ds_buf_printf(b, "%-24s", name.data ? name.data : "");
        ds_buf_free(&name);
        for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
            static const char *const words[] = {"?", "-", "holds", "broken"};
            size_t at;
            int state = ds_checked_state(&v[i], p, &at);
            int fails = state == DS_STATE_BROKEN && (ds_property_always(v[i].kernel, p) ||
                                                     (v[i].kernel->claims & ds_property_claim(p)));
            ds_buf_printf(b, " %-*s", (int)strlen(ds_property_name(p)),
                          fails ? "FALSE"
                          : state == DS_STATE_BROKEN && strlen(ds_property_name(p)) < 6
                              ? "no"
                              : words[state]);
        }
        while (b->len && b->data[b->len - 1] == ' ')
            b->data[--b->len] = '\0';
        ds_buf_puts(b, "\n");
    }
    ds_buf_puts(b,
                "(holds: in all that was compared; broken, no: as it claims nothing else; FALSE: a "
                "claim, or what always counts; ?: not run; -: does not apply)\n");
}

/* What no claim covers, and what a kernel therefore cannot renounce: broken it is no failure, but nothing that
 * the last line may pass over. */
static void put_uncovered(struct ds_buf *b, const struct ds_checked *v, size_t n)
{
    size_t at, said = 0;
    for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
        size_t broken = 0;
        for (size_t i = 0; i < n && !ds_property_claim(p); i++)
            broken += ds_checked_ran(&v[i]) && !ds_property_always(v[i].kernel, p) &&
                      p != DS_PROPERTY_FORMATS &&
                      ds_checked_state(&v[i], p, &at) == DS_STATE_BROKEN;
        if (!broken)
            continue;
        ds_buf_printf(b, "%s%s",
                      said++ ? ", " : "; under no claim, but broken: ", ds_property_name(p));
        if (n > 1)
            ds_buf_printf(b, " of %zu", broken);
    }
}

static void put_verdict(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v,
                        size_t n)
{
    int64_t compared = 0;
    size_t ran = 0, failed = 0, at, first = 0;
    for (size_t i = n; i-- > 0;) {
        ran += (size_t)ds_checked_ran(&v[i]);
        for (int p = 0; p < DS_PROPERTY_COUNT; p++)
            compared += ds_checked_compared(&v[i], p);
        if (ds_checked_failure(&v[i], &at) >= 0)
            failed++, first = i;
    }
    ds_buf_puts(b, "check: ");
    if (failed) {
        int p = ds_checked_failure(&v[first], &at);
        ds_buf_puts(b, ds_cli_color(o, DS_ROLE_DRIFT));
        put_name(b, v[first].kernel);
        if (p == DS_PROPERTY_FORMATS)
            ds_buf_puts(b, " promises the same bits in every format that it takes, broken: ");
        else if (ds_property_always(v[first].kernel, p))
            ds_buf_printf(b, " fails %s: ", ds_property_name(p));
        else
            ds_buf_printf(b, " claims %s, broken: ", ds_property_name(p));
        ds_buf_printf(b, "%s%s", v[first].result[at].property[p].smallest,
                      ds_cli_color(o, DS_ROLE_PLAIN));
        if (failed > 1)
            ds_buf_printf(b, "; and %zu more variant%s", failed - 1, failed == 2 ? "" : "s");
        ds_buf_puts(b, "\n");
        return;
    }
    if (!ran) {
        ds_buf_puts(b, "nothing could be run\n");
        return;
    }
    put_plural(b, (int64_t)ran, "variant");
    ds_buf_printf(b, ", %s over ", ran == 1 ? "what it claims holds" : "what they claim holds");
    put_plural(b, compared, "comparison");
    put_uncovered(b, v, n);
    if (n > ran)
        ds_buf_printf(b, "; %zu could not run here", n - ran);
    ds_buf_puts(b, "\n");
}

void ds_render_check_text(const struct ds_options *o, struct ds_buf *b, const struct ds_checked *v,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_variant(o, b, &v[i]);
        ds_buf_puts(b, "\n");
    }
    if (n > 1)
        put_matrix(b, v, n);
    put_verdict(o, b, v, n);
}
