/* view_overview_text.c: Overview in words: what is below the matrix, and above it. The words themselves are report/'s;
 * they are laid out for the screen, and lines about a place know the way there. */
#include "tui/view_overview.h"

#include "dumps/validity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VIEW_LAYERS = 1,
    VIEW_SITE = 2,
    VIEW_TOKENS = 4,
    VIEW_RUNS = 5,
    VIEW_ENVIRONMENT = 6,
    INDENT = 14
};

static const struct overview_goal nowhere = {.view = -1};

static struct overview_goal goal_of(const struct ds_finding *f, int view)
{
    if (!f->found)
        return nowhere;
    return (struct overview_goal){view, f->arm, f->ref_arm, f->site, f->request, f->position};
}

/* ---- laying out -------------------------------------------------------------------------------- */

/* Adds a line of report/ (n bytes), over as many lines as the screen needs; further ones indented. */
static void add_line(struct overview_own *o, int role, const char *text, size_t n,
                     const struct overview_goal *goal)
{
    int room = o->screen > 40 ? o->screen - 4 : 36, indent = 0;
    char *copy = strndup(text, n);
    for (const char *at = copy ? copy : ""; *at; indent = INDENT + 2) {
        size_t take = tui_text_break(at, room - indent, o->ascii);
        char part[640];
        take = take < 512 ? take : 512;
        snprintf(part, sizeof part, "%*s%.*s", indent, "", (int)take, at);
        overview_add(o, TUI_ROW_TEXT, role, part, goal);
        at += take + strspn(at + take, " ");
    }
    free(copy);
}

static void title(struct overview_own *o, const char *text)
{
    overview_add(o, TUI_ROW_HEADS, TUI_HEAD, text, NULL);
}

static int begins(const char *line, const char *name)
{
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == '\n');
}

/* Lines of a paragraph under a title of their own, which is not there when the paragraph is not. */
struct section {
    struct overview_own *o;
    const struct tui_whole *w;
    const char *title;
    int role;
    const char *only; /* from the line on that begins with this name; NULL: all */
    /* Where a line goes, asked for each that has a name. NULL: nowhere. */
    struct overview_goal (*goal)(struct section *s, const char *line);
    struct overview_goal at;
    size_t factor; /* of the goal's own */
};

static void add_text(struct section *s, const char *text)
{
    int some = s->only == NULL;
    for (const char *line = text ? text : ""; *line;) {
        size_t n = strcspn(line, "\n");
        some |= s->only && begins(line, s->only);
        if (some && n > 0) {
            if (s->title)
                title(s->o, s->title);
            s->title = NULL;
            if (s->goal && *line != ' ')
                s->at = s->goal(s, line);
            add_line(s->o, s->role, line, n, &s->at);
        }
        line += n + (line[n] == '\n');
    }
}

static void add_part(struct section *s, int part)
{
    struct ds_buf b = {0};
    struct ds_report r = s->w->report;
    r.color = NULL;
    ds_report_paragraph(&r, part, &b);
    add_text(s, b.data);
    ds_buf_free(&b);
}

/* ---- ways there -------------------------------------------------------------------------------- */

static struct overview_goal first_goal(struct section *s, const char *line)
{
    const struct ds_verdict *v = s->w->verdict;
    if (!begins(line, "also"))
        return goal_of(&v->first, VIEW_SITE);
    for (; s->factor < v->n_factors; s->factor++) { /* as they are told */
        const struct ds_finding *f = &v->factors[s->factor].phase[DS_VERDICT_ALL].first;
        if (s->factor == 0 || !f->found || (v->first.found && v->first.factor == f->factor))
            continue;
        s->factor++;
        return goal_of(f, VIEW_SITE);
    }
    return nowhere;
}

static struct overview_goal change_goal(const struct ds_discrete *d, uint32_t site, int view)
{
    if (!d->found)
        return nowhere;
    return (struct overview_goal){view, d->arm, d->ref_arm, site, d->request, d->position};
}

static struct overview_goal effect_goal(struct section *s, const char *line)
{
    const struct ds_verdict *v = s->w->verdict;
    if (begins(line, "experts"))
        return change_goal(&v->expert_change, v->expert_change.site, VIEW_SITE);
    if (begins(line, "non-finite"))
        return goal_of(&v->nonfinite.at, VIEW_SITE);
    if (begins(line, "tokens"))
        return v->token_change.found
                   ? change_goal(&v->token_change, UINT32_MAX, VIEW_TOKENS)
                   : (struct overview_goal){VIEW_TOKENS, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, -1};
    return nowhere;
}

static struct overview_goal runs_goal(struct section *s, const char *line)
{
    (void)s;
    (void)line;
    return (struct overview_goal){VIEW_RUNS, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, -1};
}

static struct overview_goal records_goal(struct section *s, const char *line)
{
    (void)s;
    (void)line;
    return (struct overview_goal){VIEW_ENVIRONMENT, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, -1};
}

/* A damaged row of one record, in the order in which they are told. */
static struct overview_goal damage_goal(struct section *s)
{
    const struct ds_damage_side *side = s->w->report.damage;
    const struct ds_damage *x = side && s->factor < side->n ? &side->list[s->factor++] : NULL;
    if (!x || !x->dumped || x->trial == SIZE_MAX || s->w->diff)
        return nowhere;
    const uint32_t ref = s->w->verdict->ref_arm;
    return (struct overview_goal){VIEW_SITE,
                                  x->arm == ref ? UINT32_MAX : x->arm,
                                  x->arm == ref ? UINT32_MAX : ref,
                                  x->site,
                                  x->request,
                                  x->position};
}

static struct overview_goal validity_goal(struct section *s, const char *line)
{
    if (begins(line, "damage"))
        return damage_goal(s);
    const struct ds_validity *found = s->w->verdict->validity;
    size_t n = strcspn(line, "\n");
    for (size_t i = 0; found && i < found->n_items; i++) {
        const struct ds_validity_item *x = &found->items[i];
        const char *at = strstr(line, x->text);
        if (x->located && at && at + strlen(x->text) <= line + n)
            return (struct overview_goal){VIEW_SITE, x->arm, s->w->verdict->ref_arm,
                                          x->site,   0,      -1};
    }
    return nowhere;
}

/* ---- sections ---------------------------------------------------------------------------------- */

/* A line each: where, kernel, along what, how much. */
static void add_origins(struct overview_own *o, const struct tui_whole *w)
{
    const struct ds_verdict *v = w->verdict;
    for (size_t i = 0; i < v->n_origins; i++) {
        const struct ds_origin *x = &v->origins[i];
        struct overview_goal goal = {VIEW_SITE, x->arm, x->ref_arm, x->site, 0, -1};
        struct ds_buf b = {0};
        if (i == 0)
            title(o, "origins");
        tui_site_text(w->header, x->site, &b);
        while (b.len < INDENT - 1 && !b.failed)
            ds_buf_puts(&b, " ");
        ds_buf_puts(&b, " ");
        ds_report_kernel(&b, x->op, x->variant);
        ds_buf_puts(&b, "  ");
        ds_report_name(&b, x->factor);
        ds_buf_puts(&b, " ");
        ds_report_name(&b, x->value);
        ds_buf_printf(&b, ": %" PRIu64 " digests in %" PRIu32 " layer%s", x->digests, x->layers,
                      x->layers == 1 ? "" : "s");
        if (x->sized && x->relative_rms > 0)
            ds_buf_printf(&b, ", adds up to %.1e (layer %d)", x->relative_rms, x->largest_layer);
        if (b.data && !b.failed)
            add_line(o, TUI_PLAIN, b.data, b.len, &goal);
        ds_buf_free(&b);
    }
}

/* The key to press next, by what the verdict is. */
static void add_key(struct overview_own *o, const struct ds_verdict *v, struct ds_buf *b)
{
    struct overview_goal goal = {-1, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, -1};
    if (v->result == DS_RESULT_INCOMPARABLE) {
        goal.view = VIEW_ENVIRONMENT;
        ds_buf_puts(b, "7             environment: what differs between the records");
    } else if (!v->stable) {
        goal.view = VIEW_RUNS;
        ds_buf_puts(b, "6             runs: how often repeats disagree, and where they part");
    } else if (o->of[DS_COND_DRIFT]) {
        ds_buf_puts(b, "e Enter       the next cell that drifts, and the layers of its arm");
    } else {
        goal.view = VIEW_LAYERS;
        ds_buf_puts(b, "2             layers: every site");
    }
    add_line(o, TUI_PLAIN, b->data ? b->data : "", b->len, &goal);
}

/* Never broken: they are there to be copied. The program by its name; `y` gives it as it was called. */
static void add_commands(struct overview_own *o, const struct tui_whole *w)
{
    struct ds_buf b = {0}, called = {0}, text = {0};
    ds_report_commands(&w->report, &b);
    ds_report_command(w->report.caller, "", NULL, &called);
    size_t n_called = called.len && !called.failed ? called.len - 1 : 0; /* a space for the verb */
    for (const char *line = b.len ? b.data : ""; *line;) {
        size_t n = strcspn(line, "\n"), skip = 0;
        if (n_called && n > n_called && memcmp(line, called.data, n_called) == 0)
            skip = n_called;
        text.len = 0;
        ds_buf_printf(&text, "%s%.*s", skip ? "driftscope " : "", (int)(n - skip), line + skip);
        if (text.data && !text.failed)
            overview_add(o, TUI_ROW_TEXT, TUI_KEY, text.data, NULL);
        line += n + (line[n] == '\n');
    }
    ds_buf_free(&b);
    ds_buf_free(&called);
    ds_buf_free(&text);
}

/* Keys and commands, the most useful first. */
static void add_next(struct overview_own *o, const struct tui_whole *w)
{
    const struct ds_verdict *v = w->verdict;
    struct ds_buf b = {0};
    title(o, "next");
    if (o->first.view >= 0) {
        ds_buf_puts(&b, v->stable ? "f             where drift begins: "
                                  : "f             where repeats part: ");
        tui_site_text(w->header, o->first.site, &b);
        ds_buf_puts(&b, ", ");
        ds_report_kernel(&b, v->first.op, v->first.variant);
        add_line(o, TUI_PLAIN, b.data ? b.data : "", b.len, &o->first);
        b.len = 0;
    }
    add_key(o, v, &b);
    b.len = 0;
    ds_buf_free(&b);
    add_commands(o, w);
}

static void add_parts(struct overview_own *o, const struct tui_whole *w, const char *name, int role,
                      struct overview_goal (*goal)(struct section *, const char *),
                      const int *parts, size_t n)
{
    struct section s = {.o = o, .w = w, .title = name, .role = role, .goal = goal, .at = nowhere};
    for (size_t i = 0; i < n; i++)
        add_part(&s, parts[i]);
}

#define PARTS(o, w, name, role, goal, ...)                                                         \
    add_parts(o, w, name, role, goal, (const int[]){__VA_ARGS__},                                  \
              sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

void overview_text(struct overview_own *o, const struct tui_whole *w)
{
    struct section innocent = {
        .o = o, .w = w, .title = "never at fault", .only = "bit-identical", .at = nowhere};
    add_next(o, w);
    PARTS(o, w, w->verdict->stable ? "where drift begins" : "where repeats part", TUI_PLAIN,
          first_goal, DS_REPORT_FIRSTS);
    PARTS(o, w, "lost arms", TUI_UNSTABLE, runs_goal, DS_REPORT_FAILED);
    PARTS(o, w, "repeats", TUI_PLAIN, runs_goal, DS_REPORT_UNSTABLE);
    add_origins(o, w);
    PARTS(o, w, "settings that share bits", TUI_PLAIN, NULL, DS_REPORT_FACTORS, DS_REPORT_SWITCHES,
          DS_REPORT_BANDS);
    PARTS(o, w, "what follows", TUI_PLAIN, effect_goal, DS_REPORT_GROWTH, DS_REPORT_PRECISIONS,
          DS_REPORT_RANGE, DS_REPORT_TOKENS);
    PARTS(o, w, "two records", TUI_PLAIN, records_goal, DS_REPORT_TERMS, DS_REPORT_DIFFERENCES);
    add_part(&innocent, DS_REPORT_ORIGINS);
    PARTS(o, w, "record", TUI_PLAIN, NULL, DS_REPORT_RECORD, DS_REPORT_PROBES);
}

/* What is known before there is a verdict. */
static void add_unjudged(struct overview_own *o, const struct tui_whole *w)
{
    const struct ds_header *h = w->header;
    struct ds_buf b = {0};
    ds_buf_printf(&b, "%zu of %" PRIu64 " trials of %zu arms; %zu sites", w->n_trials,
                  (uint64_t)h->n_arms * h->repeats, h->n_arms, h->n_sites);
    if (w->incomplete || w->damaged)
        ds_buf_printf(&b, "; left out: %zu cut short, %zu damaged", w->incomplete, w->damaged);
    title(o, "record");
    add_line(o, TUI_PLAIN, b.data ? b.data : "", b.len, NULL);
    ds_buf_free(&b);
}

int overview_make(struct tui_view *v, struct overview_own *o, const struct tui_context *c,
                  struct ds_error *err)
{
    const struct tui_whole *w = c->whole;
    (void)v;
    overview_free(o);
    o->ascii = c->ascii;
    o->screen = c->columns;
    o->lines_of_screen = c->lines;
    o->first = nowhere;
    o->with_verdict = w->verdict != NULL;
    memset(o->of, 0, sizeof o->of);
    if (!w->verdict) {
        add_unjudged(o, w);
    } else {
        o->first = goal_of(&w->verdict->first, VIEW_SITE);
        PARTS(o, w, "about the record itself", TUI_UNSTABLE, validity_goal, DS_REPORT_VALIDITY);
        if (overview_matrix(o, w, err) != 0)
            return -1;
        overview_text(o, w);
    }
    o->made = 1;
    return 0;
}

/* ---- the head ---------------------------------------------------------------------------------- */

static int result_role(const struct ds_verdict *v)
{
    return v->result == DS_RESULT_DRIFT          ? (v->stable ? TUI_ORIGIN : TUI_UNSTABLE)
           : v->result == DS_RESULT_SAME         ? TUI_SAME
           : v->result == DS_RESULT_INCOMPARABLE ? TUI_ERROR
                                                 : TUI_PLAIN;
}

/* Puts text into head lines from *at on, at most `most` of them. */
static void head_text(struct tui_view *v, int *at, int most, int role, int w, int ascii,
                      const char *text)
{
    int room = w > 20 ? w - 2 : 18;
    for (int i = 0; i < most && *text; i++) {
        size_t take = i + 1 < most ? tui_text_break(text, room, ascii) : strlen(text);
        tui_view_head(v, (*at)++, role, " %.*s", (int)(take < 500 ? take : 500), text);
        text += take + strspn(text + take, " ");
    }
}

static const char *setting(const struct ds_header *h, const char *factor)
{
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], factor) == 0)
            return h->arms[0].values[f];
    return NULL;
}

/* "NAME, llama f32, 30 layers; kernels vendor, 2 threads" of the base arm */
static void model_words(const struct ds_header *h, struct ds_buf *out)
{
    static const char *const told[][3] = {{"dtype", " ", ""},
                                          {"kernels", "; ", " kernels"},
                                          {"threads", ", ", " threads"},
                                          {"blas-core", ", ", ""}};
    ds_report_name(out, h->model_name);
    if (h->model_arch[0] && !strstr(h->model_name, h->model_arch)) {
        ds_buf_puts(out, ", ");
        ds_report_name(out, h->model_arch);
    }
    for (size_t i = 0; i < sizeof told / sizeof *told && h->n_arms; i++) {
        const char *value = setting(h, told[i][0]);
        if (!value || !value[0] || (i == 3 && strcmp(value, "default") == 0))
            continue;
        ds_buf_puts(out, told[i][1]);
        ds_report_name(out, value);
        ds_buf_puts(out, i == 2 && strcmp(value, "1") == 0 ? " thread" : told[i][2]);
    }
}

int overview_head(struct tui_view *v, const struct overview_own *o, const struct tui_context *c)
{
    const struct tui_whole *w = c->whole;
    struct ds_buf sentence = {0}, model = {0}, validity = {0};
    int at = 0, small = c->lines < 16;
    int most = c->lines < 14 || (small && c->columns >= 80) ? 2 : 3;
    if (tui_view_heads(v, 8) != 0)
        return -1;
    if (w->verdict) {
        struct ds_report r = w->report;
        r.color = NULL;
        ds_report_paragraph(&r, DS_REPORT_VALIDITY, &validity);
        ds_report_sentence(&r, &sentence);
    }
    /* What makes the answer doubtful comes before it. */
    for (char *line = validity.data; line && *line && at < (small ? 1 : 2);) {
        size_t n = strcspn(line, "\n");
        char *next = line + n + (line[n] == '\n');
        line[n] = '\0';
        head_text(v, &at, 1, begins(line, "note") ? TUI_UNSTABLE : TUI_ERROR, o->screen, o->ascii,
                  line);
        line = next;
    }
    if (w->verdict)
        head_text(v, &at, most, result_role(w->verdict), o->screen, o->ascii,
                  sentence.data ? sentence.data : "");
    else
        head_text(v, &at, most, w->error ? TUI_ERROR : TUI_DIM, o->screen, o->ascii,
                  w->error ? w->error : "the verdict is being made ...");
    model_words(w->sides[0] ? w->sides[0] : w->header, &model);
    if (w->sides[1] && strcmp(w->sides[0]->model_name, w->sides[1]->model_name) != 0) {
        ds_buf_puts(&model, " | ");
        model_words(w->sides[1], &model);
    }
    if (!small)
        head_text(v, &at, 1, TUI_DIM, o->screen, o->ascii, model.data ? model.data : "");
    ds_buf_free(&sentence);
    ds_buf_free(&model);
    ds_buf_free(&validity);
    v->n_head = at;
    return 0;
}
