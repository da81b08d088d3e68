/* fuzz_text.c: the small languages of the command line: kernel sets, shapes, devices of layers, random:
 * models. What must hold: no crash, an error with a text or a value that is in its bounds.
 *
 * First byte of the input: which language; the rest is the text. */
#include "tests/fuzz/fuzz.h"

#include "engine/placement.h"
#include "engine/random_spec.h"
#include "kernels/lab/shape.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

static int kernel_set(char *text, struct ds_error *err)
{
    struct ds_kernel_set set;
    if (ds_kernel_set_parse(text, &set, err) != 0)
        return -1;
    for (int op = 0; op < DS_OP_COUNT; op++) {
        const struct ds_kernel *k;
        for (int32_t i = 0; (k = ds_kernel_set_used(&set, op, i)); i++)
            require(k->op == op);
        for (int32_t layer = -1; layer < 70; layer++)
            require(!set.op[op] || ds_kernel_set_in(&set, op, layer)->op == op);
    }
    return 0;
}

static int shape(char *text, struct ds_error *err)
{
    struct ds_shape s;
    int rc = -1;
    for (int op = 0; op < DS_OP_COUNT; op++)
        rc = ds_shape_parse(op, text, &s, err) == 0 ? 0 : rc;
    return rc;
}

static int placement(char *text, struct ds_error *err)
{
    struct ds_placement p;
    char printed[4096];
    if (ds_placement_parse(text, &p, err) != 0)
        return -1;
    ds_placement_print(&p, printed, sizeof printed);
    for (int32_t layers = 1; layers < 40; layers++)
        if (ds_placement_check(&p, layers, err) == 0)
            for (int32_t l = 0; l <= layers; l++)
                (void)ds_placement_boundary(&p, l);
    return 0;
}

static int random_model(char *text, struct ds_error *err)
{
    struct spec s;
    return ds_random_spec_parse(text, &s, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const parse[])(char *, struct ds_error *) = {kernel_set, shape, placement,
                                                              random_model};
    struct ds_error err = {{0}, {0}};
    if (size < 1)
        return 0;
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (parse[data[0] % 4](text, &err) != 0)
        require(err.msg[0] && memchr(err.msg, '\0', sizeof err.msg));
    free(text);
    return 0;
}
