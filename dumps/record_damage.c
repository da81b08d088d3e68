/* record_damage.c: what of an open record does not have its digest or checksum, and where it belongs.
 * Reading notes what it meets; verifying reads everything, so that all of it is met. */
#include "dumps/record_read.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static struct ds_map_key bad_key(uint64_t digest)
{
    return (struct ds_map_key){digest, 0, 0, 0};
}

void ds_record_note_row(struct ds_record *r, uint64_t digest, uint64_t found, const char *why)
{
    const struct ds_map_key key = bad_key(digest);
    struct ds_error ignored; /* without memory the reader's error is all that is told */
    if (ds_map_get(&r->bad_at, &key) ||
        ds_grow(&r->bad, &r->bad_cap, r->n_bad + 1, sizeof *r->bad, "damaged rows", &ignored) !=
            0 ||
        ds_map_put(&r->bad_at, &key, r->n_bad, &ignored) != 0)
        return;
    r->bad[r->n_bad++] = (struct ds_bad_row){digest, found, why};
}

/* Reads what trial i dumped, each row of the record once. */
static int verify_rows(struct ds_record *r, size_t i, struct ds_map *sound, struct ds_error *err)
{
    for (uint64_t k = 0; k < r->trials[i].row.count[DS_TABLE_BLOBS]; k++) {
        const uint64_t digest = r->trials[i].blobs[k];
        const struct ds_map_key key = bad_key(digest);
        struct ds_blob blob = {0};
        int damage = 0;
        if (ds_map_get(sound, &key))
            continue;
        int found = ds_map_get(&r->bad_at, &key) ? -1 : 0;
        damage = found < 0;
        if (!damage)
            found = ds_record_find_blob(r, digest, &blob, &damage, err);
        free(blob.data);
        if (found < 0 && !damage)
            return -1;
        if (found == 1 && ds_map_put(sound, &key, 1, err) != 0)
            return -1;
        if (found == 1)
            continue;
        ds_record_note_row(r, digest, 0, "it is not in /tensors, or its entry there is damaged");
        r->trials[i].rows_damaged = 1;
    }
    return 0;
}

int ds_record_verify(struct ds_record *r, struct ds_error *err)
{
    struct ds_map sound = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n_trials; i++) {
        if (ds_record_load(r, i, err))
            rc = verify_rows(r, i, &sound, err);
        else
            rc = r->trials[i].damaged ? 0 : -1;
    }
    ds_map_free(&sound);
    return rc;
}

int ds_record_verify_rest(struct ds_record *r, struct ds_error *err)
{
    for (size_t i = 0; i < r->n_trials; i++) {
        if (r->trials[i].data || r->trials[i].damaged)
            continue;
        if (ds_record_load(r, i, err))
            ds_record_forget(r, i, DS_FORGET_ALL);
        else if (!r->trials[i].damaged)
            return -1;
    }
    const int rc = ds_record_hold_rows(r, err);
    return rc > 0 ? ds_record_verify(r, err) : rc; /* trials know what they dumped */
}

int ds_record_sound(const struct ds_record *r, size_t i)
{
    return i < r->n_trials && !r->trials[i].damaged && !r->trials[i].rows_damaged;
}

/* Finds the rows of a trial that have one of the bad digests. */
static void place_rows(const struct ds_record *r, size_t i, struct ds_damage *list)
{
    const struct ds_trial_data *t = r->trials[i].data;
    for (size_t c = 0; c < t->n_captures; c++)
        for (uint32_t k = 0; k < t->captures[c].rows; k++) {
            const struct ds_map_key key = bad_key(t->digests[t->captures[c].first_digest + k]);
            const uint64_t *at = ds_map_get(&r->bad_at, &key);
            if (!at)
                continue;
            const struct ds_row *row = &t->rows[t->captures[c].first_row + k];
            struct ds_damage *x = &list[*at];
            if (x->rows++ > 0)
                continue;
            x->trial = i;
            x->site = t->captures[c].site;
            x->request = row->request;
            x->position = row->position;
            x->occurrence = row->occurrence;
        }
}

/* The same of all trials; of one that is not loaded only for now. */
static int place_in_trials(struct ds_record *r, struct ds_damage *list, struct ds_error *err)
{
    for (size_t i = 0; i < r->n_trials; i++) {
        const int kept = r->trials[i].data != NULL;
        if (r->trials[i].damaged)
            continue;
        if (!ds_record_load(r, i, err)) {
            if (!r->trials[i].damaged)
                return -1;
            continue;
        }
        place_rows(r, i, list);
        if (!kept)
            ds_record_forget(r, i, DS_FORGET_ALL);
    }
    return 0;
}

static void name_trials(const struct ds_record *r, struct ds_damage *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ds_trial *t = ds_record_trial(r, list[i].trial);
        if (!t)
            continue;
        list[i].arm = t->arm;
        list[i].repeat = t->repeat;
        list[i].pass = t->pass;
    }
}

int ds_record_damages(struct ds_record *r, struct ds_damage **out, size_t *n, struct ds_error *err)
{
    struct ds_damage *list = ds_calloc(r->n_bad + r->n_trials, sizeof *list, "damage", err);
    *out = NULL;
    *n = 0;
    if (!list)
        return -1;
    for (; *n < r->n_bad; ++*n)
        list[*n] = (struct ds_damage){.dumped = 1,
                                      .trial = SIZE_MAX,
                                      .digest = r->bad[*n].digest,
                                      .found = r->bad[*n].found,
                                      .why = r->bad[*n].why};
    if (r->n_bad && place_in_trials(r, list, err) != 0) {
        free(list);
        return -1;
    }
    for (size_t i = 0; i < r->n_trials; i++)
        if (r->trials[i].damaged)
            list[(*n)++] =
                (struct ds_damage){.trial = i, .why = "its tables have another checksum"};
    name_trials(r, list, *n);
    *out = list;
    return 0;
}
