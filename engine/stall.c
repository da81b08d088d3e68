/* stall.c: see stall.h. */
#include "engine/stall.h"

#include <string.h>

int ds_stalled(struct ds_stall *s, const struct ds_place *place, double now)
{
    const struct ds_place at = *place; /* another process writes there */

    if (!s->seen || memcmp(&at, &s->at, sizeof at) != 0) {
        *s = (struct ds_stall){.at = at, .since = now, .seen = 1, .told = s->told};
        return 0;
    }
    if (s->told || at.doing == DS_DOING_NOTHING || !(now - s->since >= DS_STALL_SECONDS))
        return 0;
    s->told = 1;
    return 1;
}
