/* profile.c: see profile.h. */
#include "dumps/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

uint32_t ds_site_heads(const struct ds_header *h, uint32_t site)
{
    static const char *const stages[] = {"q_proj", "k_proj", "v_proj",   "q_norm",  "k_norm",
                                         "q_rope", "k_rope", "kv_write", "attn_out"};
    const struct ds_site *s = &h->sites[site];
    if (h->head_dim <= 0 || s->width == 0 || s->width % (uint32_t)h->head_dim)
        return 0;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (strcmp(s->stage, stages[i]) == 0)
            return s->width / (uint32_t)h->head_dim;
    return 0;
}

enum { RANGES_TOLD = 4 };

struct walk { /* the differing members, met in order */
    size_t known, differ, ranges, first, last, last_known;
    size_t step;  /* between known members that differ, counted in known members; 0: not one step */
    size_t since; /* known members since the last one that differs */
};

static void meet(struct walk *w, size_t i, int differs)
{
    w->known++;
    w->last_known = i;
    w->since++;
    if (!differs)
        return;
    if (w->differ == 0) {
        w->first = i;
    } else if (w->differ == 1) {
        w->step = w->since;
    } else if (w->since != w->step) {
        w->step = 0;
    }
    w->ranges += w->differ == 0 || w->since != 1;
    w->since = 0;
    w->last = i;
    w->differ++;
}

static long name_of(const int32_t *names, size_t i)
{
    return names ? (long)names[i] : (long)i;
}

static size_t add_range(char *text, size_t at, const int32_t *names, size_t from, size_t to,
                        int open)
{
    size_t left = at < DS_PROFILE_TEXT ? DS_PROFILE_TEXT - at : 0;
    const char *comma = at ? ", " : "";
    int n = open ? snprintf(text + at, left, "%s%ld-", comma, name_of(names, from))
            : from == to
                ? snprintf(text + at, left, "%s%ld", comma, name_of(names, from))
                : snprintf(text + at, left, name_of(names, to) < 0 ? "%s%ld to %ld" : "%s%ld-%ld",
                           comma, name_of(names, from), name_of(names, to));
    return at + (n > 0 && (size_t)n < left ? (size_t)n : left);
}

static void tell_ranges(const uint8_t *state, const int32_t *names, size_t n, int open,
                        const struct walk *w, char *text)
{
    size_t at = 0, from = n, last = n;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        if (state[i] == DS_MEMBER_DIFFERS) {
            from = from == n ? i : from;
            last = i;
        } else if (state[i] == DS_MEMBER_SAME && from < n) {
            at = add_range(text, at, names, from, last, 0);
            from = n;
        }
    }
    if (from < n)
        add_range(text, at, names, from, last, open && from != last && last == w->last_known);
}

void ds_profile_set(const uint8_t *state, const int32_t *names, size_t n, int open,
                    char text[DS_PROFILE_TEXT])
{
    struct walk w = {0};
    for (size_t i = 0; i < n; i++)
        if (state[i] != DS_MEMBER_UNKNOWN)
            meet(&w, i, state[i] == DS_MEMBER_DIFFERS);
    if (w.differ == 0 || w.differ == w.known)
        snprintf(text, DS_PROFILE_TEXT, "%s", w.differ ? "all" : "none");
    else if (w.differ >= 3 && w.step > 1 && w.since < w.step)
        snprintf(text, DS_PROFILE_TEXT, "every %zu%s from %ld", w.step,
                 w.step == 2   ? "nd"
                 : w.step == 3 ? "rd"
                               : "th",
                 name_of(names, w.first));
    else if (w.ranges <= RANGES_TOLD)
        tell_ranges(state, names, n, open, &w, text);
    else
        snprintf(text, DS_PROFILE_TEXT, "%zu of %zu, %ld to %ld", w.differ, w.known,
                 name_of(names, w.first), name_of(names, w.last));
}

void ds_profile_elements(const uint32_t *counts, uint32_t width, uint32_t head_dim,
                         char heads[DS_PROFILE_TEXT], char channels[DS_PROFILE_TEXT])
{
    uint8_t state[65536]; /* wider rows are not told apart */
    heads[0] = channels[0] = '\0';
    uint32_t unit = head_dim ? head_dim : width;
    if (width == 0 || unit == 0 || (head_dim && width % head_dim))
        return;
    if (head_dim && width / head_dim <= sizeof state) {
        memset(state, DS_MEMBER_SAME, width / head_dim);
        for (uint32_t i = 0; i < width; i++)
            if (counts[i])
                state[i / head_dim] = DS_MEMBER_DIFFERS;
        ds_profile_set(state, NULL, width / head_dim, 0, heads);
    }
    if (unit > sizeof state)
        return;
    memset(state, DS_MEMBER_SAME, unit);
    for (uint32_t i = 0; i < width; i++)
        if (counts[i])
            state[i % unit] = DS_MEMBER_DIFFERS;
    ds_profile_set(state, NULL, unit, 0, channels);
}

uint64_t ds_profile_percentile(const uint64_t *sorted, size_t n, double p)
{
    if (n == 0)
        return 0;
    size_t rank = (size_t)ceil(p * (double)n);
    return sorted[rank == 0 ? 0 : rank > n ? n - 1 : rank - 1];
}
