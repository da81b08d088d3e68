/* fuzz_record.c: damaged records. The input is a list of edits of a small record that is made at
 * the start: opening, verifying, the verdict and a copy of what is left must end in a message or in
 * what the sound record says, never in a crash or a hang.
 *
 * An edit is five bytes: two of place in units of one 65536th of the file, one of offset from
 * there, one that says how, one of value. */
#include "dumps/verdict.h"
#include "tests/unit/dumps/record_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEED = 11, TRIALS = 3, SCALE = 1 };

static char *sound;
static size_t sound_size;
static char folder[] = "/tmp/driftscope-fuzz-XXXXXX";
static char base[64], mutated[64];

static void clean(void)
{
    unlink(base);
    unlink(mutated);
    rmdir(folder);
}

static void load(void)
{
    if (!mkdtemp(folder))
        abort();
    atexit(clean);
    snprintf(base, sizeof base, "%s/base.h5", folder);
    snprintf(mutated, sizeof mutated, "%s/mutated.h5", folder);
    fixture_record(base, SEED, TRIALS, SCALE);
    sound = file_read(base, &sound_size);
    if (sound_size < 5000)
        abort();
}

static size_t edit(char *file, size_t size, const uint8_t *e)
{
    size_t at = (size_t)((e[0] << 8 | e[1]) * (uint64_t)sound_size / 65536 + e[2]);
    if (at >= size)
        return size;
    switch (e[3] % 8) {
    case 0:
        return at; /* cut */
    case 1:        /* a hole, as where a block never reached the file */
        memset(file + at, 0, size - at < 512 ? size - at : 512);
        break;
    case 2: { /* another place's bytes */
        size_t from = e[4] * sound_size / 256, n = size - at < 256 ? size - at : 256;
        if (from + n <= size)
            memmove(file + at, file + from, n);
        break;
    }
    case 3:
        memset(file + at, 0xff, size - at < 8 ? size - at : 8);
        break;
    default:
        file[at] = (char)(file[at] ^ (e[4] ? e[4] : 1));
    }
    return size;
}

/* What survived must be what was written: no silently wrong trial. */
static void check_trial(struct ds_record *r, size_t i)
{
    struct ds_error err = {{0}, {0}};
    const struct ds_trial_data *t = ds_record_load(r, i, &err);
    if (!t) {
        if (!err.msg[0])
            abort();
        return;
    }
    for (uint32_t n = 0; n < TRIALS; n++) {
        struct ds_trial_data want;
        fixture_trial(SEED, n, SCALE, &want);
        int same = trial_difference(&want, t) == NULL;
        ds_trial_data_free(&want);
        if (same)
            return;
    }
    abort();
}

/* In whichever way it is met, damage is a list and no error. */
static size_t check_damages(struct ds_record *r,
                            int (*verify)(struct ds_record *, struct ds_error *))
{
    struct ds_error err = {{0}, {0}};
    struct ds_damage *list;
    size_t n, rows = 0;
    if (verify(r, &err) != 0 || ds_record_damages(r, &list, &n, &err) != 0)
        abort();
    for (size_t i = 0; i < n; i++)
        rows += list[i].dumped != 0;
    free(list);
    return rows;
}

/* Rows that are found bent in the order of trials are, in the order of the file. */
static void check_both_orders(void)
{
    struct ds_error err = {{0}, {0}};
    struct ds_record *r;
    size_t rows[2];
    for (int way = 0; way < 2; way++) {
        if (ds_record_open(mutated, &r, &err) != 0)
            return;
        rows[way] = check_damages(r, way ? ds_record_verify_rest : ds_record_verify);
        ds_record_close(r);
    }
    if ((rows[0] != 0) && (rows[1] == 0))
        abort();
}

static void read_record(void)
{
    struct ds_error err = {{0}, {0}};
    struct ds_record *r;
    if (ds_record_open(mutated, &r, &err) != 0) {
        if (!err.msg[0])
            abort();
        return;
    }
    check_damages(r, ds_record_verify);
    if (ds_record_trial_count(r) + ds_record_incomplete(r) + ds_record_damaged(r) > 4 * TRIALS)
        abort();
    for (size_t i = 0; i < ds_record_trial_count(r); i++)
        check_trial(r, i);
    struct ds_source s;
    struct ds_verdict v;
    ds_source_record(&s, r);
    if (ds_verdict_make(&s, &v, &err) == 0)
        ds_verdict_free(&v);
    ds_record_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!sound)
        load();
    char *file = malloc(sound_size);
    if (!file)
        return 0;
    memcpy(file, sound, sound_size);
    size_t left = sound_size;
    for (size_t i = 0; i + 5 <= size && i < 20; i += 5)
        left = edit(file, left, data + i);
    file_write(mutated, file, left);
    free(file);
    read_record();
    if (size && data[0] % 4 == 0) /* it takes as long again */
        check_both_orders();
    return 0;
}
