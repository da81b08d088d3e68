/* damage.c: what of a record could not be believed, row by row, and in the last line. */
#include "report/report_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_LINES = 16 };

static const char *pass_name(uint32_t pass)
{
    return pass == DS_PASS_HEAL ? ", healed" : pass == DS_PASS_BARE ? ", without probes" : "";
}

static void add_trial(const struct ds_damage *x, struct ds_buf *out)
{
    if (x->trial != SIZE_MAX)
        ds_buf_printf(out, "trial %zu (arm %u, repeat %u%s)", x->trial, x->arm, x->repeat,
                      pass_name(x->pass));
}

static void add_one(const struct ds_damage_side *s, const struct ds_damage *x, struct ds_buf *out)
{
    if (!x->dumped) {
        add_trial(x, out);
        ds_buf_printf(out, ": %s\n", x->why);
        return;
    }
    if (x->trial == SIZE_MAX) {
        ds_buf_puts(out, "a row of no trial that could be read");
    } else {
        const struct ds_site *site = &s->header->sites[x->site];
        ds_report_place(out, site->layer, site->stage, site->part);
        ds_buf_printf(out, ", request %d, position %d", x->request, x->position);
        if (x->occurrence)
            ds_buf_printf(out, ", occurrence %d", x->occurrence);
        ds_buf_puts(out, ", ");
        add_trial(x, out);
        if (x->rows > 1)
            ds_buf_printf(out, " and %" PRIu64 " equal row%s", x->rows - 1,
                          x->rows == 2 ? "" : "s");
    }
    if (x->found)
        ds_buf_printf(out, ":\n%14sdigest %016" PRIx64 ", but its bytes have %016" PRIx64 "\n", "",
                      x->digest, x->found);
    else
        ds_buf_printf(out, ":\n%14sdigest %016" PRIx64 ", but %s\n", "", x->digest, x->why);
}

void ds_report_damage(const struct ds_report *r, struct ds_buf *out)
{
    size_t n = 0, left = 0;
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n; i++) {
            if (n++ >= MOST_LINES) {
                left++;
                continue;
            }
            ds_report_head(r, "damage", out);
            if (r->diff)
                ds_buf_puts(out, side ? "B: " : "A: ");
            add_one(&r->damage[side], &r->damage[side].list[i], out);
        }
    if (left)
        ds_buf_printf(out, "%14sand %zu more (--json lists up to 1000)\n", "", left);
}

void ds_report_damage_count(const struct ds_report *r, uint64_t *rows, uint64_t *trials)
{
    *rows = *trials = 0;
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n; i++)
            ++*(r->damage[side].list[i].dumped ? rows : trials);
}

void ds_report_unread(const struct ds_report *r, uint64_t *rows, uint64_t *bytes)
{
    *rows = *bytes = 0;
    for (int side = 0; r->damage && side < 2; side++) {
        *rows += r->damage[side].unread_rows;
        *bytes += r->damage[side].unread_bytes;
    }
}

/* "2 dumped rows do not have their digest"; 0 and nothing where there is no damage. */
static int damage_said(const struct ds_report *r, char *text, size_t size)
{
    uint64_t rows, trials;
    ds_report_damage_count(r, &rows, &trials);
    int n = 0;
    if (rows + trials == 0)
        return 0;
    if (rows)
        n = snprintf(text, size, "%" PRIu64 " dumped row%s not have %s digest", rows,
                     rows == 1 ? " does" : "s do", rows == 1 ? "its" : "their");
    if (trials && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "%s%" PRIu64 " trial%s not have %s checksum",
                 n ? ", " : "", trials, trials == 1 ? " does" : "s do",
                 trials == 1 ? "its" : "their");
    return 1;
}

int ds_report_damage_judge(const struct ds_report *r, struct ds_verdict *v)
{
    char text[160];
    const int agrees = v->result == DS_RESULT_SAME || v->result == DS_RESULT_RECORDED;
    if (!damage_said(r, text, sizeof text)) {
        /* What was left out may have differed: its number stands at the end of the sentence. */
        if (!r->damaged || !agrees)
            return 0;
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason, "nothing differs in what is left of %s",
                 r->diff ? "damaged records" : "a damaged record");
        return 1;
    }
    if (agrees) {
        v->result = DS_RESULT_INCOMPARABLE;
        snprintf(v->reason, sizeof v->reason, "the record%s damaged: %s", r->diff ? "s are" : " is",
                 text);
    }
    return 1;
}

void ds_report_damage_words(const struct ds_report *r, struct ds_buf *out)
{
    char text[160];
    if (r->v->result != DS_RESULT_INCOMPARABLE && damage_said(r, text, sizeof text))
        ds_buf_printf(out, "; damaged: %s", text);
    uint64_t rows, bytes;
    char words[DS_BYTES_WORDS];
    ds_report_unread(r, &rows, &bytes);
    if (rows && r->v->result != DS_RESULT_INCOMPARABLE)
        ds_buf_printf(out,
                      "; %" PRIu64 " dumped rows (%s) were not held against their digests: "
                      "--verify does that",
                      rows, ds_bytes_words(bytes, words));
}
