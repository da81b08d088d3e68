/* record_read.h: an open record, shared by record_read.c (opening), record_objects.c (tables) and
 * record_load.c (trials and dumped rows). */
#ifndef DS_RECORD_READ_H
#define DS_RECORD_READ_H

#include "dumps/record_h5.h"

/* One stored block of a table, unpacked, shared by all trials that point to it. */
struct ds_block {
    void *structs; /* NULL: let go of */
    uint64_t hash; /* XXH3-64 of its packed bytes */
    uint64_t bytes;
    size_t users; /* loaded trials that point to it */
};

struct ds_trial_slot {
    struct ds_trial_row row;
    struct ds_trial_data *data; /* NULL until loaded; its arrays belong to the blocks */
    const uint64_t *blobs; /* digests of the rows it dumped, row.count[DS_TABLE_BLOBS] of them */
    int damaged;           /* its tables do not have their checksum */
    int rows_damaged;      /* nor some row that it dumped its digest */
};

/* A dumped row that could not be believed. */
struct ds_bad_row {
    uint64_t digest, found; /* found 0: there was nothing to take a digest of */
    const char *why;
};

struct ds_record {
    char *path;
    hid_t file, dataset[DS_STORED], type[DS_STORED];
    uint64_t length[DS_STORED]; /* rows that may be asked for: the extent, but never more than the
                                   file's size backs */
    uint64_t device, inode;     /* of the file that is open */
    struct ds_header header;
    uint64_t header_checksum;
    struct ds_trial_slot *trials;
    size_t n_trials, incomplete, damaged;
    uint64_t tensors_needed; /* rows of /tensors that the complete trials rely on */

    struct ds_map block_at; /* (table, first, count) -> index in blocks */
    struct ds_block *blocks;
    size_t n_blocks, blocks_cap;
    uint64_t loaded;            /* bytes of them that are in memory */
    struct ds_launch *launches; /* all of /launches, and their packed bytes; NULL until needed */
    char *launches_packed;
    char *tensors; /* all of /tensors, packed; NULL until needed */
    uint64_t *
        tensor_at; /* [tensor_mask + 1] half of a digest's hash and 1 + its row, by open addressing; 0 = free */
    uint64_t tensor_mask;
    /* [rows of /tensors] side by side: a list is looked through in a cache. */
    uint64_t *tensor_digests;
    uint8_t *held; /* [held_cap] 1: the bytes of this row were seen to have its digest */
    size_t held_cap;
    uint64_t tensor_next;  /* the row after the last that was found */
    unsigned tensor_jumps; /* how often it was not the next that was asked for */
    int tensors_damaged;
    struct ds_bad_row *bad; /* each once, as they were met */
    size_t n_bad, bad_cap;
    struct ds_map bad_at; /* digest -> index in bad */
    struct {              /* rows of /tensor_bytes that were read last */
        void *bytes;
        uint64_t first, n, most, cap; /* most: that may be kept; cap: room */
    } ahead;
    int claim; /* descriptor that holds the mark of ds_record_claim; -1 */
};

/* 0: there is no such file. */
uint64_t ds_record_file_size(const char *path);
/* Opens a table, as hostile input, and finds how many rows of it there may be. */
int ds_record_open_table(struct ds_record *r, int id, struct ds_error *err);
/* Reads n packed rows of a stored table. NULL with err; *damage tells a damaged file from want of
 * memory. */
void *ds_record_rows(struct ds_record *r, int id, uint64_t first, uint64_t n, int *damage,
                     struct ds_error *err);
/* The same into memory that has room for them; 0 or -1. */
int ds_record_rows_into(struct ds_record *r, int id, uint64_t first, uint64_t n, void *packed,
                        int *damage, struct ds_error *err);

/* ds_record_blob, which also tells a damaged file from want of memory. */
int ds_record_find_blob(struct ds_record *r, uint64_t digest, struct ds_blob *out, int *damage,
                        struct ds_error *err);
/* Holds every dumped row that complete trials rely on against its digest; what does not have it is noted. 1: there
 * is no list of them to be read. -1 only when the machine fails. */
int ds_record_hold_rows(struct ds_record *r, struct ds_error *err);
/* Lets go of `held`. */
void ds_record_forget_held(struct ds_record *r);
/* Keeps in mind that a dumped row cannot be believed. */
void ds_record_note_row(struct ds_record *r, uint64_t digest, uint64_t found, const char *why);

#endif
