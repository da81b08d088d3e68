/* render_bisect.c: see render_bisect.h. Lays out; judges nothing. */
#include "cli/render_bisect.h"

#include "cli/render_json.h"
#include "kernels/registry.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

static const char *const result_names[] = {"same", "found", "uncured", "unstable", "interrupted"};

/* "matmul", "matmul in layers 0-3, 7": the atoms of a set, op by op. */
static void add_atoms(const struct ds_bisect *b, const uint8_t *set, int with_variant,
                      struct ds_buf *out)
{
    int last = -1, ranges = 0;
    for (size_t i = 0; i < b->n_atoms; i++) {
        const struct ds_bisect_atom *a = &b->atoms[i];
        if (!set[i])
            continue;
        if (a->op != last) {
            ds_buf_printf(out, "%s%s", last < 0 ? "" : " and ", ds_op_name(a->op));
            if (with_variant)
                ds_buf_printf(out, "/%s",
                              b->condition ? b->from.op[a->op]->name : b->to.op[a->op]->name);
            ranges = 0;
        }
        last = a->op;
        if (a->layer == DS_BISECT_EVERYWHERE)
            continue;
        size_t end = i;
        if (a->layer >= b->sweep->header->n_layers) {
            ds_buf_puts(out, ranges++ ? " and after the layers" : " after the layers");
            continue;
        }
        while (end + 1 < b->n_atoms && set[end + 1] && b->atoms[end + 1].op == a->op &&
               b->atoms[end + 1].layer == b->atoms[end].layer + 1 &&
               b->atoms[end + 1].layer < b->sweep->header->n_layers)
            end++;
        ds_buf_printf(out, "%s%d",
                      ranges++  ? ", "
                      : end > i ? " in layers "
                                : " in layer ",
                      a->layer);
        if (end > i)
            ds_buf_printf(out, "-%d", b->atoms[end].layer);
        i = end;
    }
}

static const char *what(const struct ds_bisect *b)
{
    return b->tokens ? "tokens" : "logits";
}

static void add_head(const char *name, struct ds_buf *out)
{
    ds_buf_printf(out, "%-14s", name);
}

static void add_arms(const struct ds_bisect_view *w, struct ds_buf *out)
{
    if (w->factor) {
        ds_report_name(out, w->factor);
        ds_buf_puts(out, " ");
        ds_report_name(out, w->value_b);
        ds_buf_puts(out, " against ");
        ds_report_name(out, w->value_a);
    } else {
        ds_report_name(out, w->to);
        ds_buf_puts(out, " against ");
        ds_report_name(out, w->from);
    }
}

static void add_set(const char *label, int device, const char *set, struct ds_buf *out)
{
    ds_buf_printf(out, "%14s%s ", "", label);
    if (device != DS_DEVICE_CPU)
        ds_buf_printf(out, "--device %s ", ds_device_name(device));
    ds_buf_puts(out, "--kernels ");
    ds_report_name(out, set ? set : "");
    ds_buf_puts(out, "\n");
}

static void add_found(const struct ds_bisect_view *w, struct ds_buf *out)
{
    const struct ds_bisect *b = w->b;
    add_head("cause", out);
    add_atoms(b, b->cause, 1, out);
    ds_buf_printf(out, ": alone enough to make the %s differ\n", what(b));
    add_set("shown by", b->from.device, w->set_cause, out);
    add_head("cure", out);
    add_atoms(b, b->cure, 0, out);
    ds_buf_puts(out, " as in ");
    ds_report_name(out, w->factor ? w->to : w->from);
    ds_buf_printf(out, ": the %s agree\n", what(b));
    add_set("shown by", b->from.device, w->set_cure, out);
    ds_buf_printf(out, "%14s%s\n", "",
                  b->smallest[0] && b->smallest[1]
                      ? "no smaller set of either kind does: all were tried"
                      : "none of either set can be left out: each was tried");
}

static void add_sentence(const struct ds_bisect_view *w, struct ds_buf *out)
{
    const struct ds_bisect *b = w->b;
    ds_buf_puts(out, "bisect: ");
    switch (b->result) {
    case DS_BISECT_SAME:
        ds_buf_printf(out, "same: the %s agree, ", what(b));
        add_arms(w, out);
        ds_buf_puts(out, "; nothing to find");
        break;
    case DS_BISECT_FOUND:
        add_atoms(b, b->cause, 1, out);
        ds_buf_puts(out, " brings the difference in; with ");
        add_atoms(b, b->cure, 0, out);
        ds_buf_puts(out, " as in ");
        ds_report_name(out, w->factor ? w->to : w->from);
        ds_buf_printf(out, " the %s agree", what(b));
        break;
    case DS_BISECT_UNCURED:
        if (w->factor) {
            ds_buf_printf(out, "the %s differ with every kernel of ", what(b));
            ds_report_name(out, w->to);
            ds_buf_puts(out, " as well: no exchange can make them agree");
        } else {
            ds_buf_printf(out,
                          "the %s differ although no kernel is exchanged: the cause is not "
                          "among them",
                          what(b));
        }
        break;
    default:
        ds_buf_printf(out, "unstable: passes of one arm disagree with the kernels ");
        ds_report_name(out, b->unstable_set ? b->unstable_set : "?");
        ds_buf_puts(out, "; driftscope run with them says where");
    }
    ds_buf_puts(out, "\n");
}

void ds_render_bisect_text(const struct ds_bisect_view *w, struct ds_buf *out)
{
    const struct ds_bisect *b = w->b;
    add_head("bisect", out);
    ds_report_name(out, w->model);
    ds_buf_printf(out, "\n%14s%s of ", "", what(b));
    add_arms(w, out);
    if (w->factor) {
        ds_buf_puts(out, "; kernels of ");
        ds_report_name(out, w->from);
        ds_buf_puts(out, " exchanged for those of ");
        ds_report_name(out, w->to);
    }
    ds_buf_puts(out, "\n");
    if (b->result == DS_BISECT_FOUND)
        add_found(w, out);
    add_head("tried", out);
    ds_buf_printf(out, "%u set%s of %zu kernel%s in %" PRIu64 " passes", b->sets_tried,
                  b->sets_tried == 1 ? "" : "s", b->n_atoms, b->n_atoms == 1 ? "" : "s", b->trials);
    if (b->sets_known)
        ds_buf_printf(out, "; %u times an outcome was known already", b->sets_known);
    ds_buf_puts(out, "\n");
    add_sentence(w, out);
}

static json_t *atoms_json(const struct ds_bisect *b, const uint8_t *set)
{
    json_t *list = json_array();
    for (size_t i = 0; set && b->result == DS_BISECT_FOUND && i < b->n_atoms; i++) {
        const struct ds_bisect_atom *a = &b->atoms[i];
        if (!set[i])
            continue;
        json_t *j = json_object();
        json_object_set_new(j, "op", json_string(ds_op_name(a->op)));
        json_object_set_new(
            j, "layer", a->layer == DS_BISECT_EVERYWHERE ? json_null() : json_integer(a->layer));
        json_object_set_new(j, "from", ds_json_text(b->from.op[a->op]->name));
        json_object_set_new(j, "to", ds_json_text(b->to.op[a->op]->name));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *side_json(const struct ds_bisect *b, const uint8_t *set, const char *text,
                         int smallest)
{
    if (b->result != DS_BISECT_FOUND)
        return json_null();
    json_t *j = json_object();
    json_object_set_new(j, "kernels", atoms_json(b, set));
    json_object_set_new(j, "set", ds_json_text(text));
    json_object_set_new(j, "minimal", json_true());
    json_object_set_new(j, "smallest", json_boolean(smallest));
    return j;
}

int ds_render_bisect_json(const struct ds_bisect_view *w, struct ds_buf *out, struct ds_error *err)
{
    const struct ds_bisect *b = w->b;
    ds_json_begin();
    json_t *j = json_object(), *condition = w->factor ? json_object() : json_null();
    if (w->factor) {
        json_object_set_new(condition, "factor", ds_json_text(w->factor));
        json_object_set_new(condition, "a", ds_json_text(w->value_a));
        json_object_set_new(condition, "b", ds_json_text(w->value_b));
    }
    json_object_set_new(j, "schema", json_string("driftscope.bisect/1"));
    json_object_set_new(j, "result", json_string(result_names[b->result]));
    json_object_set_new(j, "model", ds_json_text(w->model));
    json_object_set_new(j, "from", ds_json_text(w->from));
    json_object_set_new(j, "to", ds_json_text(w->to));
    json_object_set_new(j, "condition", condition);
    json_object_set_new(j, "compare", json_string(what(b)));
    json_object_set_new(j, "per_layer", json_boolean(b->per_layer));
    json_object_set_new(j, "cause", side_json(b, b->cause, w->set_cause, b->smallest[0]));
    json_object_set_new(j, "cure", side_json(b, b->cure, w->set_cure, b->smallest[1]));
    json_object_set_new(j, "unstable_set", ds_json_text(b->unstable_set));
    json_object_set_new(j, "candidates", json_integer((json_int_t)b->n_atoms));
    json_object_set_new(j, "sets_tried", json_integer(b->sets_tried));
    json_object_set_new(j, "sets_known", json_integer(b->sets_known));
    json_object_set_new(j, "passes", ds_json_whole(b->trials));
    return ds_json_print(j, out, err);
}
