/* table_find.c: which rows fit the words of a search or a filter, and the ways to the next of something. */
#include "tui/table_internal.h"

#include "base/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words and conditions -------------------------------------------------------------------- */

static int is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* Only ASCII has cases here: no locale, and bytes that are no text do no harm. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static int has_capital(const char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'Z')
            return 1;
    return 0;
}

/* An operator at p: how many bytes it has; 0 none. */
static size_t operator_at(const char *p)
{
    if (p[0] == '=')
        return p[1] == '=' ? 2 : 1;
    if (p[0] == '<' || p[0] == '>')
        return p[1] == '=' ? 2 : 1;
    return p[0] == '!' && p[1] == '=' ? 2 : 0;
}

/* One word up to a space, or (stop) up to an operator; in quotes if it begins with one. */
static const char *read_word(const char *p, int stop, char out[128], int *quoted)
{
    size_t n = 0;

    *quoted = *p == '"';
    if (*quoted)
        p++;
    while (*p && (*quoted ? *p != '"' : !is_space(*p) && !(stop && operator_at(p)))) {
        if (n < 127)
            out[n++] = *p;
        p++;
    }
    out[n] = '\0';
    return *quoted && *p ? p + 1 : p;
}

static void read_operator(const char *p, struct tui_term *term)
{
    term->op = p[0] == '>'                  ? TUI_TERM_ABOVE
               : p[0] == '<'                ? TUI_TERM_BELOW
               : p[1] == '=' && p[0] == '=' ? TUI_TERM_IS
                                            : TUI_TERM_HOLDS;
    term->or_equal = (p[0] == '<' || p[0] == '>') && p[1] == '=';
    term->negated ^= p[0] == '!';
}

static void finish_word(struct tui_term *term)
{
    char *end;

    term->cased = has_capital(term->word);
    term->number = strtod(term->word, &end);
    term->is_number = end != term->word && !*end && !is_space(term->word[0]);
}

static int read_term(const char **p, int with_columns, struct tui_term *term, struct ds_error *err)
{
    int quoted;

    memset(term, 0, sizeof *term);
    if (with_columns && (*p)[0] == '!' && (*p)[1] && !is_space((*p)[1])) {
        term->negated = 1;
        ++*p;
    }
    *p = read_word(*p, with_columns, term->word, &quoted);
    size_t op = with_columns ? operator_at(*p) : 0;
    if (op && term->word[0]) {
        memcpy(term->name, term->word, sizeof term->name);
        read_operator(*p, term);
        *p = read_word(*p + op, 0, term->word, &quoted);
        if (!term->word[0] && !quoted) {
            ds_fail(err, "filter: a value is missing behind '%s'", term->name);
            return ds_hint(err,
                           "name=word, name>number; \"...\" around a word that holds = < or >");
        }
    } else if (op) { /* a word that begins with an operator */
        *p = read_word(*p, 0, term->word, &quoted);
    }
    finish_word(term);
    if ((term->op == TUI_TERM_ABOVE || term->op == TUI_TERM_BELOW) && !term->is_number) {
        ds_fail(err, "filter: '%s' behind '%s' is not a number", term->word, term->name);
        return ds_hint(err, "\"...\" around a word that holds = < or >");
    }
    return 0;
}

int tui_terms_parse(const char *text, int with_columns, struct tui_terms *out, struct ds_error *err)
{
    const char *p = text;

    out->n = 0;
    for (;;) {
        while (is_space(*p))
            p++;
        if (!*p)
            return 0;
        if (out->n == TUI_TERMS)
            return ds_fail(err, "at most %d words", TUI_TERMS);
        if (read_term(&p, with_columns, &out->term[out->n], err))
            return -1;
        if (out->term[out->n].word[0] || out->term[out->n].name[0]) /* "" fits everything */
            out->n++;
    }
}

/* ---- columns by name ------------------------------------------------------------------------- */

static void plain_name(const char *name, char out[128])
{
    size_t n = 0;

    for (; *name && n < 127; name++)
        if (*name != ' ' && *name != '_' && *name != '-')
            out[n++] = lower(*name);
    out[n] = '\0';
}

static size_t find_column(const struct tui_source *s, size_t heading, const char *name)
{
    char wanted[128], own[512], plain[128];
    size_t cut_short = TUI_NOWHERE;

    plain_name(name, wanted);
    for (size_t i = 0; i < s->n_columns && wanted[0]; i++) {
        tui_section_column(s, heading, i, own, sizeof own);
        plain_name(own, plain);
        if (strcmp(plain, wanted) == 0)
            return i;
        if (cut_short == TUI_NOWHERE && strncmp(plain, wanted, strlen(wanted)) == 0)
            cut_short = i;
    }
    return cut_short;
}

size_t tui_table_find_column(const struct tui_table *t, const char *name)
{
    const size_t row = tui_table_row(t);
    return find_column(&t->source, row == SIZE_MAX ? TUI_NOWHERE : tui_row_section(&t->source, row),
                       name);
}

/* The first heading row with own columns at or after `row`; TUI_NOWHERE: none. */
static size_t next_heads(const struct tui_source *s, size_t row)
{
    for (; s->kind && row < s->n_rows; row++)
        if (tui_row_kind(s, row) == TUI_ROW_HEADS)
            return row;
    return TUI_NOWHERE;
}

enum { MOST_NAMES = 128 };
struct known_names {
    char shown[MOST_NAMES][64], plain[MOST_NAMES][128];
    const char *plains[MOST_NAMES];
    size_t n;
};

static void collect_names(const struct tui_source *s, size_t heading, struct known_names *out)
{
    char name[64];

    for (size_t i = 0; i < s->n_columns && out->n < MOST_NAMES; i++) {
        tui_section_column(s, heading, i, name, sizeof name);
        size_t k = 0;
        while (k < out->n && strcmp(out->shown[k], name) != 0)
            k++;
        if (!name[0] || k < out->n)
            continue;
        memcpy(out->shown[k], name, sizeof name);
        plain_name(name, out->plain[k]);
        out->plains[k] = out->plain[k];
        out->n++;
    }
}

static int no_column(const struct tui_source *s, const char *name, struct ds_error *err)
{
    struct known_names known = {.n = 0};
    char wanted[128];

    collect_names(s, TUI_NOWHERE, &known);
    for (size_t h = next_heads(s, 0); h != TUI_NOWHERE; h = next_heads(s, h + 1))
        collect_names(s, h, &known);
    plain_name(name, wanted);
    int nearest = ds_nearest(wanted, known.plains, known.n);
    ds_fail(err, "there is no column '%s'", name);
    if (nearest >= 0)
        return ds_hint(err, "did you mean '%s'?", known.shown[nearest]);
    struct ds_buf list = {0};
    for (size_t i = 0; i < known.n; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "columns: ", known.shown[i]);
    ds_hint(err, "%s", list.data && !list.failed ? list.data : "this table has no columns");
    ds_buf_free(&list);
    return -1;
}

int tui_terms_check(const struct tui_terms *terms, const struct tui_source *s, struct ds_error *err)
{
    for (size_t i = 0; i < terms->n; i++) {
        const char *name = terms->term[i].name;
        if (!name[0])
            continue;
        size_t found = find_column(s, TUI_NOWHERE, name);
        for (size_t h = next_heads(s, 0); found == TUI_NOWHERE && h != TUI_NOWHERE;
             h = next_heads(s, h + 1))
            found = find_column(s, h, name);
        if (found == TUI_NOWHERE)
            return no_column(s, name, err);
    }
    return 0;
}

void tui_terms_resolve(struct tui_terms *terms, const struct tui_source *s, size_t heading)
{
    for (size_t i = 0; i < terms->n; i++)
        if (terms->term[i].name[0])
            terms->term[i].column = find_column(s, heading, terms->term[i].name);
}

/* ---- does a row fit -------------------------------------------------------------------------- */

long tui_term_find(const struct tui_term *term, const char *text, size_t from)
{
    size_t n = strlen(term->word);

    for (const char *p = text + from; n && *p; p++) {
        size_t k = 0;
        while (k < n && p[k] && (term->cased ? p[k] : lower(p[k])) == term->word[k])
            k++;
        if (k == n)
            return (long)(p - text);
    }
    return -1;
}

static int is_word(const struct tui_term *term, const char *text)
{
    return strlen(term->word) == strlen(text) && (!text[0] || tui_term_find(term, text, 0) == 0);
}

static int cell_fits(const struct tui_term *term, const struct tui_value *v)
{
    int number = v->numeric && !v->null && term->is_number;

    if (term->op == TUI_TERM_ABOVE)
        return number && (v->key > term->number || (term->or_equal && v->key == term->number));
    if (term->op == TUI_TERM_BELOW)
        return number && (v->key < term->number || (term->or_equal && v->key == term->number));
    if (number)
        return v->key == term->number || (isnan(v->key) && isnan(term->number)) ||
               is_word(term, tui_cell_text(v));
    return term->op == TUI_TERM_IS
               ? is_word(term, tui_cell_text(v))
               : !term->word[0] || tui_term_find(term, tui_cell_text(v), 0) >= 0;
}

/* The conditions on single columns, which need one cell each. */
static int columns_fit(const struct tui_terms *terms, const struct tui_source *s, size_t row)
{
    struct tui_value v;

    for (size_t i = 0; i < terms->n; i++) {
        const struct tui_term *term = &terms->term[i];
        if (!term->name[0])
            continue;
        if (term->column == TUI_NOWHERE)
            return 0;
        tui_row_cell(s, row, term->column, &v);
        if (cell_fits(term, &v) == term->negated)
            return 0;
    }
    return 1;
}

int tui_terms_fit(const struct tui_terms *terms, const struct tui_source *s, size_t row)
{
    int kind = tui_row_kind(s, row);
    size_t columns = kind == TUI_ROW_SECTION || kind == TUI_ROW_TEXT ? 1 : s->n_columns;
    uint32_t open = 0, found = 0; /* words, by bit */
    struct tui_value v;

    for (size_t i = 0; i < terms->n; i++) {
        if (!terms->term[i].name[0])
            open |= UINT32_C(1) << i;
        else if (kind != TUI_ROW)
            return 0;
    }
    if (kind == TUI_ROW && !columns_fit(terms, s, row))
        return 0;
    for (size_t c = 0; c < columns && (open & ~found); c++) {
        tui_row_cell(s, row, c, &v);
        for (size_t i = 0; i < terms->n; i++)
            if ((open & ~found) >> i & 1 &&
                tui_term_find(&terms->term[i], tui_cell_text(&v), 0) >= 0)
                found |= UINT32_C(1) << i;
    }
    for (size_t i = 0; i < terms->n; i++)
        if (open >> i & 1 && (found >> i & 1) == (uint32_t)terms->term[i].negated)
            return 0;
    return 1;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* A row, or a heading that it is the first row under. */
static int place_fits(const struct tui_table *t, const struct tui_terms *terms, size_t place)
{
    if (tui_terms_fit(terms, &t->source, t->shown[place]))
        return 1;
    while (place-- > 0 && tui_row_is_heading(&t->source, t->shown[place]))
        if (tui_terms_fit(terms, &t->source, t->shown[place]))
            return 1;
    return 0;
}

/* With a cell cursor: the cell that holds the first word. */
static void to_column_found(struct tui_table *t, const struct tui_terms *terms)
{
    struct tui_value v;

    for (size_t c = t->source.first_cell; t->source.cell_cursor && c < t->source.n_columns; c++) {
        tui_row_cell(&t->source, t->shown[t->cursor], c, &v);
        if (tui_term_find(&terms->term[0], tui_cell_text(&v), 0) < 0)
            continue;
        t->column = c;
        return;
    }
}

int tui_table_search(struct tui_table *t, const char *text, int step, int *wrapped)
{
    struct tui_terms terms;
    size_t n = t->n_shown;

    *wrapped = 0;
    t->stopped = 0;
    if (strlen(text) >= sizeof t->search || tui_terms_parse(text, 0, &terms, NULL))
        return -1;
    if (text != t->search)
        memcpy(t->search, text, strlen(text) + 1);
    if (!terms.n)
        t->search[0] = '\0';
    for (size_t i = step ? 1 : 0; terms.n && i < n + (step ? 1 : 0); i++) {
        size_t far = step < 0 ? n - i : i; /* places ahead, modulo n */
        size_t place = (t->cursor + far) % n;
        if (tui_table_stopped(t, i))
            return -1;
        if (tui_row_is_heading(&t->source, t->shown[place]) || !place_fits(t, &terms, place))
            continue;
        *wrapped = step < 0 ? place >= t->cursor : t->cursor + i >= n;
        t->cursor = place;
        t->panned = 0;
        to_column_found(t, &terms);
        return 0;
    }
    return -1;
}

/* ---- to the next of something ---------------------------------------------------------------- */

static int has(const struct tui_table *t, size_t place, size_t column, int what)
{
    return (t->source.is(t->source.ctx, t->shown[place], column) & what) != 0;
}

int tui_table_jump(struct tui_table *t, int what, int step)
{
    const struct tui_source *s = &t->source;
    size_t first = s->cell_cursor ? s->first_cell : 0;
    size_t last = s->cell_cursor ? (s->n_columns ? s->n_columns - 1 : 0) : 0;
    size_t column = !step ? first : s->cell_cursor ? t->column : 0, place = step ? t->cursor : 0;

    t->stopped = 0;
    if (!s->is || !t->n_shown || first > last)
        return -1;
    for (int begin = 1;; begin = 0) {
        if (!begin || step) { /* one cell on, row by row */
            if (step < 0 ? column > first : column < last) {
                column += step < 0 ? (size_t)-1 : 1;
            } else {
                column = step < 0 ? last : first;
                if (step < 0 ? !place : place + 1 >= t->n_shown)
                    return -1;
                place += step < 0 ? (size_t)-1 : 1;
                if (tui_table_stopped(t, place))
                    return -1;
            }
        }
        if (tui_row_kind(s, t->shown[place]) != TUI_ROW || !has(t, place, column, what))
            continue;
        t->cursor = place;
        t->panned = 0;
        if (s->cell_cursor)
            t->column = column;
        return 0;
    }
}
