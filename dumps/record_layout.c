/* record_layout.c: see record_layout.h. Owns the field lists, packing, checksums and the map. Must
 * not know HDF5. */
#include "dumps/record_layout.h"

#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "rows are packed by copying: little-endian machines only");

#define FIELD_AS(label, kind, type, member)                                                        \
    {                                                                                              \
        label, kind, offsetof(type, member), sizeof(((type *)0)->member), 1                        \
    }
#define FIELD(kind, type, member) FIELD_AS(#member, kind, type, member)
#define ARRAY(kind, type, member, items)                                                           \
    {                                                                                              \
#member, kind, offsetof(type, member), sizeof(((type *)0)->member), items                  \
    }
#define REF_AS(label, type, member)                                                                \
    FIELD_AS(label "_at", DS_FIELD_U64, type, member.at),                                          \
        FIELD_AS(label "_bytes", DS_FIELD_U32, type, member.bytes)
#define U32(member)  FIELD(DS_FIELD_U32, ROW, member)
#define I32(member)  FIELD(DS_FIELD_I32, ROW, member)
#define U64(member)  FIELD(DS_FIELD_U64, ROW, member)
#define F32(member)  FIELD(DS_FIELD_F32, ROW, member)
#define F64(member)  FIELD(DS_FIELD_F64, ROW, member)
#define TEXT(member) FIELD(DS_FIELD_TEXT, ROW, member)
#define REF(member)  REF_AS(#member, ROW, member)

#define ROW struct ds_call
static const struct ds_field calls[] = {U32(index),     U32(phase),     U32(m),
                                        U32(sequences), U32(first_row), U32(rows)};
#undef ROW
#define ROW struct ds_row
static const struct ds_field rows[] = {U32(call),       I32(request), I32(position),
                                       I32(occurrence), U32(kind),    I32(slot),
                                       I32(step),       I32(q_len),   I32(kv_len)};
#undef ROW
#define ROW struct ds_launch
static const struct ds_field launches[] = {TEXT(op),       TEXT(variant),  I32(rows),
                                           I32(tile_rows), I32(tile_cols), I32(tile_k),
                                           I32(split),     I32(threads),   TEXT(algo)};
#undef ROW
#define ROW struct ds_capture
static const struct ds_field captures[] = {U32(call), U32(site),  U32(launch),      U32(first_row),
                                           U32(rows), U32(width), U64(first_digest)};
#undef ROW
#define ROW struct ds_drift
static const struct ds_field drift[] = {
    U32(site),    U32(row),       U32(ref_arm),       U32(elements),  U32(first),
    U32(flags),   U32(nonfinite), U32(ref_nonfinite), U64(max_ulp),   F64(max_abs),
    F64(diff_sq), F64(ref_sq),    U64(digest),        U64(ref_digest)};
#undef ROW
#define ROW struct ds_nonfinite
static const struct ds_field nonfinite[] = {U32(site), U32(row), U32(nan), U32(inf), U32(first)};
#undef ROW
#define ROW struct ds_range
static const struct ds_field ranges[] = {U32(site), U32(row), F32(max_abs)};
#undef ROW
#define ROW struct ds_mask
static const struct ds_field masks[] = {U32(site),  U32(ref_arm), U32(phase), U32(rows),
                                        U32(width), U32(planes),  U64(first)};
#undef ROW
#define ROW struct ds_step
static const struct ds_field steps[] = {I32(request),
                                        I32(step),
                                        I32(token),
                                        I32(forced),
                                        ARRAY(DS_FIELD_I32, ROW, ids, DS_TOP),
                                        ARRAY(DS_FIELD_F32, ROW, logits, DS_TOP),
                                        F32(margin),
                                        I32(ties),
                                        U64(digest),
                                        F64(exp_sum)};
#undef ROW
#define ROW struct ds_packed
static const struct ds_field packed_rows[] = {TEXT(variant), U32(weight), I32(rank), U64(bytes),
                                              U64(digest)};
#undef ROW
#define ROW struct ds_failure
static const struct ds_field failures[] = {U32(how),   U32(site), TEXT(op), TEXT(variant),
                                           U32(phase), U32(call), U32(m),   I32(rows),
                                           I32(first), I32(last), TEXT(why)};
#undef ROW
#define ROW struct ds_tensor_row
static const struct ds_field tensors[] = {U64(digest), TEXT(dtype), U32(elements),
                                          U32(bytes),  U64(first),  U64(check)};
#undef ROW
#define ROW                struct ds_trial_row
#define INFO(kind, member) FIELD_AS(#member, kind, ROW, info.member)
#define RANGE(label, id)                                                                           \
    {"first_" label, DS_FIELD_U64, offsetof(ROW, first) + (id) * sizeof(uint64_t), 8, 1},          \
    {                                                                                              \
        "n_" label, DS_FIELD_U64, offsetof(ROW, count) + (id) * sizeof(uint64_t), 8, 1             \
    }
static const struct ds_field trials[] = {INFO(DS_FIELD_U32, arm),
                                         INFO(DS_FIELD_U32, repeat),
                                         INFO(DS_FIELD_U32, pass),
                                         INFO(DS_FIELD_U32, healed_to),
                                         INFO(DS_FIELD_I32, worker),
                                         INFO(DS_FIELD_U32, earlier_trials),
                                         INFO(DS_FIELD_U32, earlier_calls),
                                         INFO(DS_FIELD_F64, start_s),
                                         INFO(DS_FIELD_F64, wall_s),
                                         INFO(DS_FIELD_F64, cpu_s),
                                         INFO(DS_FIELD_F64, prefill_cpu_s),
                                         INFO(DS_FIELD_F64, decode_cpu_s),
                                         INFO(DS_FIELD_F64, probe_prefill_cpu_s),
                                         INFO(DS_FIELD_F64, probe_decode_cpu_s),
                                         INFO(DS_FIELD_F64, steps_s),
                                         INFO(DS_FIELD_F64, first_median_s),
                                         INFO(DS_FIELD_F64, first_most_s),
                                         INFO(DS_FIELD_I32, threads_asked),
                                         INFO(DS_FIELD_I32, threads_max),
                                         INFO(DS_FIELD_I32, threads_seen),
                                         INFO(DS_FIELD_I32, blas_threads),
                                         INFO(DS_FIELD_TEXT, blas_core),
                                         INFO(DS_FIELD_TEXT, blas_config),
                                         INFO(DS_FIELD_U64, run_digest),
                                         RANGE("calls", DS_TABLE_CALLS),
                                         RANGE("rows", DS_TABLE_ROWS),
                                         RANGE("launch_refs", DS_TABLE_LAUNCH_REFS),
                                         RANGE("captures", DS_TABLE_CAPTURES),
                                         RANGE("digests", DS_TABLE_DIGESTS),
                                         RANGE("drift", DS_TABLE_DRIFT),
                                         RANGE("nonfinite", DS_TABLE_NONFINITE),
                                         RANGE("steps", DS_TABLE_STEPS),
                                         RANGE("packed", DS_TABLE_PACKED),
                                         RANGE("blobs", DS_TABLE_BLOBS),
                                         RANGE("failures", DS_TABLE_FAILURES),
                                         RANGE("ranges", DS_TABLE_RANGES),
                                         RANGE("masks", DS_TABLE_MASKS),
                                         RANGE("mask_words", DS_TABLE_MASK_WORDS),
                                         U64(tensors),
                                         U64(checksum),
                                         U64(row_checksum)};
#undef ROW
#define ROW struct ds_text_row
static const struct ds_field texts_rows[] = {REF(name), REF(value)};
static const struct ds_field factors[] = {REF(name)};
#undef ROW
#define ROW struct ds_record_weight
static const struct ds_field weights[] = {
    TEXT(name),  TEXT(dtype), FIELD(DS_FIELD_U64, ROW, rows), FIELD(DS_FIELD_U64, ROW, cols),
    U64(digest), U64(loaded)};
#undef ROW
#define ROW struct ds_prompt_row
static const struct ds_field prompts[] = {I32(request), REF(text), U64(first_token), U32(n_tokens)};
#undef ROW
#define ROW struct ds_site
static const struct ds_field sites[] = {I32(layer), TEXT(stage), TEXT(part),
                                        TEXT(op),   TEXT(dtype), U32(width)};
#undef ROW
#define ROW struct ds_edge
static const struct ds_field edges[] = {U32(from), U32(to), U32(kind)};
#undef ROW
#define ROW struct ds_arm_row
static const struct ds_field arms[] = {U32(arm), U32(factor), REF(value)};
#undef ROW
#define ROW struct ds_identity
static const struct ds_field identity[] = {
    TEXT(format),  U32(version),     TEXT(tool_version), TEXT(build),
    TEXT(start),   TEXT(model_name), TEXT(model_arch),   U64(model_digest),
    I32(n_layers), I32(n_heads),     I32(n_kv_heads),    I32(head_dim),
    U32(repeats),  U32(n_arms),      REF(command),       U64(header_checksum)};
#undef ROW
static const struct ds_field plain_u8[] = {{"", DS_FIELD_U8, 0, 1, 1}};
static const struct ds_field plain_u32[] = {{"", DS_FIELD_U32, 0, 4, 1}};
static const struct ds_field plain_i32[] = {{"", DS_FIELD_I32, 0, 4, 1}};
static const struct ds_field plain_u64[] = {{"", DS_FIELD_U64, 0, 8, 1}};

#define TABLE(id, label, type, fields, chunk)                                                      \
    [id] = {label, sizeof(type), fields, sizeof(fields) / sizeof(fields)[0], chunk}

/* Chunks are small enough that a tiny record stays tiny, and fill whole pages (record_write.c) as
 * well as their rows allow. Those of digests and tensor_bytes are larger: from 8,176 chunks on,
 * blocks of a table's index are longer than a page, which should not happen below a gigabyte. */
static const struct ds_table tables[DS_TABLES] = {
    TABLE(DS_TABLE_CALLS, "calls", struct ds_call, calls, 170),
    TABLE(DS_TABLE_ROWS, "rows", struct ds_row, rows, 455),
    TABLE(DS_TABLE_LAUNCH_REFS, "launch_refs", uint32_t, plain_u32, 1024),
    TABLE(DS_TABLE_CAPTURES, "captures", struct ds_capture, captures, 1024),
    TABLE(DS_TABLE_DIGESTS, "digests", uint64_t, plain_u64, 16384),
    TABLE(DS_TABLE_DRIFT, "drift", struct ds_drift, drift, 512),
    TABLE(DS_TABLE_NONFINITE, "nonfinite", struct ds_nonfinite, nonfinite, 204),
    TABLE(DS_TABLE_STEPS, "steps", struct ds_step, steps, 78),
    TABLE(DS_TABLE_PACKED, "packed", struct ds_packed, packed_rows, 73),
    TABLE(DS_TABLE_BLOBS, "blobs", uint64_t, plain_u64, 512),
    TABLE(DS_TABLE_FAILURES, "failures", struct ds_failure, failures, 15),
    TABLE(DS_TABLE_RANGES, "ranges", struct ds_range, ranges, 341),
    TABLE(DS_TABLE_MASKS, "masks", struct ds_mask, masks, 127),
    TABLE(DS_TABLE_MASK_WORDS, "mask_words", uint64_t, plain_u64, 2048),
    TABLE(DS_TABLE_LAUNCHES, "launches", struct ds_launch, launches, 40),
    TABLE(DS_TABLE_TENSORS, "tensors", struct ds_tensor_row, tensors, 204),
    TABLE(DS_TABLE_TENSOR_BYTES, "tensor_bytes", uint8_t, plain_u8, 131072),
    TABLE(DS_TABLE_TRIALS, "trials", struct ds_trial_row, trials, 8),
    TABLE(DS_TABLE_TEXTS, "texts", uint8_t, plain_u8, 0),
    TABLE(DS_TABLE_ENVIRONMENT, "environment", struct ds_text_row, texts_rows, 0),
    TABLE(DS_TABLE_HPARAMS, "hparams", struct ds_text_row, texts_rows, 0),
    TABLE(DS_TABLE_OPTIONS, "options", struct ds_text_row, texts_rows, 0),
    TABLE(DS_TABLE_WEIGHTS, "weights", struct ds_record_weight, weights, 0),
    TABLE(DS_TABLE_PROMPTS, "prompts", struct ds_prompt_row, prompts, 0),
    TABLE(DS_TABLE_PROMPT_TOKENS, "prompt_tokens", int32_t, plain_i32, 0),
    TABLE(DS_TABLE_SITES, "sites", struct ds_site, sites, 0),
    TABLE(DS_TABLE_EDGES, "edges", struct ds_edge, edges, 0),
    TABLE(DS_TABLE_FACTORS, "factors", struct ds_text_row, factors, 0),
    TABLE(DS_TABLE_ARMS, "arms", struct ds_arm_row, arms, 0),
    TABLE(DS_TABLE_IDENTITY, "identity", struct ds_identity, identity, 0),
};

const struct ds_table *ds_table(int id)
{
    return &tables[id];
}

size_t ds_table_bytes(int id)
{
    size_t bytes = 0;
    for (size_t i = 0; i < tables[id].n_fields; i++)
        bytes += tables[id].fields[i].bytes;
    return bytes;
}

/* The struct is the packed row, byte for byte, and has no text that must be trimmed. */
static int lies_packed(const struct ds_table *t)
{
    size_t at = 0;
    for (size_t i = 0; i < t->n_fields; i++) {
        if (t->fields[i].offset != at || t->fields[i].kind == DS_FIELD_TEXT)
            return 0;
        at += t->fields[i].bytes;
    }
    return at == t->struct_bytes;
}

void ds_table_pack(int id, void *packed, const void *structs, size_t n)
{
    const struct ds_table *t = &tables[id];
    char *to = packed;
    if (lies_packed(t)) {
        if (n)
            memcpy(packed, structs, n * t->struct_bytes);
        return;
    }
    for (size_t row = 0; row < n; row++) {
        const char *from = (const char *)structs + row * t->struct_bytes;
        for (size_t i = 0; i < t->n_fields; i++) {
            const struct ds_field *f = &t->fields[i];
            size_t bytes =
                f->kind == DS_FIELD_TEXT ? strnlen(from + f->offset, f->bytes) : f->bytes;
            memcpy(to, from + f->offset, bytes);
            memset(to + bytes, 0, f->bytes - bytes);
            to += f->bytes;
        }
    }
}

void ds_table_unpack(int id, void *structs, const void *packed, size_t n)
{
    const struct ds_table *t = &tables[id];
    const char *from = packed;
    if (lies_packed(t)) {
        if (n)
            memcpy(structs, packed, n * t->struct_bytes);
        return;
    }
    for (size_t row = 0; row < n; row++) {
        char *to = (char *)structs + row * t->struct_bytes;
        for (size_t i = 0; i < t->n_fields; i++) {
            const struct ds_field *f = &t->fields[i];
            memcpy(to + f->offset, from, f->bytes);
            if (f->kind == DS_FIELD_TEXT)
                to[f->offset + f->bytes - 1] = '\0';
            from += f->bytes;
        }
    }
}

/* ---- checksums ------------------------------------------------------------------------------- */

uint64_t ds_checksum_bytes(const void *bytes, size_t n)
{
    return ds_hash(bytes, n);
}

uint64_t ds_checksum_parts(const struct ds_part *parts, size_t n)
{
    static_assert(sizeof *parts == 16, "parts are hashed as they lie");
    return ds_hash(parts, n * sizeof *parts);
}

/* ---- the map: open addressing, at most half full --------------------------------------------- */

struct ds_map_slot {
    struct ds_map_key key;
    int taken;
    uint64_t value;
};

static struct ds_map_slot *find_slot(struct ds_map_slot *slots, size_t cap,
                                     const struct ds_map_key *key)
{
    uint64_t mix = (key->low ^ (key->high * 0x9e3779b97f4a7c15u)) +
                   key->count * 0xc2b2ae3d27d4eb4fu + key->table;
    mix ^= mix >> 29;
    for (size_t i = (size_t)mix & (cap - 1);; i = (i + 1) & (cap - 1)) {
        const struct ds_map_key *k = &slots[i].key;
        if (!slots[i].taken || (k->low == key->low && k->high == key->high &&
                                k->count == key->count && k->table == key->table))
            return &slots[i];
    }
}

const uint64_t *ds_map_get(const struct ds_map *m, const struct ds_map_key *key)
{
    if (!m->cap)
        return NULL;
    struct ds_map_slot *s = find_slot(m->slots, m->cap, key);
    return s->taken ? &s->value : NULL;
}

int ds_map_put(struct ds_map *m, const struct ds_map_key *key, uint64_t value, struct ds_error *err)
{
    if (2 * (m->used + 1) > m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 64;
        struct ds_map_slot *slots = ds_calloc(cap, sizeof *slots, "map of stored blocks", err);
        if (!slots)
            return -1;
        for (size_t i = 0; i < m->cap; i++)
            if (m->slots[i].taken)
                *find_slot(slots, cap, &m->slots[i].key) = m->slots[i];
        free(m->slots);
        m->slots = slots;
        m->cap = cap;
    }
    struct ds_map_slot *s = find_slot(m->slots, m->cap, key);
    m->used += !s->taken;
    s->key = *key;
    s->taken = 1;
    s->value = value;
    return 0;
}

void ds_map_free(struct ds_map *m)
{
    free(m->slots);
    memset(m, 0, sizeof *m);
}

struct ds_map_key ds_map_content(int table, const void *bytes, size_t n, uint64_t count)
{
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    struct ds_map_key key = {h.low64, h.high64, count, (uint32_t)table};
    return key;
}
