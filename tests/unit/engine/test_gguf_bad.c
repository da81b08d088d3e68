/* test_gguf_bad.c: GGUF files that are cut, wrong or hostile: refused with the file and the field
 * named, never a crash. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/gguf.h"
#include "tests/unit/engine/gguf_builder.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA     "tests/data/gguf/"
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
        fail();
    }
}

/* Opens bytes that must be refused; the message must name the file and hold `part`. */
static void refuse(const unsigned char *bytes, size_t size, const char *part)
{
    struct ds_gguf *g = NULL;
    struct ds_error err = {0};
    if (ds_gguf_open_bytes(bytes, size, "bad.gguf", &g, &err) != -1) {
        print_error("accepted, but \"%s\" was expected\n", part);
        ds_gguf_close(g);
        fail();
    }
    assert_null(g);
    assert_true(strncmp(err.msg, "bad.gguf: ", 10) == 0);
    assert_has(err.msg, part);
}

static void test_cut_at_every_byte_is_refused(void **state)
{
    (void)state;
    size_t size = 0, end = 0;
    unsigned char *bytes = read_file(DATA "tiny.gguf", &size);
    assert_non_null(bytes);
    struct ds_gguf *g;
    struct ds_error err = {0};
    assert_ok(ds_gguf_open_bytes(bytes, size, "tiny", &g, &err), err);
    for (size_t i = 0; i < ds_gguf_tensor_count(g); i++) {
        const struct ds_gguf_tensor *t = ds_gguf_tensor_at(g, i);
        size_t last = (size_t)((const unsigned char *)t->data - bytes) + t->bytes;
        end = last > end ? last : end;
    }
    ds_gguf_close(g);
    assert_true(end > 30000 && end <= size);
    for (size_t n = 0; n < end; n++) {
        unsigned char *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        refuse(cut, n, n == 0 ? "empty" : "");
        free(cut);
    }
    free(bytes);
}

static void test_any_byte_may_be_wrong(void **state)
{
    (void)state;
    static const char *const files[] = {DATA "tiny.gguf", DATA "meta.gguf"};
    int accepted = 0, refused = 0;
    for (size_t f = 0; f < COUNT(files); f++) {
        size_t size = 0;
        unsigned char *bytes = read_file(files[f], &size);
        assert_non_null(bytes);
        for (size_t i = 0; i < size && i < 2200; i++)
            for (int kind = 0; kind < 4; kind++) {
                unsigned char was = bytes[i];
                bytes[i] = kind == 0   ? 0xff
                           : kind == 1 ? 0
                           : kind == 2 ? was ^ 0x80
                                       : (unsigned char)(was + 1);
                struct ds_gguf *g = NULL;
                struct ds_error err = {0};
                if (ds_gguf_open_bytes(bytes, size, "flipped", &g, &err) == 0)
                    accepted++;
                else
                    refused++;
                assert_true(g || err.msg[0]);
                ds_gguf_close(g);
                bytes[i] = was;
            }
        free(bytes);
    }
    assert_true(accepted > 100 && refused > 100);
}

static void nested(struct builder *b, int depth)
{
    add_key(b, "deep", DS_GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        put(&b->meta, DS_GGUF_ARRAY, 4);
        put(&b->meta, 1, 8);
    }
    put(&b->meta, DS_GGUF_U8, 4);
    put(&b->meta, 2, 8);
    put(&b->meta, 0x0201, 2);
}

static void test_nested_arrays(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 8; depth++) {
        struct builder b = {0};
        nested(&b, depth);
        add_u32(&b, "after", 5);
        size_t size = 0;
        unsigned char *bytes = finish(&b, &size);
        struct ds_gguf *g;
        struct ds_error err = {0};
        assert_ok(ds_gguf_open_bytes(bytes, size, "nested", &g, &err), err);
        uint64_t v = 0;
        assert_int_equal(ds_gguf_get_u64(g, "after", &v, &err), 1);
        assert_int_equal(v, 5);
        int64_t *values;
        size_t count;
        int rc = ds_gguf_array_i64(g, "deep", &values, &count, &err);
        assert_int_equal(rc, depth == 1 ? 1 : -1);
        if (rc == 1)
            free(values);
        ds_gguf_close(g);
        free(bytes);
    }
    struct builder b = {0};
    nested(&b, 100000);
    size_t size = 0;
    unsigned char *bytes = finish(&b, &size);
    refuse(bytes, size, "metadata key \"deep\" holds arrays nested more than 8 deep");
    free(bytes);
}

/* One wrong thing each. The builder makes a file with one key and one f32 tensor [8] unless the
 * case says otherwise. */
static void case_array(struct builder *b, uint32_t elem, uint64_t count)
{
    add_key(b, "k", DS_GGUF_ARRAY);
    put(&b->meta, elem, 4);
    put(&b->meta, count, 8);
}

static void case_info(struct builder *b, uint32_t type, uint32_t n_dims, uint64_t d0, uint64_t d1,
                      uint64_t offset)
{
    uint64_t dims[8] = {d0, d1, 1, 1, 1, 1, 1, 1};
    add_info(b, "w", type, n_dims, dims, offset);
    for (int i = 0; i < 64; i++)
        put(&b->data, (uint64_t)i, 1);
}

static void build_case(struct builder *b, int which)
{
    uint64_t huge = UINT64_MAX, dims[1] = {8};
    switch (which) {
    case 0:
        case_array(b, DS_GGUF_U8, huge);
        break;
    case 1:
        case_array(b, DS_GGUF_STRING, huge / 8);
        break;
    case 2:
        case_array(b, DS_GGUF_ARRAY, (uint64_t)1 << 61);
        break;
    case 3:
        case_array(b, DS_GGUF_F64, (uint64_t)1 << 61);
        break;
    case 4:
        case_array(b, 13, 0);
        break;
    case 5:
        add_key(b, "k", 13);
        put(&b->meta, 0, 8);
        break;
    case 6:
        add_key(b, "k", DS_GGUF_STRING);
        put(&b->meta, huge, 8);
        break;
    case 7:
        add_key(b, "k", DS_GGUF_BOOL);
        put(&b->meta, 2, 1);
        break;
    case 8:
        add_u32(b, "k", 1);
        add_u32(b, "k2", 1);
        add_u32(b, "k", 1);
        break;
    case 9:
        add_u32(b, "", 1);
        break;
    case 10:
        add_u32(b, "a\033[2J", 1);
        break;
    case 11:
        put(&b->meta, huge - 3, 8);
        put(&b->meta, 0, 8);
        b->n_meta++;
        break;
    case 12:
        add_info(b, "w", 0, 1, dims, 0);
        add_info(b, "w", 0, 1, dims, 0);
        for (int i = 0; i < 64; i++)
            put(&b->data, 0, 1);
        break;
    case 13:
        case_info(b, 0, 0, 1, 1, 0);
        break;
    case 14:
        case_info(b, 0, 5, 1, 1, 0);
        break;
    case 15:
        case_info(b, 0, huge & 0xffffffffu, 1, 1, 0);
        break;
    case 16:
        case_info(b, 0, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 0);
        break;
    case 17:
        case_info(b, 0, 1, (uint64_t)1 << 62, 1, 0);
        break;
    case 18:
        case_info(b, 0, 2, 8, 0, 0);
        break;
    case 19:
        case_info(b, 3, 1, 48, 1, 0);
        break;
    case 20:
        case_info(b, 4, 1, 32, 1, 0);
        break;
    case 21:
        case_info(b, 0xffffffffu, 1, 32, 1, 0);
        break;
    case 22:
        case_info(b, 0, 1, 8, 1, 40);
        break;
    case 23:
        case_info(b, 0, 1, 8, 1, 64);
        break;
    case 24:
        case_info(b, 0, 1, 8, 1, huge & ~(uint64_t)31);
        break;
    case 25:
        case_info(b, 0, 1, 17, 1, 0);
        break;
    case 26:
        add_u32(b, "general.alignment", 24);
        break;
    case 27:
        add_u32(b, "general.alignment", 0);
        break;
    case 28:
        add_u32(b, "general.alignment", 4);
        break;
    case 29:
        add_text(b, "general.alignment", "32");
        break;
    case 30:
        add_info(
            b,
            "a name of a tensor that is much longer than sixty-three bytes, which no loader takes",
            0, 1, dims, 0);
        break;
    case 31:
        add_info(b, "w\n", 0, 1, dims, 0);
        break;
    case 32:
        add_u32(b, "general.alignment", 0x80000000u);
        break;
    case 33: /* one byte short */
        case_array(b, DS_GGUF_F64, 3);
        for (int i = 0; i < 23; i++)
            put(&b->meta, 0, 1);
        break;
    default:
        break;
    }
}

static void test_one_wrong_field_is_named(void **state)
{
    (void)state;
    static const char *const want[] = {
        "metadata key \"k\" is an array of 18446744073709551615 elements",
        "metadata key \"k\" is an array of 2305843009213693951 elements",
        "metadata key \"k\" is an array of 2305843009213693952 elements",
        "metadata key \"k\" is an array of 2305843009213693952 elements",
        "metadata key \"k\" is an array of unknown type 13",
        "metadata key \"k\" has unknown type 13",
        "metadata key \"k\" has a length of 18446744073709551615 bytes",
        "metadata key \"k\" is a truth value of 2",
        "metadata key k is there twice",
        "the key of metadata entry 0 is 0 bytes long",
        "the key of metadata entry 0 is not printable ASCII: \"a\\x1b[2J\"",
        "the key of metadata entry 0 has a length of 18446744073709551612 bytes",
        "tensor w is there twice",
        "tensor w has 0 dimensions",
        "tensor w has 5 dimensions",
        "tensor w has 4294967295 dimensions",
        "tensor w: dimension 1 of 4294967296 makes it overflow",
        "tensor w: 4611686018427387904 elements of type f32 overflow",
        "tensor w: dimension 1 is 0",
        "tensor w: rows of 48 are not whole q4_1 blocks of 32",
        "tensor w has unknown type 4",
        "tensor w has unknown type 4294967295",
        "tensor w: offset 40 is not a multiple of general.alignment 32",
        "tensor w: its 32 bytes at offset 64 of the data section end outside the file",
        "tensor w: its 32 bytes at offset 18446744073709551584",
        "tensor w: its 68 bytes at offset 0",
        "general.alignment is 24",
        "general.alignment is 0",
        "general.alignment is 4",
        "general.alignment has type string",
        "the name of tensor 0 is 84 bytes long",
        "the name of tensor 0 is not printable ASCII: \"w\\n\"",
        "general.alignment is 2147483648",
        "metadata key \"k\" is an array of 3 elements, but only 23 bytes are left",
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        struct builder b = {0};
        build_case(&b, (int)i);
        size_t size = 0;
        unsigned char *bytes = finish(&b, &size);
        refuse(bytes, size, want[i]);
        free(bytes);
    }
}

static void test_header_is_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char bytes[8];
        size_t n;
        const char *want;
    } cases[] = {
        {0, {'G', 'G', 'M', 'L'}, 4, "not a GGUF file"},
        {4, {0, 0, 0, 3}, 4, "version: a big-endian file (version 3); only little-endian"},
        {4, {0, 0, 0, 2}, 4, "version: a big-endian file (version 2)"},
        {4, {1, 0, 0, 0}, 4, "version 1 is not supported"},
        {4, {4, 0, 0, 0}, 4, "version 4 is not supported"},
        {8, {255, 255, 255, 255, 255, 255, 255, 255}, 8, "tensor_count is 18446744073709551615"},
        {8, {0, 0, 0, 0, 0, 0, 0, 1}, 8, "tensor_count is 72057594037927936"},
        {16,
         {255, 255, 255, 255, 255, 255, 255, 255},
         8,
         "metadata_kv_count is 18446744073709551615"},
        {16, {0, 0, 0, 0, 0, 0, 0, 128}, 8, "metadata_kv_count is 9223372036854775808"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t size = 0;
        unsigned char *bytes = read_file(DATA "tiny.gguf", &size);
        assert_non_null(bytes);
        memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].n);
        refuse(bytes, size, cases[i].want);
        free(bytes);
    }
}

static void test_too_many_keys(void **state)
{
    (void)state;
    struct builder b = {0};
    for (uint32_t i = 0; i < 100001; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        add_u32(&b, key, i);
    }
    size_t size = 0;
    unsigned char *bytes = finish(&b, &size);
    assert_non_null(bytes);
    refuse(bytes, size, "metadata_kv_count is 100001; at most 100000 keys are possible");
    free(bytes);
}

static void test_what_is_not_a_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/driftscope-gguf-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    struct ds_gguf *g = NULL;
    struct ds_error err = {0};
    snprintf(path, sizeof path, "%s/x", dir);
    assert_int_equal(ds_gguf_open(path, &g, &err), -1);
    assert_has(err.msg, "/x: no such file");
    assert_int_equal(ds_gguf_open(dir, &g, &err), -1);
    assert_has(err.msg, "is a directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ds_gguf_open(path, &g, &err), -1);
    assert_has(err.msg, "is not a regular file");
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(ds_gguf_open(path, &g, &err), -1);
    assert_has(err.msg, "/x: the file is empty");
    assert_null(g);
    unlink(path);
    rmdir(dir);
}

static void test_long_and_strange_paths_leave_room_for_the_field(void **state)
{
    (void)state;
    char name[3000];
    memset(name, 'p', sizeof name);
    memcpy(name + sizeof name - 12, "\033[2J/x.gguf", 12);
    struct ds_gguf *g = NULL;
    struct ds_error err = {0};
    assert_int_equal(ds_gguf_open_bytes("GGUF\7\0\0\0", 8, name, &g, &err), -1);
    assert_has(err.msg, "\\x1b[2J/x.gguf: version 7 is not supported");
    assert_true(strncmp(err.msg, "...ppp", 6) == 0);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const files[] = {DATA "meta.gguf", DATA "tiny.gguf"};
    for (size_t f = 0; f < COUNT(files); f++) {
        long n = 1;
        for (;; n++) {
            struct ds_gguf *g = NULL;
            struct ds_error err = {0};
            ds_mem_fail_at(n);
            int rc = ds_gguf_open(files[f], &g, &err);
            ds_mem_fail_at(0);
            if (rc == 0) {
                ds_gguf_close(g);
                break;
            }
            assert_null(g);
            assert_has(err.msg, "out of memory");
        }
        assert_true(n > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte_is_refused),
        cmocka_unit_test(test_any_byte_may_be_wrong),
        cmocka_unit_test(test_nested_arrays),
        cmocka_unit_test(test_one_wrong_field_is_named),
        cmocka_unit_test(test_header_is_checked),
        cmocka_unit_test(test_too_many_keys),
        cmocka_unit_test(test_what_is_not_a_file),
        cmocka_unit_test(test_long_and_strange_paths_leave_room_for_the_field),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
