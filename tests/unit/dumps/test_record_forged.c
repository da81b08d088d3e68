/* test_record_forged.c: records changed through HDF5 itself, so that all of the library's own
 * checksums are right: links, foreign storage, other types, absurd extents, rows that point to
 * where nothing is. None may be believed, followed or unfolded. */
#include "tests/unit/dumps/record_fixture.h"

#include "dumps/record_layout.h"

#include <hdf5.h>

enum { SEED = 4242, SCALE = 6 };

/* Each forger changes an open, sound record through HDF5 itself, so that all of the library's
 * checksums are right. */
static void forge_missing(hid_t f)
{
    H5Ldelete(f, "edges", H5P_DEFAULT);
}

static void forge_soft_link(hid_t f)
{
    H5Ldelete(f, "edges", H5P_DEFAULT);
    H5Lcreate_soft("/sites", f, "edges", H5P_DEFAULT, H5P_DEFAULT);
}

static void forge_external_link(hid_t f)
{
    H5Ldelete(f, "digests", H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/digests", f, "digests", H5P_DEFAULT, H5P_DEFAULT);
}

static void forge_group(hid_t f)
{
    H5Ldelete(f, "texts", H5P_DEFAULT);
    H5Gclose(H5Gcreate2(f, "texts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

static void replace(hid_t f, const char *name, hid_t type, int rank, const hsize_t *dims,
                    const hsize_t *max, hid_t plist)
{
    H5Ldelete(f, name, H5P_DEFAULT);
    hid_t space = H5Screate_simple(rank, dims, max);
    hid_t d = H5Dcreate2(f, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (d >= 0)
        H5Dclose(d);
    H5Sclose(space);
}

static void forge_rank(hid_t f)
{
    hsize_t dims[2] = {10, 10};
    replace(f, "digests", H5T_STD_U64LE, 2, dims, NULL, H5P_DEFAULT);
}

static void forge_type(hid_t f)
{
    hsize_t dims[1] = {10};
    replace(f, "digests", H5T_STD_U32LE, 1, dims, NULL, H5P_DEFAULT);
}

static void forge_vlen(hid_t f)
{
    hsize_t dims[1] = {10};
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    replace(f, "texts", type, 1, dims, NULL, H5P_DEFAULT);
    H5Tclose(type);
}

static hid_t chunked(hsize_t chunk)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 1, &chunk);
    return plist;
}

/* 2^60 prompt tokens of which none exists. */
static void forge_extent(hid_t f)
{
    hsize_t dims[1] = {(hsize_t)1 << 60}, max[1] = {H5S_UNLIMITED};
    replace(f, "prompt_tokens", H5T_STD_I32LE, 1, dims, max, chunked(1000));
}

static void forge_chunk(hid_t f)
{
    hsize_t dims[1] = {1000}, max[1] = {H5S_UNLIMITED};
    replace(f, "digests", H5T_STD_U64LE, 1, dims, max, chunked(500000000));
}

static void forge_shuffle(hid_t f)
{
    hsize_t dims[1] = {1000}, max[1] = {H5S_UNLIMITED};
    hid_t plist = chunked(100);
    H5Pset_shuffle(plist);
    replace(f, "digests", H5T_STD_U64LE, 1, dims, max, plist);
}

static void forge_external_storage(hid_t f)
{
    hsize_t dims[1] = {10};
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(plist, "/etc/passwd", 0, 80);
    replace(f, "digests", H5T_STD_U64LE, 1, dims, NULL, plist);
}

static void forge_virtual(hid_t f)
{
    hsize_t dims[1] = {10};
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, NULL);
    H5Pset_virtual(plist, space, "/etc/passwd", "/digests", space);
    replace(f, "digests", H5T_STD_U64LE, 1, dims, NULL, plist);
}

/* A deflated table is as good as a plain one. */
static void forge_deflate(hid_t f)
{
    hid_t old = H5Dopen2(f, "digests", H5P_DEFAULT), space = H5Dget_space(old),
          plist = chunked(100);
    hsize_t dims[1] = {0}, max[1] = {H5S_UNLIMITED};
    H5Sget_simple_extent_dims(space, dims, NULL);
    uint64_t *digests = calloc(dims[0] + 1, sizeof *digests);
    H5Dread(old, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, digests);
    H5Dclose(old);
    H5Sclose(space);
    H5Pset_deflate(plist, 6);
    replace(f, "digests", H5T_STD_U64LE, 1, dims, max, plist);
    hid_t d = H5Dopen2(f, "digests", H5P_DEFAULT);
    H5Dwrite(d, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, digests);
    H5Dclose(d);
    free(digests);
}

static void set_attribute(hid_t f, const char *name, hid_t type, const void *value)
{
    hid_t a = H5Aopen(f, name, H5P_DEFAULT);
    H5Awrite(a, type, value);
    H5Aclose(a);
}

static void forge_version(hid_t f)
{
    uint32_t version = DS_RECORD_VERSION + 1;
    set_attribute(f, "version", H5T_NATIVE_UINT32, &version);
}

static void forge_arms(hid_t f)
{
    uint32_t arms = 4000000000u;
    set_attribute(f, "n_arms", H5T_NATIVE_UINT32, &arms);
}

static void forge_attribute_type(hid_t f)
{
    H5Adelete(f, "model_digest");
    hid_t space = H5Screate(H5S_SCALAR);
    H5Aclose(H5Acreate2(f, "model_digest", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
}

static void forge_no_format(hid_t f)
{
    H5Adelete(f, "format");
}

static void forge(const char *path, void (*change)(hid_t f))
{
    fixture_record(path, SEED, 2, SCALE);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, access);
    assert_true(f >= 0);
    change(f);
    assert_true(H5Fclose(f) >= 0);
    H5Pclose(access);
}

static void test_forged_objects_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(hid_t f);
        const char *says;
    } cases[] = {
        {forge_missing, "/edges: is missing"},
        {forge_soft_link, "/edges: is a link"},
        {forge_external_link, "/digests: is a link"},
        {forge_group, "/texts: is not a table"},
        {forge_rank, "/digests: is not a one-dimensional"},
        {forge_type, "/digests: its fields"},
        {forge_vlen, "/texts: its fields"},
        {forge_extent, "/prompt_tokens: claims"},
        {forge_chunk, "/digests: chunks of 500000000"},
        {forge_shuffle, "/digests: a filter"},
        {forge_external_storage, "/digests: its storage is external"},
        {forge_virtual, "/digests: a virtual"},
        {forge_version, "version 3"},
        {forge_arms, "checksum"},
        {forge_attribute_type, "attribute model_digest"},
        {forge_no_format, "no attribute format"},
    };
    const char *path = fixture_path("forged.h5");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err = {"", ""};
        struct ds_record *r = NULL;
        alarm(HANG_SECONDS);
        forge(path, cases[i].change);
        assert_int_equal(ds_record_open(path, &r, &err), -1);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("case %zu: %s", i, err.msg);
        unlink(path);
    }
    forge(path, forge_deflate);
    struct reading got = read_everything(path, SEED, SCALE);
    assert_int_equal(got.good, 2);
    assert_int_equal(got.bad + got.damaged + got.incomplete, 0);
    unlink(path);
    alarm(0);
}

/* Rows with right checksums that point to where nothing is, or that overlap: forged through the
 * layout itself. */
static void test_forged_rows_are_not_believed(void **state)
{
    (void)state;
    const char *path = fixture_path("forged.h5");
    size_t n, bytes = ds_table_bytes(DS_TABLE_TRIALS);
    struct ds_record *r;
    struct ds_error err;
    for (int variant = 0; variant < 6; variant++) {
        struct ds_trial_row row;
        struct ds_trial info;
        char packed[1024];
        fixture_record(path, SEED, 3, SCALE);
        assert_ok(ds_record_open(path, &r, &err), err);
        info = *ds_record_trial(r, 1);
        ds_record_close(r);
        char *file = file_read(path, &n), *at = NULL;
        /* The row of trial 1 is found by the run digest in it. */
        for (size_t k = 0; k + bytes <= n && !at; k++) {
            ds_table_unpack(DS_TABLE_TRIALS, &row, file + k, 1);
            if (row.info.run_digest == info.run_digest && row.info.arm == info.arm)
                at = file + k;
        }
        assert_non_null(at);
        if (variant == 0)
            row.count[DS_TABLE_DIGESTS] = (uint64_t)1 << 61;
        if (variant == 1)
            row.first[DS_TABLE_CAPTURES] = UINT64_MAX;
        if (variant == 2)
            row.first[DS_TABLE_DIGESTS] -= 1;
        if (variant == 3)
            row.info.arm = FIXTURE_ARMS;
        if (variant >= 4) {
            row.info.pass = variant == 4 ? DS_PASS_HEAL : DS_PASS_NATURAL;
            row.info.healed_to = variant == 4 ? FIXTURE_ARMS : 1;
        }
        ds_table_pack(DS_TABLE_TRIALS, packed, &row, 1);
        row.row_checksum = ds_checksum_bytes(packed, bytes - 8);
        ds_table_pack(DS_TABLE_TRIALS, at, &row, 1);
        file_write(path, file, n);
        struct reading got = read_everything(path, SEED, SCALE);
        assert_int_equal(got.opened, 1);
        assert_int_equal(got.good, 2);
        assert_int_equal(got.incomplete + got.damaged, 1);
        free(file);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forged_objects_are_refused),
        cmocka_unit_test(test_forged_rows_are_not_believed),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
