/* figure_growth.c: the error that has come together at each layer, and what the layer's worst site adds, on a scale of powers of
 * ten. See figure.h. */
#include "report/figure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LEFT = 58, TOP = 14, WIDE = 470, HIGH = 200, RIGHT = 110, BELOW = 40 };

struct scale {
    int low, high; /* powers of ten */
    double from, per_layer;
};

static void widen(struct scale *s, double x, int *some)
{
    if (!(x > 0) || isinf(x))
        return;
    const int low = (int)floor(log10(x)), high = (int)ceil(log10(x));
    s->low = *some && s->low < low ? s->low : low;
    s->high = *some && s->high > high ? s->high : high;
    *some = 1;
}

static double at_x(const struct scale *s, const struct ds_growth *g)
{
    return LEFT + (g->layer - s->from) * s->per_layer;
}

/* Of a power of ten; of a number. */
static double at_power(const struct scale *s, double power)
{
    return TOP + HIGH * (s->high - power) / (s->high - s->low);
}

static double at_y(const struct scale *s, double x)
{
    return at_power(s, log10(x));
}

static void add_axes(const struct ds_report *r, struct ds_figure *f, const struct scale *s)
{
    const size_t n = r->v->n_growth;
    const int every = (s->high - s->low + 7) / 8;
    char text[32];
    for (int p = s->low; p <= s->high; p += every) {
        const double y = at_power(s, p);
        ds_buf_printf(&f->svg, "<path class=\"axis\" d=\"M%d %.5gH%d\"/>\n", LEFT, y, LEFT + WIDE);
        snprintf(text, sizeof text, "1e%d", p);
        ds_svg_text(f, LEFT - 6, y + 4, "end", "m dim", text);
    }
    for (int p = s->low; s->high - s->low <= 2 && p < s->high; p++)
        for (int k = 2; k <= 5; k += 3) { /* few powers: lines between them, too */
            const double y = at_power(s, p + log10(k));
            ds_buf_printf(&f->svg, "<path class=\"axis\" d=\"M%d %.5gH%d\"/>\n", LEFT, y,
                          LEFT + WIDE);
            snprintf(text, sizeof text, "%de%d", k, p);
            ds_svg_text(f, LEFT - 6, y + 4, "end", "m dim", text);
        }
    const size_t step = n > 12 ? (n + 11) / 12 : 1;
    for (size_t i = 0; i < n; i += step) {
        snprintf(text, sizeof text, "%d", r->v->growth[i].layer);
        ds_svg_text(f, at_x(s, &r->v->growth[i]), TOP + HIGH + 17, "middle", "m dim", text);
    }
    ds_svg_text(f, LEFT + WIDE / 2, TOP + HIGH + 34, "middle", "dim", "layer");
}

/* A line through the points that can be on the scale, with a gap where one cannot; its name at its end. */
static void add_line(const struct ds_report *r, struct ds_figure *f, const struct scale *s,
                     int added)
{
    int pen = 0;
    ds_buf_printf(&f->svg, "<path class=\"l%s\" d=\"", added ? " d" : "");
    for (size_t i = 0; i < r->v->n_growth; i++) {
        const struct ds_growth *g = &r->v->growth[i];
        const double x = added ? g->added_relative_rms : g->relative_rms;
        if (!(x > 0) || isinf(x)) {
            pen = 0;
            continue;
        }
        ds_buf_printf(&f->svg, "%c%.5g %.5g", pen ? 'L' : 'M', at_x(s, g), at_y(s, x));
        pen = 1;
    }
    ds_buf_puts(&f->svg, "\"/>\n");
    for (size_t i = 0; i < r->v->n_growth; i++) {
        const struct ds_growth *g = &r->v->growth[i];
        const double x = added ? g->added_relative_rms : g->relative_rms;
        if (!(x > 0) || isinf(x))
            continue;
        if (added)
            ds_buf_printf(&f->svg,
                          "<rect class=\"o\" x=\"%.5g\" y=\"%.5g\" width=\"6\" height=\"6\">",
                          at_x(s, g) - 3, at_y(s, x) - 3);
        else
            ds_buf_printf(&f->svg, "<circle class=\"p\" cx=\"%.5g\" cy=\"%.5g\" r=\"3\">",
                          at_x(s, g), at_y(s, x));
        ds_buf_printf(&f->svg, "<title>layer %d: %s %.2e</title></%s>\n", g->layer,
                      added ? "its worst site adds" : "relative rms", x, added ? "rect" : "circle");
    }
}

static void add_key(struct ds_figure *f)
{
    const int x = LEFT + WIDE + 12;
    ds_buf_printf(
        &f->svg,
        "<path class=\"l\" d=\"M%d 24h22\"/><circle class=\"p\" cx=\"%d\" cy=\"24\" r=\"3\"/>\n", x,
        x + 11);
    ds_svg_text(f, x + 28, 28, "start", "", "growth");
    ds_buf_printf(&f->svg,
                  "<path class=\"l d\" d=\"M%d 46h22\"/><rect class=\"o\" x=\"%d\" y=\"43\" "
                  "width=\"6\" height=\"6\"/>\n",
                  x, x + 8);
    ds_svg_text(f, x + 28, 50, "start", "", "added");
}

static void add_data(const struct ds_report *r, struct ds_figure *f)
{
    ds_buf_puts(&f->data, "layer\trows\tmax_ulp\trelative_rms\tadded_rows\tadded_max_ulp\tadded_"
                          "relative_rms\tadded_stage\t"
                          "added_part\n");
    for (size_t i = 0; i < r->v->n_growth; i++) {
        const struct ds_growth *g = &r->v->growth[i];
        ds_buf_printf(&f->data, "%d\t%u\t%" PRIu64 "\t%.9g\t%u", g->layer, g->rows, g->max_ulp,
                      g->relative_rms, g->added_rows);
        if (g->added_rows)
            ds_buf_printf(&f->data, "\t%" PRIu64 "\t%.9g\t", g->added_max_ulp,
                          g->added_relative_rms);
        else
            ds_buf_puts(&f->data, "\t\t\t");
        ds_report_name(&f->data, g->added_rows ? g->added_stage : "");
        ds_buf_puts(&f->data, "\t");
        ds_report_name(&f->data, g->added_rows ? g->added_part : "");
        ds_buf_puts(&f->data, "\n");
    }
}

void ds_figure_growth(const struct ds_report *r, struct ds_figure *f)
{
    const size_t n = r->v->n_growth;
    struct scale s = {0};
    int some = 0;
    f->name = "growth";
    ds_buf_puts(&f->title, "Growth of the error over depth");
    add_data(r, f);
    for (size_t i = 0; i < n; i++) {
        widen(&s, r->v->growth[i].relative_rms, &some);
        widen(&s, r->v->growth[i].added_relative_rms, &some);
    }
    if (!some) {
        ds_buf_puts(&f->about, "No layer's residual stream has a difference with a size.");
        return;
    }
    s.high += s.high == s.low;
    s.from = r->v->growth[0].layer;
    s.per_layer = r->v->growth[n - 1].layer > r->v->growth[0].layer
                      ? (double)WIDE / (double)(r->v->growth[n - 1].layer - r->v->growth[0].layer)
                      : 0;
    ds_buf_puts(&f->about, "Relative rms at the end of each layer (circles), and what its worst "
                           "site adds on equal inputs "
                           "(squares, dashed), in powers of ten.");
    ds_svg_begin(f, LEFT + WIDE + RIGHT, TOP + HIGH + BELOW);
    add_axes(r, f, &s);
    add_line(r, f, &s, 0);
    add_line(r, f, &s, 1);
    add_key(f);
    ds_svg_end(f);
}
