/* structure_both.c: attention of which neither side is what all keys of a row give, as where one kernel treats whole prompts
 * and chunks in two ways, and both are wrong: what each side saw, or did with its scores, found by itself. See
 * structure_attention.c, which asks for it where no side is as expected. */
#include "dumps/structure_attend.h"

#include <math.h>
#include <stdio.h>

enum { FEW_KEYS = 512 };

/* Whether all that is off of this side, of every row, is what k gives. */
static int gives_side(const struct task *t, const struct keys *k)
{
    enum { PERCENT = 95 };
    return structure_sees_any(t, k) && structure_plausible(t, structure_probe_for(t, k), k) &&
           100 * explains(t, structure_predict_keys, k) >= PERCENT;
}

/* What this side saw, or did with its scores, whatever the other one did; 0: nothing that is tried. */
static int find_alone(const struct task *t, struct keys *k)
{
    static const int sets[] = {WINDOW, SHORTER, FIRST, BUT_AGO, BUT_AT, SINCE, BEYOND};
    const int64_t first = structure_first_row(t);
    if (first < 0)
        return 0;
    const size_t last = structure_last_row(t, (size_t)first);
    const int64_t most = t->rows[last].position + 1;
    if (most > FEW_KEYS)
        return 0;
    *k = (struct keys){.family = SCALED, .factor = structure_find_factor(t, last, SCALED)};
    if (fabs(k->factor - 1) > 1e-3 && gives_side(t, k))
        return 1;
    for (size_t f = 0; f < sizeof sets / sizeof *sets; f++)
        for (int64_t n = sets[f] == BUT_AGO || sets[f] == BUT_AT ? 0 : 1; n <= most; n++) {
            *k = (struct keys){.family = sets[f], .n = n};
            if (gives_side(t, k))
                return 1;
        }
    static const int maps[] = {ONE_HEAD, MODULO, REVERSE, TURNED_ON};
    for (size_t f = 0; f < sizeof maps / sizeof *maps && t->s->kv_heads > 1; f++)
        for (uint32_t n = 0; n < t->s->kv_heads; n++) {
            *k = (struct keys){.family = maps[f], .n = n};
            if (gives_side(t, k))
                return 1;
        }
    return 0;
}

static void tell_alone(const struct keys *k, int64_t first, char *text, size_t size)
{
    char keys[64];
    if (k->family == SCALED) {
        snprintf(text, size, "multiplies its scores by %.4g", k->factor);
        return;
    }
    structure_tell_keys(k, first, keys, sizeof keys);
    snprintf(text, size, "%s%s",
             k->family == ONE_HEAD || k->family == MODULO || k->family == REVERSE ||
                     k->family == TURNED_ON
                 ? "has: "
                 : "sees ",
             keys);
}

/* Neither side is attention to all keys of a row: what each of them did. turned: the rows with sides exchanged. */
void try_both(struct task *t, const struct ds_structure_row *turned)
{
    const struct ds_structure_row *rows = t->rows;
    struct keys mine, ref;
    char mine_text[72], ref_text[72];
    if (!find_alone(t, &mine))
        return;
    const double share = explains(t, structure_predict_keys, &mine);
    t->rows = turned;
    structure_look(t);
    const int found = find_alone(t, &ref);
    t->rows = rows;
    structure_look(t);
    if (!found)
        return;
    tell_alone(&mine, t->s->first, mine_text, sizeof mine_text);
    tell_alone(&ref, t->s->first, ref_text, sizeof ref_text);
    claim(t, share, 0, "both sides are off: attention %s, the reference's %s", mine_text, ref_text);
}
