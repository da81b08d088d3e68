/* digest.c: ds_digest: the names that other engines know of base/hash.h. Knows no sites and no trials. */
#include "probes/driftscope_probe.h"

#include "base/hash.h"

uint64_t ds_digest(const void *bytes, size_t n)
{
    return ds_hash(bytes, n);
}

uint64_t ds_digest_of(const uint64_t *digests, size_t n)
{
    return ds_hash(digests, n * sizeof *digests); /* little-endian: asserted in base/hash_isa.h */
}
