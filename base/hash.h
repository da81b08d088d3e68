/* hash.h: XXH3-64, seed 0, by the widest code that this CPU has. Equal to XXH3_64bits() of the library, which is
 * compiled for the narrowest CPU, and to `xxhsum -H3`. */
#ifndef DS_HASH_H
#define DS_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t ds_hash_fn(const void *bytes, size_t n);

uint64_t ds_hash(const void *bytes, size_t n);
/* The function behind it, for loops over many short rows. */
ds_hash_fn *ds_hash_best(void);

/* The i-th code that this build has and this CPU and system can run, narrowest first; NULL past the end.
 * *name, if not NULL: "base", "avx2", "avx512". */
ds_hash_fn *ds_hash_at(size_t i, const char **name);

/* As compiled; NULL where the compiler had no such instructions. Run none that the CPU lacks. */
ds_hash_fn *ds_hash_base(void);
ds_hash_fn *ds_hash_avx2(void);
ds_hash_fn *ds_hash_avx512(void);

#endif
