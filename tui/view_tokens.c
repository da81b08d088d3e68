/* view_tokens.c: Tokens: the steps of both sides, and how near each choice is to another one.
 * view_tokens_cells.c is its table and panel. */
#include "tui/view_tokens.h"

#include "base/mem.h"
#include "base/plural.h"
#include "tui/view_site.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_SITE = 2 };

/* ---- loading --------------------------------------------------------------------------------- */

static struct tokens_own *own(const struct tui_view *v)
{
    return v->own;
}

/* Pointers of the data live until the next turn only: they are asked for anew before each use. */
static void refresh(const struct tui_view *v, const struct tui_context *c, const char **error)
{
    struct tokens_own *o = own(v);
    o->whole = c->whole;
    o->h = c->whole->header;
    o->steps = o->h ? tui_data_steps(c->data, c->place->arm, c->place->ref, error) : NULL;
}

static int make(struct tui_view *v, const struct tui_context *c, struct ds_error *err)
{
    struct tokens_own *o = own(v);
    struct tui_source source;
    size_t n = o->steps->n;
    o->n = n;
    o->at = *c->place;
    o->ascii = c->ascii;
    o->alone = tui_alone(c->whole, c->place);
    o->requests = 0;
    o->same = o->differ = 0;
    for (size_t i = 0; i < n; i++) {
        const struct ds_step_pair *s = &o->steps->steps[i];
        o->requests |= i > 0 && ds_step_side(s)->request != ds_step_side(s - 1)->request;
        o->differ += (size_t)ds_step_other_token(s);
        o->same += (size_t)(ds_step_both(s) && !ds_step_other_token(s));
    }
    tokens_source(o, &source);
    return tui_table_source(&v->table, &source, err);
}

/* "request 0, 24 tokens: The capital of", the ids of a prompt that was given so. */
static void prompt_line(struct tui_view *v, int line, const struct ds_prompt *p)
{
    struct ds_buf b = {0};
    ds_buf_printf(&b, "request %d, %" PRIu32 " tokens: ", p->request, p->n_tokens);
    if (p->text && p->text[0])
        ds_buf_escape(&b, p->text, strnlen(p->text, 400));
    for (uint32_t i = 0; !(p->text && p->text[0]) && i < p->n_tokens && b.len < 400; i++)
        ds_buf_printf(&b, "%s%" PRId32, i ? " " : "", p->tokens[i]);
    tui_view_head(v, line, TUI_PLAIN, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
}

/* Prompts of the requests that have steps, and the prompt of B where it is another one. */
static int make_head(struct tui_view *v, const struct tui_context *c)
{
    const struct tokens_own *o = own(v);
    const struct ds_prompt *list[4];
    int most = c->lines < 24 ? 1 : 3, n = 0;
    const struct ds_header *sides[2] = {c->whole->sides[0], c->whole->sides[1]};
    const struct ds_header *h = sides[0] ? sides[0] : o->h;
    for (size_t i = 0; i < h->n_prompts && n < most; i++)
        for (size_t k = 0; k < o->n; k++)
            if (ds_step_side(&o->steps->steps[k])->request == h->prompts[i].request) {
                list[n++] = &h->prompts[i];
                break;
            }
    if (n > 0 && n < most && sides[0] && sides[1] && sides[1]->n_prompts > 0 &&
        strcmp(sides[1]->prompts[0].text, list[0]->text) != 0)
        list[n++] = &sides[1]->prompts[0];
    if (tui_view_heads(v, n) != 0)
        return -1;
    for (int i = 0; i < n; i++)
        prompt_line(v, i, list[i]);
    return 0;
}

/* ---- the logits ------------------------------------------------------------------------------ */

/* The row that a step was chosen from: that with its digest, else the last of the step. */
static size_t row_of(const struct tui_site *l, const struct ds_step_pair *s)
{
    const struct ds_step *x = ds_step_side(s);
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < l->n_rows; i++) {
        const struct tui_row_fact *f = &l->facts[i];
        if ((!f->has && !f->ref_has) || l->keys[i].request != x->request || f->row.step != x->step)
            continue;
        best = i;
        if ((f->ref_has && f->ref_digest == x->digest) || (f->has && f->digest == x->digest))
            break;
    }
    return best;
}

static const struct tui_site *logits(const struct tui_view *v, const struct tui_context *c)
{
    const struct tokens_own *o = own(v);
    uint32_t site = o->h ? ds_step_site(o->h) : UINT32_MAX;
    return site == UINT32_MAX ? NULL
                              : tui_data_site(c->data, c->place->arm, c->place->ref, site, NULL);
}

/* Whoever comes from a row stands at its step. */
static void follow_row(struct tui_view *v, const struct tui_context *c)
{
    const struct tokens_own *o = own(v);
    const struct tui_site *l = logits(v, c);
    if (!l)
        return;
    own(v)->follow = 0;
    if (c->place->row >= l->n_rows)
        return;
    for (size_t i = 0; i < o->n; i++) {
        const struct ds_step *x = ds_step_side(&o->steps->steps[i]);
        if (x->request == l->keys[c->place->row].request &&
            x->step == l->facts[c->place->row].row.step) {
            tui_table_go(&v->table, i, 0);
            return;
        }
    }
}

static int nothing(struct tui_view *v, const struct tui_context *c, int state)
{
    struct tokens_own *o = own(v);
    if (o) {
        o->steps = NULL;
        o->n = 0;
    }
    return tui_view_reset(v, c, "steps", state);
}

static int load(struct tui_view *v, const struct tui_context *c, char why[256])
{
    const char *error = NULL;
    struct ds_error err = {"", ""};
    why[0] = '\0';
    if (!v->own && !(v->own = ds_calloc(1, sizeof(struct tokens_own), "the view", &err))) {
        snprintf(why, 256, "out of memory");
        return TUI_EMPTY;
    }
    struct tokens_own *o = own(v);
    refresh(v, c, &error);
    if (!o->steps && !error && o->h) {
        tui_view_heads(v, 0);
        return TUI_WAITING;
    }
    if (!o->steps || o->steps->n == 0) {
        snprintf(why, 256, "%.255s",
                 error   ? error
                 : !o->h ? "nothing is read yet"
                         : "neither side chose a token (run with -n N has N steps)");
        return nothing(v, c, TUI_EMPTY);
    }
    const struct tui_place *p = c->place;
    int fresh = v->seen != c->whole->generation || o->at.arm != p->arm || o->at.ref != p->ref ||
                o->n != o->steps->n || o->ascii != c->ascii,
        came = v->at.row != p->row || v->at.site != p->site;
    if ((fresh && make(v, c, &err) != 0) || make_head(v, c) != 0) {
        snprintf(why, 256, "%.255s", err.msg[0] ? err.msg : "out of memory");
        return nothing(v, c, TUI_EMPTY);
    }
    o->follow |= came;
    if (o->follow)
        follow_row(v, c);
    v->seen = c->whole->generation;
    v->at = *p;
    return TUI_READY;
}

static void want(const struct tui_view *v, const struct tui_context *c, struct tui_want *out)
{
    *out = (struct tui_want){.head_lines = v->n_head,
                             .panel_columns = 62,
                             .panel_lines = c->lines >= 24 ? 11 : 0,
                             .table_columns = 64};
}

/* ---- moving ---------------------------------------------------------------------------------- */

static int request(struct tui_view *v, const struct tui_context *c, int r, int *next,
                   struct ds_error *err)
{
    struct tokens_own *o = own(v);
    if (r != TUI_ENTER)
        return 0;
    if (o)
        refresh(v, c, NULL);
    size_t i = tui_table_row(&v->table);
    if (!o || !o->steps || i >= o->steps->n)
        return ds_fail(err, "there is no step here");
    uint32_t site = ds_step_site(o->h);
    if (site == UINT32_MAX)
        return ds_fail(err, "the record has no site of logits");
    const struct tui_site *l = logits(v, c);
    size_t row = l ? row_of(l, &o->steps->steps[i]) : SIZE_MAX;
    c->place->site = site;
    c->place->element = 0;
    if (row != SIZE_MAX)
        c->place->row = row;
    v->at = *c->place;
    *next = VIEW_SITE;
    return 2;
}

/* ---- what is said of it ---------------------------------------------------------------------- */

static void command(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    (void)v;
    tui_pair_command(c, "--tokens", out);
}

static void status(const struct tui_view *v, const struct tui_context *c, struct ds_buf *out)
{
    const struct tokens_own *o = own(v);
    (void)c;
    if (!o || !o->n)
        return;
    if (o->alone) {
        ds_buf_printf(out, "%zu token%s", o->n, ds_plural((long long)o->n));
        return;
    }
    ds_buf_printf(out, "%zu of %zu tokens equal", o->same, o->same + o->differ);
    if (o->n > o->same + o->differ)
        ds_buf_printf(out, ", %zu on one side only", o->n - o->same - o->differ);
}

static void free_own(struct tui_view *v)
{
    free(v->own);
    v->own = NULL;
}

const struct tui_view_ops tui_view_tokens = {
    .name = "tokens",
    .hints = "enter next-drift first-origin next-jump next-arm next-reference command help",
    .load = load,
    .want = want,
    .panel = tokens_panel,
    .request = request,
    .command = command,
    .status = status,
    .free_own = free_own,
};
