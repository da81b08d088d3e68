/* render_failed.c: arms that were lost, as text and as JSON. Lays out; judges nothing. */
#include "cli/render_json.h"
#include "cli/render_matrix.h"

static const char *how_name(uint32_t how)
{
    return how == DS_FAILED_DIED ? "died" : how == DS_FAILED_LATE ? "late" : "refused";
}

/* "layer 0 q_proj, matmul/mine, 7 rows" */
static void add_place(const struct ds_failed_arm *f, struct ds_buf *out)
{
    if (f->site) {
        ds_render_place(out, f->site->layer, f->site->stage, f->site->part);
        ds_buf_puts(out, ", ");
    }
    if (*f->at->op)
        ds_render_kernel(out, f->at->op, f->at->variant);
    else
        ds_buf_puts(out, "no kernel");
    if (f->at->rows > 0)
        ds_buf_printf(out, ", %d row%s", f->at->rows, f->at->rows == 1 ? "" : "s");
}

void ds_render_failed(const struct ds_render *r, struct ds_buf *out)
{
    enum { MOST = 4 };
    const struct ds_verdict *v = r->v;
    for (size_t i = 0; i < v->n_failed && i < MOST; i++) {
        const struct ds_failed_arm *f = &v->failed[i];
        ds_render_head(r, i ? "" : "lost", out);
        add_place(f, out);
        ds_buf_puts(out, ": ");
        ds_render_name(out, f->at->why);
        ds_buf_puts(out, "\n");
        ds_render_head(r, "", out);
        if (f->factor) {
            ds_render_name(out, f->factor);
            ds_buf_puts(out, " ");
            ds_render_name(out, f->value);
            ds_buf_puts(out, " against ");
            ds_render_name(out, f->ref_value);
            ds_buf_puts(out, "; ");
        }
        ds_buf_printf(out, "%s, call %u of %u rows", ds_phase_name(f->at->phase), f->at->call,
                      f->at->m);
        if (f->at->last >= f->at->first)
            ds_buf_printf(out, ", positions %d-%d", f->at->first, f->at->last);
        ds_buf_puts(out, "\n");
    }
    if (v->n_failed > MOST) {
        ds_render_head(r, "", out);
        ds_buf_printf(out, "%zu more arms\n", v->n_failed - MOST);
    }
}

void ds_render_failed_words(const struct ds_render *r, struct ds_buf *out)
{
    const struct ds_verdict *v = r->v;
    if (v->n_failed == 0)
        return;
    ds_buf_printf(out, "; %zu arm%s lost in ", v->n_failed, v->n_failed == 1 ? "" : "s");
    add_place(&v->failed[0], out);
}

json_t *ds_json_failed(const struct ds_render *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->v->n_failed; i++) {
        const struct ds_failed_arm *f = &r->v->failed[i];
        json_t *j = json_object();
        json_object_set_new(j, "arm", json_integer(f->arm));
        json_object_set_new(j, "repeat", json_integer(f->repeat));
        json_object_set_new(j, "factor", f->factor ? ds_json_text(f->factor) : json_null());
        json_object_set_new(j, "value", f->factor ? ds_json_text(f->value) : json_null());
        json_object_set_new(j, "how", ds_json_text(how_name(f->at->how)));
        json_object_set_new(j, "layer", f->site ? json_integer(f->site->layer) : json_null());
        json_object_set_new(j, "stage", f->site ? ds_json_text(f->site->stage) : json_null());
        json_object_set_new(j, "part", f->site ? ds_json_text(f->site->part) : json_null());
        json_object_set_new(j, "op", ds_json_text(f->at->op));
        json_object_set_new(j, "variant", ds_json_text(f->at->variant));
        json_object_set_new(j, "rows", json_integer(f->at->rows));
        json_object_set_new(j, "phase", ds_json_text(ds_phase_name(f->at->phase)));
        json_object_set_new(j, "call", json_integer(f->at->call));
        json_object_set_new(j, "rows_in_call", json_integer(f->at->m));
        json_object_set_new(j, "positions",
                            f->at->last >= f->at->first
                                ? json_pack("[i,i]", f->at->first, f->at->last)
                                : json_null());
        json_object_set_new(j, "why", ds_json_text(f->at->why));
        json_array_append_new(list, j);
    }
    return list;
}
