/* forward_guard.c: whether a kernel writes past the end of its output. What stands behind the rows of the call, be it
 * nothing or rows of an earlier call, is put aside, a pattern takes its place while the kernel runs, and then it comes
 * back. Without it such a write is told of whatever else lies there, a probe's tables or the rows of another stage,
 * which would be blamed. It takes the time of a few cache lines. */
#include "engine/forward_private.h"

#include <string.h>

/* No number that a kernel is likely to write: a NaN with a payload of its own, other in every byte. */
static const unsigned char pattern[DS_GUARD_BYTES] = {
    0xd5, 0x3a, 0xc7, 0x7f, 0x91, 0x4e, 0xd2, 0xff, 0x6b, 0x8c, 0xe3, 0x7f, 0x27, 0xb4, 0xf9, 0xff,
    0x1d, 0x95, 0xce, 0x7f, 0xa8, 0x63, 0xdb, 0xff, 0x74, 0x0f, 0xe6, 0x7f, 0xbc, 0x52, 0xf1, 0xff,
    0x39, 0xea, 0xc4, 0x7f, 0x86, 0x17, 0xd8, 0xff, 0x4d, 0xa1, 0xed, 0x7f, 0xf2, 0x68, 0xfb, 0xff,
    0x05, 0xbe, 0xca, 0x7f, 0x9f, 0x24, 0xdd, 0xff, 0x58, 0xd3, 0xe8, 0x7f, 0x8e, 0x41, 0xf5, 0xff};

void ds_guard_set(struct ds_guard *g, float *y, size_t n)
{
    g->at = (unsigned char *)(y + n);
    memcpy(g->kept, g->at, sizeof g->kept);
    memcpy(g->at, pattern, sizeof pattern);
}

size_t ds_guard_lift(struct ds_guard *g, size_t *first)
{
    size_t changed = 0;
    *first = 0;
    if (!g->at)
        return 0;
    if (memcmp(g->at, pattern, sizeof pattern) != 0)
        for (size_t i = sizeof pattern; i-- > 0;)
            if (g->at[i] != pattern[i]) {
                *first = i;
                changed++;
            }
    memcpy(g->at, g->kept, sizeof g->kept);
    return changed;
}
