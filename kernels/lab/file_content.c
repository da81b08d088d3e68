/* file_content.c: see file_content.h. The values are the definition, number by number: what a
 * kernel makes of the same bytes in registers is held against them. */
#include "kernels/lab/file_content.h"

#include "base/dtype.h"
#include "kernels/cpu/file_weights.h"
#include "kernels/lab/content.h"
#include "kernels/lab/subject.h"

enum { BLOCK = 32, HALF = BLOCK / 2, STREAM = 77 };

const int32_t ds_file_content_types[DS_FILE_CONTENTS] = {DS_FILE_F16, DS_FILE_BF16, DS_FILE_Q8_0,
                                                         DS_FILE_Q4_0, DS_FILE_Q4_1};

static void put_half(unsigned char *p, uint16_t h)
{
    p[0] = (unsigned char)h;
    p[1] = (unsigned char)(h >> 8);
}

/* An f16 of either sign, 2^(least - 15) and up to eight times as much. */
static uint16_t half(uint64_t u, int least, int content)
{
    static const uint16_t special[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400,
                                       0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xfe12};
    if (content == DS_CONTENT_SPECIAL && u % 13 == 0)
        return special[(u >> 8) % (sizeof special / sizeof special[0])];
    return (uint16_t)((u & 0x8000) | (uint64_t)(least + (int)((u >> 16) % 3)) << 10 | (u & 0x3ff));
}

/* Any bf16 where rows are special. */
static uint16_t bhalf(uint64_t u, int content)
{
    if (content == DS_CONTENT_SPECIAL && u % 13 == 0)
        return (uint16_t)(u >> 20);
    return (uint16_t)((u & 0x8000) | (uint64_t)(123 + (u >> 16) % 4) << 7 | (u & 0x7f));
}

static void block_q8_0(unsigned char *p, float *v, uint64_t key, int content)
{
    const uint16_t d = half(ds_content_hash(key, BLOCK), 5, content);
    put_half(p, d);
    for (int i = 0; i < BLOCK; i++) {
        p[2 + i] = (unsigned char)ds_content_hash(key, (uint64_t)i);
        v[i] = ds_f16_value(d) * (float)(int8_t)p[2 + i];
    }
}

/* Two numbers a byte: k in the low half, k + 16 in the high half. m: of Q4_1, else NULL. */
static void block_nibbles(unsigned char *p, float *v, uint64_t key, int content, int has_m)
{
    const uint16_t d = half(ds_content_hash(key, BLOCK), 8, content),
                   m = half(ds_content_hash(key, BLOCK + 1), 12, content);
    unsigned char *q = p + (has_m ? 4 : 2);
    put_half(p, d);
    if (has_m)
        put_half(p + 2, m);
    for (int i = 0; i < HALF; i++)
        q[i] = (unsigned char)ds_content_hash(key, (uint64_t)i);
    for (int i = 0; i < BLOCK; i++) {
        const int n = q[i % HALF] >> (i < HALF ? 0 : 4) & 15;
        const float product = ds_f16_value(d) * (float)(has_m ? n : n - 8);
        v[i] = has_m ? product + ds_f16_value(m) : product;
    }
}

void ds_file_content_row(int32_t type, unsigned char *bytes, float *values, int64_t k,
                         uint64_t seed, int32_t row, int content)
{
    const struct ds_file_layout *l = ds_file_layout(type);
    const uint64_t key =
        ds_content_hash(ds_content_hash(seed, STREAM + (uint64_t)type), (uint64_t)(uint32_t)row);
    for (int64_t i = 0; i < k; i += l->block, bytes += l->block_bytes, values += l->block) {
        const uint64_t u = ds_content_hash(key, (uint64_t)i);
        uint16_t h;
        switch (type) {
        case DS_FILE_F16:
            put_half(bytes, h = half(u, 11, content));
            *values = ds_f16_value(h);
            break;
        case DS_FILE_BF16:
            put_half(bytes, h = bhalf(u, content));
            *values = ds_bf16_value(h);
            break;
        case DS_FILE_Q8_0:
            block_q8_0(bytes, values, u, content);
            break;
        default:
            block_nibbles(bytes, values, u, content, type == DS_FILE_Q4_1);
        }
    }
}
