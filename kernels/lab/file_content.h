/* file_content.h: weights as they lie in a file, with the numbers that they stand for. Owns the
 * definition of every tensor type that loads, one number at a time; knows no packing. */
#ifndef DS_LAB_FILE_CONTENT_H
#define DS_LAB_FILE_CONTENT_H

#include <stdint.h>

/* The types besides F32, by number as GGUF has it. */
enum { DS_FILE_CONTENTS = 5 };
extern const int32_t ds_file_content_types[DS_FILE_CONTENTS];

/* A row of k numbers of this type at `bytes`, and their f32 values; a function of (type, seed, row)
 * alone. content: DS_CONTENT_SPECIAL strews in scales and numbers that are zero of both signs,
 * subnormal, infinite and NaN; anything else is about -1..1. k is whole blocks. */
void ds_file_content_row(int32_t type, unsigned char *bytes, float *values, int64_t k,
                         uint64_t seed, int32_t row, int content);

#endif
