/* module.h: what a user says about a kernel that comes as a cubin or PTX: which op it is, its entry, grid
 * and arguments. Parses the description and works out what a launch is given; loads and launches
 * nothing. A description (JSON) is data of somebody's: all of it is checked.
 *
 *   {"schema": "driftscope.module/1", "op": "add", "variant": "triton", "summary": "a + b",
 *    "claims": ["repeat", "batch"], "stored": ["f32", "bf16"], "entry": "add_kernel",
 *    "grid": [{"of": "width", "per": 256}, {"of": "rows"}, 1], "block": [128, 1, 1], "shared": 0,
 *    "arguments": ["a", "b", "y", "ldy", {"of": "width", "as": "i32"}, {"value": 3, "as": "i32"}]}
 *
 * An element of grid is a number or a size of the op's struct, divided by `per` and rounded up. An
 * argument is a member of the op's struct as its type has it, or, with `as`, as i32, i64 or f32; or a
 * value. grid, block, shared, stored, claims and summary may be left out: 1, 1, 0, f32, none, "". */
#ifndef DS_MODULE_H
#define DS_MODULE_H

#include "base/error.h"
#include "kernels/driftscope_kernel.h"

enum { DS_MODULE_MOST_ARGUMENTS = 32, DS_MODULE_MOST_TEXT = 64 << 10 };

enum ds_module_type { DS_MODULE_POINTER = 0, DS_MODULE_I64, DS_MODULE_I32, DS_MODULE_F32 };

/* A member of the op's struct, or a constant (member < 0). */
struct ds_module_value {
    int32_t member; /* in the table of the op's members */
    int32_t type;   /* enum ds_module_type: as what it is handed over */
    int64_t whole;  /* a constant; grid: what the member is divided by */
    double real;
};

struct ds_module {
    int32_t op;
    char variant[32], summary[128], entry[256];
    uint32_t claims; /* enum ds_claim */
    uint32_t stored; /* 1 << enum ds_element */
    struct ds_module_value grid[3];
    uint32_t block[3], shared_bytes;
    struct ds_module_value argument[DS_MODULE_MOST_ARGUMENTS];
    int32_t n_arguments;
};

/* -1 with an error that names what is wrong. `name` is for messages. */
int ds_module_parse(const char *name, const char *text, size_t bytes, struct ds_module *out,
                    struct ds_error *err);
/* Reads and parses the description beside a file: kernel.cubin has kernel.json. */
int ds_module_read(const char *path, struct ds_module *out, struct ds_error *err);
/* Whether a name ends in .cubin or .ptx. */
int ds_module_is_named(const char *path);

/* One argument as a launch takes it: the address of its slot. */
union ds_module_slot {
    const void *pointer;
    int64_t i64;
    int32_t i32;
    float f32;
};
/* Grid and arguments for an op's struct; -1 where a size does not fit. */
int ds_module_launch(const struct ds_module *m, const void *args, uint32_t grid[3],
                     union ds_module_slot slot[DS_MODULE_MOST_ARGUMENTS], struct ds_error *err);

#endif
