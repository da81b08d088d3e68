/* far_away.c: the whole program, for which every file system is one where a growing record cannot be followed (NFS): it
 * writes in the temporary folder and moves the record at the end. Linked with cli/main.c. */
#include "dumps/record_place.h"

static void move_away(void) __attribute__((constructor));
static void move_away(void)
{
    ds_place_distrust = 1;
}
