/* figure_tree.c: the completions of the prompts that part: a line for each different completion, from the token at which it
 * leaves another one to its end, with how many requests have it. Prompts whose requests agree are counted. See
 * figure.h. */
#include "report/figure.h"

#include "base/mem.h"
#include "report/html.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEFT = 14,
    WIDE = 430,
    RIGHT = 210,
    ROW = 21,
    LETTER = 7, /* of a label, at most about so wide */
    MOST_DRAWN = 24,
    MOST_PROMPTS = 40,
    PROMPT_TEXT = 74
};

/* A completion in the drawing. */
struct leaf {
    size_t completion; /* in storm.completions */
    size_t parent;     /* leaf that it leaves, earlier than itself; its own number: none */
    size_t depth;      /* tokens that they have in common */
    size_t tokens;
    int y;
    int placed;
};

struct tree {
    const struct ds_figure_storm *s;
    struct ds_figure *f;
    size_t *begin; /* of each request's steps */
    const struct ds_step **steps;
    size_t longest; /* tokens of any request */
    int y;
};

static const struct ds_step *const *steps_of(const struct tree *t, size_t request, size_t *n)
{
    *n = t->begin[request + 1] - t->begin[request];
    return t->steps + t->begin[request];
}

static size_t common(const struct tree *t, size_t a, size_t b)
{
    size_t na, nb, k = 0;
    const struct ds_step *const *sa = steps_of(t, a, &na), *const *sb = steps_of(t, b, &nb);
    while (k < na && k < nb && sa[k]->token == sb[k]->token)
        k++;
    return k;
}

static double at_x(const struct tree *t, size_t tokens)
{
    return LEFT + (double)WIDE * (double)tokens / (double)(t->longest ? t->longest : 1);
}

/* ---- one prompt ------------------------------------------------------------------------------ */

/* Every completion but the first leaves the one before it with which it has most tokens in common. */
static void find_parents(const struct tree *t, size_t first, struct leaf *leaves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t request = (size_t)t->s->storm->completions[first + i].request;
        leaves[i] = (struct leaf){.completion = first + i, .parent = i};
        leaves[i].tokens = t->begin[request + 1] - t->begin[request];
        for (size_t j = 0; j < i; j++) {
            const size_t depth =
                common(t, request, (size_t)t->s->storm->completions[first + j].request);
            if (leaves[i].parent == i || depth > leaves[i].depth) {
                leaves[i].parent = j;
                leaves[i].depth = depth;
            }
        }
    }
}

/* Below its parent's line, those that leave late first: so no line crosses another. At most MOST_DRAWN deep. */
static void place(struct tree *t, struct leaf *leaves, size_t n, size_t at)
{
    leaves[at].y = t->y;
    leaves[at].placed = 1;
    t->y += ROW;
    for (;;) {
        size_t next = n;
        for (size_t i = 0; i < n; i++)
            if (!leaves[i].placed && leaves[i].parent == at &&
                (next == n || leaves[i].depth > leaves[next].depth))
                next = i;
        if (next == n)
            return;
        place(t, leaves, n, next);
    }
}

static void add_token(const struct tree *t, const struct ds_step *s, struct ds_buf *out)
{
    if (!t->s->token) {
        ds_buf_printf(out, "token %d", s->token);
        return;
    }
    ds_buf_puts(out, "'");
    t->s->token(t->s->ctx, s->token, out);
    ds_buf_printf(out, "' (%d)", s->token);
}

static void draw_leaf(struct tree *t, const struct leaf *leaves, size_t i)
{
    const struct leaf *x = &leaves[i];
    const struct ds_storm_completion *c = &t->s->storm->completions[x->completion];
    const double from = at_x(t, x->depth), to = at_x(t, x->tokens);
    struct ds_buf text = {0};
    size_t n;
    const struct ds_step *const *steps = steps_of(t, (size_t)c->request, &n);
    ds_buf_printf(&t->f->svg, "<path class=\"edge\" style=\"stroke-width:%.2g\" d=\"M%.5g ",
                  1.2 + (c->size > 16 ? 4.0 : 0.25 * c->size), from);
    if (x->parent != i)
        ds_buf_printf(&t->f->svg, "%dV%d", leaves[x->parent].y, x->y);
    else
        ds_buf_printf(&t->f->svg, "%d", x->y);
    ds_buf_printf(&t->f->svg, "H%.5g\"/>\n", to);
    if (x->parent != i && x->depth < n) {
        ds_buf_printf(&t->f->svg, "<circle class=\"o\" cx=\"%.5g\" cy=\"%d\" r=\"3\"/>\n", from,
                      leaves[x->parent].y);
        add_token(t, steps[x->depth], &text);
        ds_buf_printf(&text, " at %zu", x->depth);
        /* Beside its line, where it does not run into the numbers of requests. */
        const int fits = from + 5 + (double)LETTER * (double)text.len <= LEFT + WIDE;
        ds_svg_text(t->f, fits ? from + 5 : from - 5, x->y - 4, fits ? "start" : "end", "dim",
                    text.data ? text.data : "");
        text.len = 0;
    }
    ds_buf_printf(&text, "%u request%s, first %d", c->size, c->size == 1 ? "" : "s", c->request);
    ds_svg_text(t->f, LEFT + WIDE + 10, x->y + 4, "start", "", text.data ? text.data : "");
    t->f->svg.failed |= text.failed;
    ds_buf_free(&text);
}

/* The beginning of the prompt: its text, else its ids. */
static void prompt_text(const struct tree *t, int32_t prompt, struct ds_buf *out)
{
    const struct ds_prompt *p = &t->s->header->prompts[prompt];
    struct ds_buf all = {0};
    ds_buf_printf(out, "prompt %d: ", prompt);
    if (p->text && p->text[0])
        ds_buf_escape(&all, p->text, (size_t)-1);
    for (uint32_t i = 0; !(p->text && p->text[0]) && i < p->n_tokens && all.len < PROMPT_TEXT; i++)
        ds_buf_printf(&all, "%s%d", i ? " " : "", p->tokens[i]);
    size_t n = 0; /* whole characters */
    for (int step; n < all.len && n < PROMPT_TEXT; n += (size_t)step)
        if ((step = ds_utf8_len(all.data + n, all.len - n)) <= 0)
            break;
    ds_buf_add(out, all.data ? all.data : "", n);
    ds_buf_puts(out, n < all.len ? "..." : "");
    out->failed |= all.failed;
    ds_buf_free(&all);
}

/* leaves, i: where it is in the drawing; NULL: it is not. */
static void add_data(struct tree *t, size_t completion, const struct leaf *leaves, size_t i)
{
    const struct ds_storm_completion *c = &t->s->storm->completions[completion];
    size_t n;
    const struct ds_step *const *steps = steps_of(t, (size_t)c->request, &n);
    struct ds_buf *out = &t->f->data;
    ds_buf_printf(out, "%d\t%d\t%u\t", c->prompt, c->request, c->size);
    if (leaves && leaves[i].parent != i)
        ds_buf_printf(out, "%d\t%zu",
                      t->s->storm->completions[leaves[leaves[i].parent].completion].request,
                      leaves[i].depth);
    else
        ds_buf_puts(out, "\t");
    ds_buf_puts(out, "\t");
    for (size_t k = 0; k < n; k++)
        ds_buf_printf(out, "%s%d", k ? " " : "", steps[k]->token);
    ds_buf_puts(out, t->s->token ? "\t" : "");
    for (size_t k = 0; t->s->token && k < n; k++)
        t->s->token(t->s->ctx, steps[k]->token, out);
    ds_buf_puts(out, "\n");
}

static void draw_prompt(struct tree *t, size_t first, size_t n)
{
    struct leaf leaves[MOST_DRAWN];
    const size_t drawn = n < MOST_DRAWN ? n : MOST_DRAWN;
    struct ds_buf text = {0};
    prompt_text(t, t->s->storm->completions[first].prompt, &text);
    ds_svg_text(t->f, LEFT, t->y, "start", "b", text.data ? text.data : "");
    t->f->svg.failed |= text.failed;
    ds_buf_free(&text);
    t->y += 12;
    find_parents(t, first, leaves, drawn);
    for (size_t i = 0; i < drawn; i++)
        if (!leaves[i].placed)
            place(t, leaves, drawn, i);
    for (size_t i = 0; i < drawn; i++) {
        draw_leaf(t, leaves, i);
        add_data(t, first + i, leaves, i);
    }
    for (size_t i = drawn; i < n; i++)
        add_data(t, first + i, NULL, 0);
    if (n > drawn) {
        char more[64];
        snprintf(more, sizeof more, "and %zu more completions, less common ones", n - drawn);
        ds_svg_text(t->f, LEFT, t->y + 2, "start", "dim", more);
        t->y += ROW;
    }
    t->y += 10;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Completions of one prompt from `first` on. */
static size_t of_prompt(const struct ds_storm *s, size_t first)
{
    size_t n = 1;
    while (first + n < s->n_completions &&
           s->completions[first + n].prompt == s->completions[first].prompt)
        n++;
    return n;
}

/* Prompts with one completion. */
static size_t agreeing(const struct ds_storm *s)
{
    size_t agree = 0;
    for (size_t first = 0, n; first < s->n_completions; first += n)
        agree += (n = of_prompt(s, first)) == 1;
    return agree;
}

static int height(const struct ds_storm *s)
{
    int y = 30 + ROW;
    for (size_t first = 0, n, k = 0; first < s->n_completions && k < MOST_PROMPTS; first += n) {
        if ((n = of_prompt(s, first)) == 1)
            continue;
        k++;
        y += 22 + ROW * (int)(n < MOST_DRAWN ? n : MOST_DRAWN + 1);
    }
    return y + 16;
}

static void describe(const struct tree *t)
{
    const struct ds_storm *s = t->s->storm;
    ds_buf_puts(&t->f->title, "Completions as they part, kernels ");
    ds_buf_escape(&t->f->title, t->s->kernels, (size_t)-1);
    if (s->n_completions == s->n_prompts) {
        ds_buf_printf(
            &t->f->about,
            "Nothing parts: each of the %zu prompts has one completion in all of its requests.",
            s->n_prompts);
    } else {
        ds_buf_puts(&t->f->about, "Tokens go to the right; a line leaves another one where its "
                                  "first other token is, which is named. The "
                                  "thicker, the more requests.");
        if (agreeing(s))
            ds_buf_printf(&t->f->about, " %zu of %zu prompts are not drawn: their requests agree.",
                          agreeing(s), s->n_prompts);
    }
    ds_buf_puts(&t->f->data, "prompt\trequest\trequests\tleaves\tat_token\ttokens");
    ds_buf_puts(&t->f->data, t->s->token ? "\ttext\n" : "\n");
}

static int longest(struct tree *t, struct ds_error *err)
{
    if (ds_storm_steps(t->s->trial, t->s->storm->n_requests, &t->begin, &t->steps, err) != 0)
        return -1;
    for (size_t r = 0; r < t->s->storm->n_requests; r++) {
        const size_t n = t->begin[r + 1] - t->begin[r];
        t->longest = n > t->longest ? n : t->longest;
    }
    return 0;
}

int ds_figure_tree(const struct ds_figure_storm *s, struct ds_figure *f, struct ds_error *err)
{
    struct tree t = {.s = s, .f = f, .y = 18};
    char text[48];
    size_t k = 0;
    f->name = "tree";
    if (longest(&t, err) != 0)
        return -1;
    describe(&t);
    if (s->storm->n_completions == s->storm->n_prompts) { /* nothing parts */
        for (size_t i = 0; i < s->storm->n_completions; i++)
            add_data(&t, i, NULL, 0);
        free(t.begin);
        free((void *)t.steps);
        return 0;
    }
    ds_svg_begin(f, LEFT + WIDE + RIGHT, height(s->storm));
    int rc = 0;
    for (size_t first = 0, n; rc == 0 && first < s->storm->n_completions; first += n) {
        n = of_prompt(s->storm, first);
        if (n > 1 && k++ < MOST_PROMPTS) {
            rc = ds_svg_cut(f, t.y - ROW + 5, err);
            draw_prompt(&t, first, n);
        } else
            for (size_t i = 0; i < n; i++)
                add_data(&t, first + i, NULL, 0);
    }
    if (k > MOST_PROMPTS) {
        snprintf(text, sizeof text, "and %zu more prompts that part", k - MOST_PROMPTS);
        ds_svg_text(f, LEFT, t.y + 2, "start", "dim", text);
        t.y += ROW;
    }
    ds_buf_printf(&f->svg, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", LEFT, t.y, LEFT + WIDE);
    ds_svg_text(f, LEFT, t.y + 15, "start", "dim", "token 0");
    snprintf(text, sizeof text, "%zu", t.longest);
    ds_svg_text(f, LEFT + WIDE, t.y + 15, "end", "dim", text);
    ds_svg_end(f);
    free(t.begin);
    free((void *)t.steps);
    return rc;
}
