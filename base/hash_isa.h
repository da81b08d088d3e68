/* hash_isa.h: the text that hash_base.c, hash_avx2.c and hash_avx512.c compile, each with its own flags.
 *
 * Everything here is static (xxhash.h too, through XXH_INLINE_ALL), so that no function compiled
 * for a wide instruction set can be picked by the linker for a caller on a CPU without it.
 *
 * Defined by the includer: XXH_VECTOR, where it is not for xxhash.h to choose. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes are hashed as they lie in memory");

static uint64_t hash(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}
