/* tokenizer_pretokenize.c: cuts a text into the words that byte pair encoding must not cross. Owns
 * the table of pre-tokenizers and PCRE2; knows no vocabulary.
 *
 * A pre-tokenizer is a list of patterns. Each is applied to the pieces that the one before left,
 * and sees one piece only: look- ahead ends where the piece ends. A match is a piece of its own,
 * and so is the text between two matches. These are the semantics of llama.cpp, against which the
 * ids are checked.
 *
 * PCRE2 10.42 knows Unicode 14, llama.cpp 15.1; and PCRE2's \s has one character more than
 * Unicode's White_Space. So the patterns see a copy of the text in which the few characters of
 * doubt are replaced by others of the same length and of the right kind (`stand_ins`). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer_impl.h"

#include "base/mem.h"
#include "base/names.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATTERNS 4

/* Contractions; a run of letters, of numbers or of neither, with the space before it; white space,
 * of which the last one is left to the word behind it. Possessive: a run never gives back, so no
 * text can make the matcher backtrack. */
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s+(?!\\S)|\\s+"

static const struct row {
    const char *name; /* value of tokenizer.ggml.pre */
    const char *patterns[MAX_PATTERNS];
} rows[] = {
    {"smollm", {"\\p{N}", GPT2_PATTERN}},
    {"gpt-2", {GPT2_PATTERN}},
    {"default", {"[\\p{P}$+<=>^~|]++", GPT2_PATTERN, "\\p{N}++", "[0-9]{3}"}},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* Enough for any text (a pattern above backtracks at most a few steps), small enough that a mistake
 * in a new row shows as an error and not as a hang. */
enum { MATCH_LIMIT = 1000000, DEPTH_LIMIT = 10000, HEAP_LIMIT_KIB = 65536 };

struct ds_pretokenizer {
    const struct row *row;
    pcre2_code *code[MAX_PATTERNS];
    pcre2_match_context *limits;
    size_t count;
};

/* ---- the table's side ------------------------------------------------------------------------ */

static int unknown_name(const char *name, size_t n, struct ds_error *err)
{
    struct ds_buf shown = {0}, known = {0};
    const char *names[N_ROWS];
    char word[32] = "";
    if (n < sizeof word)
        memcpy(word, name, n);
    for (size_t i = 0; i < N_ROWS; i++) {
        names[i] = rows[i].name;
        ds_buf_printf(&known, "%s%s", i == 0 ? "" : ", ", rows[i].name);
    }
    ds_buf_escape(&shown, name, n < 64 ? n : 64);
    ds_fail(err, "tokenizer.ggml.pre: unknown pre-tokenizer '%s'",
            shown.failed || n == 0 ? "" : shown.data);
    int near = ds_nearest(word, names, N_ROWS);
    ds_hint(err, "known are %s%s%s%s", known.failed ? "" : known.data,
            near < 0 ? "" : "; did you mean '", near < 0 ? "" : names[near], near < 0 ? "" : "'?");
    ds_buf_free(&shown);
    ds_buf_free(&known);
    return -1;
}

static int pcre_fail(struct ds_error *err, const struct row *row, const char *what, int code)
{
    PCRE2_UCHAR text[160];
    if (pcre2_get_error_message(code, text, sizeof text) < 0)
        memcpy(text, "unknown error", sizeof "unknown error");
    return ds_fail(err, "pre-tokenizer '%s': %s: %s", row->name, what, (const char *)text);
}

static int compile_patterns(struct ds_pretokenizer *p, struct ds_error *err)
{
    for (; p->count < MAX_PATTERNS && p->row->patterns[p->count] != NULL; p->count++) {
        int code = 0;
        PCRE2_SIZE at = 0;
        p->code[p->count] =
            pcre2_compile((PCRE2_SPTR)p->row->patterns[p->count], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (p->code[p->count] == NULL)
            return pcre_fail(err, p->row, "cannot compile a pattern", code);
        /* Optional: where the system allows no executable memory, the interpreter matches the same.
         */
        (void)pcre2_jit_compile(p->code[p->count], PCRE2_JIT_COMPLETE);
    }
    p->limits = pcre2_match_context_create(NULL);
    if (p->limits == NULL)
        return pcre_fail(err, p->row, "match limits", PCRE2_ERROR_NOMEMORY);
    pcre2_set_match_limit(p->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(p->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
    return 0;
}

int ds_pretokenizer_new(const char *name, size_t n, struct ds_pretokenizer **out,
                        struct ds_error *err)
{
    *out = NULL;
    const struct row *row = NULL;
    for (size_t i = 0; i < N_ROWS && row == NULL; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            row = &rows[i];
    if (row == NULL)
        return unknown_name(name, n, err);
    struct ds_pretokenizer *p = ds_calloc(1, sizeof *p, "pre-tokenizer", err);
    if (p == NULL)
        return -1;
    p->row = row;
    if (compile_patterns(p, err) != 0) {
        ds_pretokenizer_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void ds_pretokenizer_free(struct ds_pretokenizer *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < MAX_PATTERNS; i++)
        pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->limits);
    free(p);
}

/* ---- the text's side ------------------------------------------------------------------------- */

/* Representatives: private use, three bytes (neither letter, number, punctuation nor space); a CJK
 * ideograph, a mathematical digit, a Phoenician word separator, four bytes each. All of them are
 * older than any PCRE2 in use. */
#define OTHER_3  "\xee\x80\x80"
#define LETTER_4 "\xf0\xa0\x80\x80"
#define NUMBER_4 "\xf0\x9d\x9f\x8e"
#define PUNCT_4  "\xf0\x90\xa4\x9f"

/* Ascending. U+180E is a space for PCRE2 only (since Unicode 6.3 it is a format character).
 * U+D800-DFFF are no characters, but llama.cpp passes their three-byte forms through. The rest are
 * the letters, numbers and punctuation that Unicode 15.0 and 15.1 added: all code points of which
 * PCRE2 10.42 and llama.cpp think otherwise, found by asking both about each. */
static const struct stand_in {
    uint32_t first, last;
    const char *use;
} stand_ins[] = {
    {0x180e, 0x180e, OTHER_3},    {0xd800, 0xdfff, OTHER_3},    {0x1123f, 0x11240, LETTER_4},
    {0x11b00, 0x11b09, PUNCT_4},  {0x11f02, 0x11f02, LETTER_4}, {0x11f04, 0x11f10, LETTER_4},
    {0x11f12, 0x11f33, LETTER_4}, {0x11f43, 0x11f4f, PUNCT_4},  {0x11f50, 0x11f59, NUMBER_4},
    {0x1342f, 0x1342f, LETTER_4}, {0x13441, 0x13446, LETTER_4}, {0x1b132, 0x1b132, LETTER_4},
    {0x1b155, 0x1b155, LETTER_4}, {0x1d2c0, 0x1d2d3, NUMBER_4}, {0x1df25, 0x1df2a, LETTER_4},
    {0x1e030, 0x1e06d, LETTER_4}, {0x1e4d0, 0x1e4eb, LETTER_4}, {0x1e4f0, 0x1e4f9, NUMBER_4},
    {0x2b739, 0x2b739, LETTER_4}, {0x2ebf0, 0x2ee5d, LETTER_4}, {0x31350, 0x323af, LETTER_4},
};

static const char *stand_in_for(const unsigned char *p, int len)
{
    uint32_t c =
        len == 3 ? (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)
                 : (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0] && c >= stand_ins[i].first; i++)
        if (c <= stand_ins[i].last)
            return stand_ins[i].use;
    return NULL;
}

/* Length of the character at p: well-formed UTF-8, or a surrogate in three bytes. 0: neither. */
static int char_len(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n >= 3 && u[0] == 0xed && u[1] >= 0xa0 && u[1] <= 0xbf && (u[2] & 0xc0) == 0x80)
        return 3;
    return ds_utf8_len(p, n);
}

/* Fills bytes and match from the text. A byte that belongs to no character becomes U+FFFD. */
static int prepare(struct ds_words *w, const char *text, size_t n, struct ds_error *err)
{
    w->len = 0;
    if (ds_grow(&w->bytes, &w->bytes_cap, n + 4, 1, "text", err) != 0)
        return -1;
    for (size_t i = 0; i < n;) {
        int len = (unsigned char)text[i] < 0x80 ? 1 : char_len(text + i, n - i);
        const char *from = len == 0 ? "\xef\xbf\xbd" : text + i;
        size_t add = len == 0 ? 3 : (size_t)len;
        if (w->len + add > w->bytes_cap &&
            ds_grow(&w->bytes, &w->bytes_cap, w->len + add, 1, "text", err) != 0)
            return -1;
        memcpy(w->bytes + w->len, from, add);
        w->len += add;
        i += len == 0 ? 1 : (size_t)len;
    }
    if (ds_grow(&w->match, &w->match_cap, w->len + 1, 1, "text", err) != 0)
        return -1;
    memcpy(w->match, w->bytes, w->len);
    for (size_t i = 0; i < w->len;) {
        unsigned char first = (unsigned char)w->bytes[i];
        int len = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        const char *use = len >= 3 ? stand_in_for((const unsigned char *)w->bytes + i, len) : NULL;
        if (use != NULL)
            memcpy(w->match + i, use, (size_t)len);
        i += (size_t)len;
    }
    return 0;
}

static int add_end(struct ds_words *w, size_t end, struct ds_error *err)
{
    if (w->count == w->spare_cap &&
        ds_grow(&w->spare, &w->spare_cap, w->count + 1, sizeof *w->spare, "words", err) != 0)
        return -1;
    w->spare[w->count++] = end;
    return 0;
}

static void swap_ends(struct ds_words *w)
{
    size_t *ends = w->ends, cap = w->ends_cap;
    w->ends = w->spare;
    w->ends_cap = w->spare_cap;
    w->spare = ends;
    w->spare_cap = cap;
}

/* Cuts [begin, end) with one pattern and adds the ends of its pieces to `spare`. */
static int cut(const struct ds_pretokenizer *p, const pcre2_code *code, pcre2_match_data *md,
               struct ds_words *w, size_t begin, size_t end, struct ds_error *err)
{
    PCRE2_SPTR piece = (PCRE2_SPTR)w->match + begin;
    size_t len = end - begin, at = 0;
    while (at < len) {
        /* The text is known to be valid; without the flag every call would check all the rest of it
         * again. */
        int rc =
            pcre2_match(code, piece, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, md, p->limits);
        if (rc == PCRE2_ERROR_NOMATCH)
            return add_end(w, end, err);
        if (rc < 0)
            return pcre_fail(err, p->row, "matching failed", rc);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(md);
        if (span[0] > at && add_end(w, begin + span[0], err) != 0)
            return -1;
        if (add_end(w, begin + span[1], err) != 0)
            return -1;
        at = span[1];
    }
    return 0;
}

int ds_pretokenize(const struct ds_pretokenizer *p, const char *text, size_t n, struct ds_words *w,
                   struct ds_error *err)
{
    w->count = 0;
    if (prepare(w, text, n, err) != 0)
        return -1;
    if (w->len == 0)
        return 0;
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    if (md == NULL)
        return pcre_fail(err, p->row, "match data", PCRE2_ERROR_NOMEMORY);
    int rc = add_end(w, w->len, err);
    for (size_t k = 0; k < p->count && rc == 0; k++) {
        size_t count = w->count, begin = 0;
        swap_ends(w);
        w->count = 0;
        for (size_t i = 0; i < count && rc == 0; begin = w->ends[i++])
            rc = cut(p, p->code[k], md, w, begin, w->ends[i], err);
    }
    pcre2_match_data_free(md);
    swap_ends(w);
    return rc;
}

void ds_words_free(struct ds_words *w)
{
    free(w->bytes);
    free(w->match);
    free(w->ends);
    free(w->spare);
    *w = (struct ds_words){0};
}
