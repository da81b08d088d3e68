/* parts.h: work that several processes do at once, each its own part. Not threads: HDF5 lets only one of them in, and handing
 * over what was read costs more than to read it. */
#ifndef DS_PARTS_H
#define DS_PARTS_H

#include <stddef.h>

/* Zeroed memory that processes forked later share; NULL: there is none. */
void *ds_parts_memory(size_t bytes);
void ds_parts_release(void *memory, size_t bytes);

/* Into how many parts work of so many bytes is worth being cut: 1 where it is little, and with one CPU. */
int ds_parts_worth(size_t bytes);

/* For tests: the answer of ds_parts_worth from now on; 0: as built. */
void ds_parts_set(int parts);

/* Does all parts: fn(ctx, part, parts) for each, the first here, the others in processes of their own, and returns when
 * all have ended. What they find they write to shared memory; what they do to any other is lost with them. A part whose
 * process cannot be had is done here, one whose process dies stays undone: so what was not written there is not known.
 * The caller has no other thread, or asks for one part. */
void ds_parts_run(void (*fn)(void *ctx, int part, int parts), void *ctx, int parts);

#endif
