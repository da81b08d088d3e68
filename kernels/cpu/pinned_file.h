/* pinned_file.h: the pinned matmul on weights that keep their file's format (file_weights.h), for
 * one instruction set. Included by pinned_body.h after pinned_matmul.h.
 *
 * Order and rounding are those of pinned_matmul.h, on the f32 that the file's dequantiser gives: a
 * weight is made in registers, exactly (Q4_1: its one sum rounded once, as there), and then takes
 * its place in the same chain. Signed quants are cut out at the top of a word, so that they come out as
 * q * 2^24 or 2^28, and the scale is divided by that power of two ahead: both are exact, and so is
 * their product. Signs of zeros and the spread of infinities are those of d * q and d * q + m.
 *
 * Few rows: every weight is made where it is used. Many rows: a block of 256 k of a panel is made
 * once, in a buffer that stays in the nearest cache, and the f32 tiles run over it. Which of the
 * two is a matter of speed: the weights are the same bits and so is the chain. */

/* ---- one group of each type ------------------------------------------------------------------ */

/* T_GROUP k in T_BYTES bytes: scales in the first T_WORDS of them, then rows of sixteen words with
 * T_EACH k each. T_weight is the i-th of a word's weights, for sixteen columns. */

enum { Q4_1_GROUP = 32, Q4_1_BYTES = 320, Q4_1_WORDS = 64, Q4_1_EACH = 8 };
struct Q4_1_scales {
    v16 d, m;
};
typedef v16i Q4_1_word;

static inline void Q4_1_start(struct Q4_1_scales *s, const unsigned char *w)
{
    s->d = v16_load_half(w);
    s->m = v16_load_half(w + 32);
}

static inline Q4_1_word Q4_1_load(const unsigned char *w)
{
    return v16i_load(w);
}

static inline v16 Q4_1_weight(Q4_1_word word, const struct Q4_1_scales *s, int i)
{
    v16i q = i ? v16i_shr(word, 4 * i) : word;
    return v16_fma(v16_from_int(i < 7 ? v16i_and(q, 15u) : q), s->d, s->m);
}

enum { Q4_0_GROUP = 32, Q4_0_BYTES = 288, Q4_0_WORDS = 32, Q4_0_EACH = 8 };
struct Q4_0_scales {
    v16 d; /* times 2^-28 */
};
typedef v16i Q4_0_word;

static inline void Q4_0_start(struct Q4_0_scales *s, const unsigned char *w)
{
    s->d = v16_mul(v16_load_half(w), v16_set1(0x1p-28f));
}

static inline Q4_0_word Q4_0_load(const unsigned char *w)
{
    return v16i_load(w);
}

/* The nibble is a signed number, moved to the top of the word: (q - 8) * 2^28. */
static inline v16 Q4_0_weight(Q4_0_word word, const struct Q4_0_scales *s, int i)
{
    v16i q = i < 7 ? v16i_shl(word, 28 - 4 * i) : word;
    return v16_mul(v16_from_int(i ? v16i_and(q, 0xf0000000u) : q), s->d);
}

enum { Q8_0_GROUP = 32, Q8_0_BYTES = 544, Q8_0_WORDS = 32, Q8_0_EACH = 4 };
struct Q8_0_scales {
    v16 d; /* times 2^-24 */
};
typedef v16i Q8_0_word;

static inline void Q8_0_start(struct Q8_0_scales *s, const unsigned char *w)
{
    s->d = v16_mul(v16_load_half(w), v16_set1(0x1p-24f));
}

static inline Q8_0_word Q8_0_load(const unsigned char *w)
{
    return v16i_load(w);
}

/* q * 2^24 */
static inline v16 Q8_0_weight(Q8_0_word word, const struct Q8_0_scales *s, int i)
{
    v16i q = i < 3 ? v16i_shl(word, 24 - 8 * i) : word;
    return v16_mul(v16_from_int(i ? v16i_and(q, 0xff000000u) : q), s->d);
}

enum { BF16_GROUP = 2, BF16_BYTES = 64, BF16_WORDS = 0, BF16_EACH = 2 };
struct BF16_scales {
    char none;
};
typedef v16i BF16_word;

static inline void BF16_start(struct BF16_scales *s, const unsigned char *w)
{
    (void)s, (void)w;
}

static inline BF16_word BF16_load(const unsigned char *w)
{
    return v16i_load(w);
}

static inline v16 BF16_weight(BF16_word word, const struct BF16_scales *s, int i)
{
    (void)s;
    return v16_from_bits(i == 0 ? v16i_shl(word, 16) : v16i_and(word, 0xffff0000u));
}

enum { F16_GROUP = 1, F16_BYTES = 32, F16_WORDS = 0, F16_EACH = 1 };
struct F16_scales {
    char none;
};
typedef v16 F16_word;

static inline void F16_start(struct F16_scales *s, const unsigned char *w)
{
    (void)s, (void)w;
}

static inline F16_word F16_load(const unsigned char *w)
{
    return v16_load_half(w);
}

static inline v16 F16_weight(F16_word word, const struct F16_scales *s, int i)
{
    (void)s, (void)i;
    return word;
}

/* ---- tiles of few rows ----------------------------------------------------------------------- */

/* Shifts are constants where that matters. */
#if V16_ROWS == 4
#define FILE_UNROLL
#else
#define FILE_UNROLL UNROLL
#endif

typedef void (*file_tile_fn)(const float *x, int64_t ldx, const unsigned char *w, size_t stride,
                             int64_t kc, const struct tile_out *out);

/* EACH weights of P panels' words at w, times x[k..] of R rows. The weights that this place of the
 * next panels has are asked for ahead: a panel is too short a stream for the hardware to see it
 * coming. */
#define FILE_STEP(T, R, P, EACH)                                                                   \
    T##_word word[P];                                                                              \
    UNROLL for (int p = 0; p < P; p++)                                                             \
    {                                                                                              \
        word[p] = T##_load(at + p * stride);                                                       \
        __builtin_prefetch(at + (p + P) * stride);                                                 \
    }                                                                                              \
    FILE_UNROLL for (int i = 0; i < EACH; i++)                                                     \
    {                                                                                              \
        v16 b[P];                                                                                  \
        UNROLL for (int p = 0; p < P; p++) b[p] = T##_weight(word[p], &s[p], i);                   \
        UNROLL for (int r = 0; r < R; r++)                                                         \
        {                                                                                          \
            v16 a = v16_set1(row[r][k + i]);                                                       \
            UNROLL for (int p = 0; p < P; p++) c[r][p] = v16_fma(a, b[p], c[r][p]);                \
        }                                                                                          \
    }

/* R rows x P panels, `stride` bytes apart, as DEFINE_TILE of pinned_matmul.h. */
#define DEFINE_FILE_TILE(NAME, T, R, P)                                                            \
    static void NAME(const float *x, int64_t ldx, const unsigned char *w, size_t stride,           \
                     int64_t kc, const struct tile_out *out)                                       \
    {                                                                                              \
        v16 c[R][P];                                                                               \
        const float *row[R];                                                                       \
        struct T##_scales s[P];                                                                    \
        int64_t k = 0;                                                                             \
        UNROLL for (int r = 0; r < R; r++)                                                         \
        {                                                                                          \
            row[r] = x + r * ldx;                                                                  \
            UNROLL for (int p = 0; p < P; p++) c[r][p] = v16_set1(0.0f);                           \
        }                                                                                          \
        for (; k + T##_GROUP <= kc; w += T##_BYTES) {                                              \
            const unsigned char *at = w + T##_WORDS;                                               \
            UNROLL for (int p = 0; p < P; p++) T##_start(&s[p], w + p * stride);                   \
            for (int j = 0; j < T##_GROUP / T##_EACH; j++, at += 64, k += T##_EACH) {              \
                FILE_STEP(T, R, P, T##_EACH)                                                       \
            }                                                                                      \
        }                                                                                          \
        if (T##_GROUP == 2 && k < kc) {                                                            \
            const unsigned char *at = w;                                                           \
            FILE_STEP(T, R, P, 1)                                                                  \
        }                                                                                          \
        TILE_STORE(R, P, c, out)                                                                   \
    }

/* kc k of one panel as f32 [kc][16]. */
#define DEFINE_FILE_UNPACK(T)                                                                      \
    static void T##_unpack(const unsigned char *w, int64_t kc, float *dst)                         \
    {                                                                                              \
        struct T##_scales s;                                                                       \
        int64_t k = 0;                                                                             \
        for (; k + T##_GROUP <= kc; w += T##_BYTES) {                                              \
            const unsigned char *at = w + T##_WORDS;                                               \
            T##_start(&s, w);                                                                      \
            for (int j = 0; j < T##_GROUP / T##_EACH; j++, at += 64, k += T##_EACH) {              \
                T##_word word = T##_load(at);                                                      \
                FILE_UNROLL for (int i = 0; i < T##_EACH; i++)                                     \
                    v16_store(dst + 16 * (k + i), T##_weight(word, &s, i));                        \
            }                                                                                      \
        }                                                                                          \
        if (T##_GROUP == 2 && k < kc)                                                              \
            v16_store(dst + 16 * k, T##_weight(T##_load(w), &s, 0));                               \
    }

/* Rows of the largest tile; panels side by side, by number of rows, for types with scales and for
 * those without, which leave more registers. */
enum { FILE_ROWS = 6 };
#if V16_ROWS == 4
#define FILE_WIDE  1, 1, 1, 1, 1, 1
#define FILE_LIGHT 1, 1, 1, 1, 1, 1
#elif V16_ROWS == 6
#define FILE_WIDE  2, 1, 1, 1, 1, 1
#define FILE_LIGHT 4, 2, 1, 1, 1, 1
#else
#define FILE_WIDE  4, 4, 2, 2, 2, 2
#define FILE_LIGHT 4, 4, 2, 2, 2, 2
#endif

#define DEFINE_FILE_TYPE(T, ...) DEFINE_FILE_TILES(T, __VA_ARGS__)
#define DEFINE_FILE_TILES(T, W1, W2, W3, W4, W5, W6)                                               \
    DEFINE_FILE_UNPACK(T)                                                                          \
    DEFINE_FILE_TILE(T##_one_1, T, 1, 1)                                                           \
    DEFINE_FILE_TILE(T##_one_2, T, 2, 1)                                                           \
    DEFINE_FILE_TILE(T##_one_3, T, 3, 1)                                                           \
    DEFINE_FILE_TILE(T##_one_4, T, 4, 1)                                                           \
    DEFINE_FILE_TILE(T##_one_5, T, 5, 1)                                                           \
    DEFINE_FILE_TILE(T##_one_6, T, 6, 1)                                                           \
    DEFINE_FILE_TILE(T##_wide_1, T, 1, W1)                                                         \
    DEFINE_FILE_TILE(T##_wide_2, T, 2, W2)                                                         \
    DEFINE_FILE_TILE(T##_wide_3, T, 3, W3)                                                         \
    DEFINE_FILE_TILE(T##_wide_4, T, 4, W4)                                                         \
    DEFINE_FILE_TILE(T##_wide_5, T, 5, W5)                                                         \
    DEFINE_FILE_TILE(T##_wide_6, T, 6, W6)

/* A type's code. one[rows] does a panel, wide[rows] as many as width[rows] says. F32 is none of
 * these: packed, it is what pinned_matmul() reads. */
struct file_code {
    int32_t type;
    int32_t group, group_bytes;
    void (*unpack)(const unsigned char *w, int64_t kc, float *dst);
    int width[FILE_ROWS + 1];
    file_tile_fn one[FILE_ROWS + 1], wide[FILE_ROWS + 1];
};
#define FILE_CODE(T, ...)                                                                          \
    {                                                                                              \
        DS_FILE_##T, T##_GROUP, T##_BYTES, T##_unpack, {0, __VA_ARGS__},                           \
            {NULL, T##_one_1, T##_one_2, T##_one_3, T##_one_4, T##_one_5, T##_one_6},              \
            {NULL, T##_wide_1, T##_wide_2, T##_wide_3, T##_wide_4, T##_wide_5, T##_wide_6},        \
    }

DEFINE_FILE_TYPE(Q4_1, FILE_WIDE)
DEFINE_FILE_TYPE(Q4_0, FILE_WIDE)
DEFINE_FILE_TYPE(Q8_0, FILE_WIDE)
DEFINE_FILE_TYPE(BF16, FILE_LIGHT)
DEFINE_FILE_TYPE(F16, FILE_LIGHT)

static const struct file_code file_codes[] = {
    FILE_CODE(Q4_1, FILE_WIDE),  FILE_CODE(Q4_0, FILE_WIDE), FILE_CODE(Q8_0, FILE_WIDE),
    FILE_CODE(BF16, FILE_LIGHT), FILE_CODE(F16, FILE_LIGHT),
};

/* ---- the call -------------------------------------------------------------------------------- */

static const unsigned char *file_block(const struct ds_matmul_args *a, const struct file_code *code,
                                       size_t stride, int64_t panel, int64_t k0)
{
    return (const unsigned char *)a->prepared + (size_t)panel * stride +
           (size_t)(k0 / code->group) * (size_t)code->group_bytes;
}

static struct tile_out file_out(const struct ds_matmul_args *a, int64_t row, int64_t panel,
                                int64_t k0, int64_t kc)
{
    return (struct tile_out){a->y + row * a->ldy + 16 * panel,      a->ldy,  a->n - 16 * panel,
                             a->bias ? a->bias + 16 * panel : NULL, k0 == 0, k0 + kc >= a->k};
}

/* Rows row0..row1-1, FILE_ROWS at most: each panel is streamed from memory once. */
static void file_few_rows(const struct ds_matmul_args *a, const struct file_code *code,
                          size_t stride, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1)
{
    const int64_t rows = row1 - row0, last = a->k > 0 ? a->k : 1;
    int width;
    for (int64_t p = panel0; p < panel1; p += width) {
        width = code->width[rows] <= panel1 - p ? code->width[rows] : 1;
        file_tile_fn tile = width == 1 ? code->one[rows] : code->wide[rows];
        for (int64_t k0 = 0; k0 < last; k0 += DS_PINNED_BLOCK) {
            int64_t kc = a->k - k0 < DS_PINNED_BLOCK ? a->k - k0 : DS_PINNED_BLOCK;
            struct tile_out out = file_out(a, row0, p, k0, kc);
            tile(a->x + row0 * a->ldx + k0, a->ldx, file_block(a, code, stride, p, k0), stride, kc,
                 &out);
        }
    }
}

/* One block of K, kc terms from k0 on, of `panels` panels, made f32 in `block`. */
static void file_block_rows(const struct ds_matmul_args *a, const struct row_block *rows,
                            const float *block, int64_t k0, int64_t kc, int64_t panel, int panels)
{
    struct tile_in in = {.ldx = rows->ldx,
                         .w = block,
                         .panel_stride = 16 * DS_PINNED_BLOCK,
                         .kc = kc,
                         .ahead = block};
    for (int64_t r = rows->row0, take; r < rows->row1; r += take) {
        struct tile_out out = file_out(a, r, panel, k0, kc);
        take = tile_rows(rows->row1 - r);
        in.x = rows->x + (r - rows->row0) * rows->ldx;
        rows->tiles[take][panels](&in, &out);
    }
}

/* As many_rows() of pinned_matmul.h, whose tiles then find each block of weights in L1. */
static void file_many_rows(const struct ds_matmul_args *a, const struct file_code *code,
                           size_t stride, int64_t row0, int64_t row1, int64_t panel0,
                           int64_t panel1, float *copy)
{
    _Alignas(64) float block[V16_PANELS * 16 * DS_PINNED_BLOCK];
    for (int64_t k0 = 0; k0 == 0 || k0 < a->k; k0 += DS_PINNED_BLOCK) {
        int64_t kc = a->k - k0 < DS_PINNED_BLOCK ? a->k - k0 : DS_PINNED_BLOCK;
        struct row_block rows = block_rows(a, row0, row1, k0, copy);
        for (int64_t p = panel0; p < panel1;) {
            int n = panel1 - p < V16_PANELS ? (int)(panel1 - p) : V16_PANELS;
            for (int i = 0; i < n; i++)
                code->unpack(file_block(a, code, stride, p + i, k0), kc,
                             block + i * 16 * DS_PINNED_BLOCK);
            file_block_rows(a, &rows, block, k0, kc, p, n);
            p += n;
        }
    }
}

/* As pinned_matmul(), on weights packed by ds_file_pack_panel(). */
static void pinned_matmul_file(const struct ds_matmul_args *a, int64_t row0, int64_t row1,
                               int64_t panel0, int64_t panel1, float *work)
{
    const struct file_code *code = file_codes;
    if (a->w.file_type == DS_FILE_F32) {
        pinned_matmul(a, row0, row1, panel0, panel1, work);
        return;
    }
    while (code->type != a->w.file_type) /* prepare took it, so it is there */
        code++;
    const size_t stride =
        (size_t)((a->k + code->group - 1) / code->group) * (size_t)code->group_bytes;
    if (row1 - row0 <= FILE_ROWS) {
        file_few_rows(a, code, stride, row0, row1, panel0, panel1);
        return;
    }
    const int64_t tall = rows_at_once(row1 - row0);
    for (int64_t r = row0; r < row1; r += tall)
        file_many_rows(a, code, stride, r, r + tall < row1 ? r + tall : row1, panel0, panel1,
                       row1 - r < V16_DENSE || tall < V16_DENSE ? NULL : work);
}
