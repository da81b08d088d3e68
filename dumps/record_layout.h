/* record_layout.h: the tables of a record file: names, fields, order, sizes; shared by writer and
 * reader and nobody else.
 *
 * Every table is stored as packed little-endian rows, field after field without padding, so that
 * the bytes in the file are the bytes that the checksums cover. Knows the structs of record.h; must
 * not know HDF5. README.md describes the same in words. */
#ifndef DS_RECORD_LAYOUT_H
#define DS_RECORD_LAYOUT_H

#include "dumps/record.h"

enum ds_table_id {
    /* what a trial refers to by first row and count; this is also the order of its checksum */
    DS_TABLE_CALLS = 0,
    DS_TABLE_ROWS,
    DS_TABLE_LAUNCH_REFS,
    DS_TABLE_CAPTURES,
    DS_TABLE_DIGESTS,
    DS_TABLE_DRIFT,
    DS_TABLE_NONFINITE,
    DS_TABLE_STEPS,
    DS_TABLE_PACKED,
    DS_TABLE_BLOBS,
    DS_TABLE_FAILURES,
    DS_TABLE_RANGES,
    DS_TABLE_MASKS,
    DS_TABLE_MASK_WORDS,
    DS_RANGES, /* how many of them */
    /* shared by all trials, each different row once */
    DS_TABLE_LAUNCHES = DS_RANGES,
    DS_TABLE_TENSORS,
    DS_TABLE_TENSOR_BYTES,
    DS_TABLE_TRIALS,
    DS_GROWING, /* tables below this number grow, those from here on are written once, before the
                   first trial */
    DS_TABLE_TEXTS = DS_GROWING,
    DS_TABLE_ENVIRONMENT,
    DS_TABLE_HPARAMS,
    DS_TABLE_OPTIONS,
    DS_TABLE_WEIGHTS,
    DS_TABLE_PROMPTS,
    DS_TABLE_PROMPT_TOKENS,
    DS_TABLE_SITES,
    DS_TABLE_EDGES,
    DS_TABLE_FACTORS,
    DS_TABLE_ARMS,
    DS_STORED,                     /* how many tables are datasets */
    DS_TABLE_IDENTITY = DS_STORED, /* its fields are attributes of the root group */
    DS_TABLES
};

enum ds_field_kind {
    DS_FIELD_U8,
    DS_FIELD_U32,
    DS_FIELD_I32,
    DS_FIELD_F32,
    DS_FIELD_U64,
    DS_FIELD_F64,
    DS_FIELD_TEXT
};

struct ds_field {
    const char *name; /* "" for the only field of a plain array */
    int kind;
    size_t offset;  /* in the struct */
    size_t bytes;   /* in the struct and in the file, all items together */
    uint32_t items; /* 1, or the length of an array */
};

struct ds_table {
    const char *name;
    size_t struct_bytes;
    const struct ds_field *fields;
    size_t n_fields;
    uint32_t chunk_rows;
};

const struct ds_table *ds_table(int id);
/* Bytes of one row in the file. */
size_t ds_table_bytes(int id);
void ds_table_pack(int id, void *packed, const void *structs, size_t n);
/* Texts are cut at their last byte if they have no end. */
void ds_table_unpack(int id, void *structs, const void *packed, size_t n);

/* ---- rows that are not structs of record.h --------------------------------------------------- */

struct ds_text_ref { /* bytes of /texts */
    uint64_t at;
    uint32_t bytes;
};

struct ds_text_row {
    struct ds_text_ref name, value;
};

struct ds_prompt_row {
    int32_t request;
    struct ds_text_ref text;
    uint64_t first_token; /* in /prompt_tokens */
    uint32_t n_tokens;
};

struct ds_arm_row {
    uint32_t arm, factor;
    struct ds_text_ref value;
};

struct ds_tensor_row { /* one row's bytes, found by digest */
    uint64_t digest;
    char dtype[8];
    uint32_t elements, bytes;
    uint64_t first; /* in /tensor_bytes */
    uint64_t check; /* XXH3-64 of the row's bytes before this field */
};

struct ds_trial_row {
    struct ds_trial info;
    uint64_t first[DS_RANGES], count[DS_RANGES];
    uint64_t tensors;      /* rows in /tensors when the trial was complete */
    uint64_t checksum;     /* over everything the trial refers to */
    uint64_t row_checksum; /* XXH3-64 of the row's bytes before this field */
};

struct ds_identity {
    char format[24];
    uint32_t version;
    char tool_version[64], build[128], start[32], model_name[256], model_arch[32];
    uint64_t model_digest;
    int32_t n_layers, n_heads, n_kv_heads, head_dim;
    uint32_t repeats, n_arms;
    struct ds_text_ref command;
    /* Last: covers everything before it and all tables from DS_GROWING on. */
    uint64_t header_checksum;
};

/* ---- checksums ------------------------------------------------------------------------------- */

/* XXH3-64 over count (8 bytes) and XXH3-64 (8 bytes) of each part in turn. */
struct ds_part {
    uint64_t count, hash;
};
uint64_t ds_checksum_parts(const struct ds_part *parts, size_t n);
uint64_t ds_checksum_bytes(const void *bytes, size_t n);

/* ---- the header as packed tables ------------------------------------------------------------- */

struct ds_header_image {
    struct ds_identity identity;
    struct {
        void *bytes;
        size_t rows, cap;
    } table[DS_STORED]; /* only those from DS_GROWING on are used */
};

int ds_header_pack(const struct ds_header *h, struct ds_header_image *image, struct ds_error *err);
/* Treats the image as hostile: every reference is checked, and the checksum. Fills *h; on failure
 * *h is released. */
int ds_header_unpack(const struct ds_header_image *image, struct ds_header *h,
                     struct ds_error *err);
void ds_header_image_free(struct ds_header_image *image);

/* ---- a map from content to place ------------------------------------------------------------- */

struct ds_map_key {
    uint64_t low, high, count;
    uint32_t table;
};
struct ds_map {
    struct ds_map_slot *slots;
    size_t used, cap;
};
/* The stored value, or NULL. */
const uint64_t *ds_map_get(const struct ds_map *m, const struct ds_map_key *key);
int ds_map_put(struct ds_map *m, const struct ds_map_key *key, uint64_t value,
               struct ds_error *err);
void ds_map_free(struct ds_map *m);
/* Key of a block's content: 128 bits of XXH3, the count and the table. */
struct ds_map_key ds_map_content(int table, const void *bytes, size_t n, uint64_t count);

#endif
