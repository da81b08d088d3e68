/* failed.c: arms that were lost. Lays out; judges nothing. */
#include "report/report_internal.h"

#include <inttypes.h>

const char *ds_report_failed_how(uint32_t how)
{
    return how == DS_FAILED_DIED ? "died" : how == DS_FAILED_LATE ? "late" : "refused";
}

void ds_report_failed_place(const struct ds_failed_arm *f, struct ds_buf *out)
{
    if (f->site) {
        ds_report_place(out, f->site->layer, f->site->stage, f->site->part);
        ds_buf_puts(out, ", ");
    }
    if (*f->at->op)
        ds_report_kernel(out, f->at->op, f->at->variant);
    else
        ds_buf_puts(out, "no kernel");
    if (f->at->rows > 0)
        ds_buf_printf(out, ", %d row%s", f->at->rows, f->at->rows == 1 ? "" : "s");
}

void ds_report_failed(const struct ds_report *r, struct ds_buf *out)
{
    enum { MOST = 4 };
    const struct ds_verdict *v = r->v;
    for (size_t i = 0; i < v->n_failed && i < MOST; i++) {
        const struct ds_failed_arm *f = &v->failed[i];
        ds_report_head(r, i ? "" : "lost", out);
        ds_report_failed_place(f, out);
        ds_buf_puts(out, ": ");
        ds_report_name(out, f->at->why);
        ds_buf_puts(out, "\n");
        ds_report_head(r, "", out);
        if (f->factor) {
            ds_report_name(out, f->factor);
            ds_buf_puts(out, " ");
            ds_report_name(out, f->value);
            ds_buf_puts(out, " against ");
            ds_report_name(out, f->ref_value);
            ds_buf_puts(out, "; ");
        }
        ds_buf_printf(out, "%s, call %u of %u rows", ds_phase_name(f->at->phase), f->at->call,
                      f->at->m);
        if (f->at->last >= f->at->first)
            ds_buf_printf(out, ", positions %d-%d", f->at->first, f->at->last);
        ds_buf_puts(out, "\n");
    }
    if (v->n_failed > MOST) {
        ds_report_head(r, "", out);
        ds_buf_printf(out, "%zu more arms\n", v->n_failed - MOST);
    }
}

void ds_report_failed_words(const struct ds_report *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->n_failed == 0)
        return;
    ds_buf_printf(out, "; %zu arm%s lost in ", v->n_failed, v->n_failed == 1 ? "" : "s");
    ds_report_failed_place(&v->failed[0], out);
}
