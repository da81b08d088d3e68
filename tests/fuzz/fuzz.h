/* fuzz.h: what fuzz targets share. */
#ifndef DS_TESTS_FUZZ_H
#define DS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* libFuzzer's name for a target; standalone_main.c calls it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: it must hold in every build. */
static inline void require(int holds)
{
    if (!holds)
        abort();
}

#endif
