/* fuzz_module.c: descriptions of kernels in a cubin or PTX (kernels/module.h) as hostile JSON. What must hold: no crash; an error
 * that names the description; or one whose every number is in its bounds, and a launch of any sizes that is filled or refused. */
#include "tests/fuzz/fuzz.h"

#include "kernels/module.h"
#include "kernels/registry.h"

#include <string.h>

static int has_end(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static void is_in_bounds(const struct ds_module *m)
{
    uint32_t threads = 1;
    require(m->op >= 0 && m->op < DS_OP_COUNT && m->stored && m->stored < 1u << 3);
    require(m->variant[0] && has_end(m->variant, sizeof m->variant));
    require(m->entry[0] && has_end(m->entry, sizeof m->entry));
    require(has_end(m->summary, sizeof m->summary) && m->claims < 1u << 5);
    for (int i = 0; i < 3; i++) {
        require(m->block[i] >= 1 && m->block[i] <= 1024 && m->grid[i].whole >= 1);
        threads *= m->block[i];
    }
    require(threads <= 1024 && m->shared_bytes <= 1u << 20);
    require(m->n_arguments >= 1 && m->n_arguments <= DS_MODULE_MOST_ARGUMENTS);
}

/* A struct of the op with the same bytes everywhere: sizes of any sign, pointers that nobody may follow. */
static void is_filled_or_refused(const struct ds_module *m, int bytes)
{
    union {
        struct ds_embed_args embed;
        struct ds_rmsnorm_args rmsnorm;
        struct ds_matmul_args matmul;
        struct ds_rope_args rope;
        struct ds_softmax_args softmax;
        struct ds_silu_mul_args silu_mul;
        struct ds_add_args add;
        struct ds_combine_args combine;
    } args;
    union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS];
    struct ds_error err = {{0}, {0}};
    uint32_t grid[3] = {0};
    memset(&args, bytes, sizeof args);
    if (ds_module_launch(m, &args, grid, slot, &err) != 0) {
        require(err.msg[0] && has_end(err.msg, sizeof err.msg));
        return;
    }
    for (int i = 0; i < 3; i++)
        require(grid[i] >= 1 && grid[i] <= INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int bytes[] = {0x00, 0x01, 0x7f, 0xff};
    struct ds_module m;
    struct ds_error err = {{0}, {0}};
    if (ds_module_parse("f.json", (const char *)data, size, &m, &err) != 0) {
        require(strncmp(err.msg, "module f.json: ", 15) == 0 && has_end(err.msg, sizeof err.msg));
        return 0;
    }
    is_in_bounds(&m);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        is_filled_or_refused(&m, bytes[i]);
    return 0;
}
