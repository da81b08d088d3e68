/* host_digest.c: digests of rows that were copied from a device, for where no kernel makes them. XXH3 is
 * compiled in: the library depends on nothing. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/cuda/library/library.h"

#include <string.h>

void ds_cuda_host_digest(int element, const void *row, int64_t bytes, uint64_t *digest,
                         uint32_t *largest)
{
    const char *p = row;
    uint32_t most = 0;
    *digest = XXH3_64bits(row, (size_t)bytes);
    for (int64_t i = 0; element == DS_ELEMENT_F32 && i + 4 <= bytes; i += 4) {
        uint32_t v;
        memcpy(&v, p + i, sizeof v);
        v &= 0x7fffffffu;
        most = v > most ? v : most;
    }
    const int half = element == DS_ELEMENT_F16 || element == DS_ELEMENT_BF16;
    for (int64_t i = 0; half && i + 2 <= bytes; i += 2) {
        uint16_t v;
        memcpy(&v, p + i, sizeof v);
        v &= 0x7fff;
        most = v > most ? v : most;
    }
    *largest = most;
}
