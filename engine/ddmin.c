/* ddmin.c: minimal sets by delta debugging (bisect.h). Pure. */
#include "engine/bisect.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct search {
    size_t n;
    int (*test)(void *ctx, const uint8_t *set, struct ds_error *err);
    void *ctx;
    uint8_t *in, *try;
    size_t *member; /* of `in`, ascending */
    size_t members;
};

static void list_members(struct search *s)
{
    s->members = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->in[i])
            s->member[s->members++] = i;
}

/* Tries chunk k of `chunks` alone, or all but it; takes over a set that passes. */
static int try_chunk(struct search *s, size_t k, size_t chunks, int without, struct ds_error *err)
{
    size_t begin = k * s->members / chunks, end = (k + 1) * s->members / chunks;
    memset(s->try, 0, s->n);
    for (size_t i = 0; i < s->members; i++)
        if ((i >= begin && i < end) != without)
            s->try[s->member[i]] = 1;
    int rc = s->test(s->ctx, s->try, err);
    if (rc == DS_TRY_YES) {
        memcpy(s->in, s->try, s->n);
        list_members(s);
    }
    return rc;
}

static int shrink(struct search *s, struct ds_error *err)
{
    size_t chunks = 2;
    while (s->members > 1) {
        int rc = DS_TRY_NO, without = 0;
        chunks = chunks < s->members ? chunks : s->members;
        /* With two chunks, one alone is all but the other. */
        for (without = 0; rc == DS_TRY_NO && without < (chunks > 2 ? 2 : 1); without++)
            for (size_t k = 0; rc == DS_TRY_NO && k < chunks; k++)
                rc = try_chunk(s, k, chunks, without, err);
        if (rc != DS_TRY_NO && rc != DS_TRY_YES)
            return rc;
        if (rc == DS_TRY_YES)
            chunks = without == 1 ? 2 : chunks > 3 ? chunks - 1 : 2;
        else if (chunks == s->members)
            return 0;
        else
            chunks *= 2;
    }
    return 0;
}

/* The last word: each element is dropped once more from the set as it is now. */
static int verify(struct search *s, struct ds_error *err)
{
    for (size_t k = 0; k < s->members;) {
        int rc = try_chunk(s, k, s->members, 1, err);
        if (rc != DS_TRY_NO && rc != DS_TRY_YES)
            return rc;
        k = rc == DS_TRY_YES ? 0 : k + 1;
    }
    return 0;
}

int ds_ddmin(size_t n, int (*test)(void *ctx, const uint8_t *set, struct ds_error *err), void *ctx,
             uint8_t *in, struct ds_error *err)
{
    struct search s = {.n = n, .test = test, .ctx = ctx, .in = in};
    s.try = ds_calloc(n, 1, "a set", err);
    s.member = ds_calloc(n, sizeof *s.member, "a set", err);
    int rc = s.try && s.member ? 0 : -1;
    if (rc == 0) {
        memset(in, 1, n);
        list_members(&s);
        rc = shrink(&s, err);
    }
    if (rc == 0)
        rc = verify(&s, err);
    free(s.try);
    free(s.member);
    return rc;
}
