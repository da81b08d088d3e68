/* fuzz_text.c: the small languages of the command line: kernel sets, shapes, devices of layers, random: models, values of
 * factors, stages that stay f32, devices, and the words of a whole command line. What must hold: no crash, an error with a text
 * or a value that is in its bounds.
 *
 * First byte of the input: which language; the rest is the text. */
#include "tests/fuzz/fuzz.h"

#include "cli/options.h"
#include "engine/placement.h"
#include "engine/random_spec.h"
#include "engine/site_map.h"
#include "engine/sweep.h"
#include "kernels/device_open.h"
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

/* Every value that a factor takes is one that an arm can have, and is read again as itself. */
static int factor(char *text, struct ds_error *err)
{
    struct ds_factor_values v, again;
    const int f = text[0] ? (unsigned char)text[0] % DS_FACTOR_COUNT : 0;
    if (ds_factor_parse(f, text[0] ? text + 1 : text, &v, err) != 0)
        return -1;
    require(v.n > 0);
    for (size_t i = 0; i < v.n; i++) {
        require(ds_factor_parse(f, v.value[i], &again, err) == 0 && again.n == 1);
        require(strcmp(again.value[0], v.value[i]) == 0);
        ds_factor_free(&again);
    }
    ds_factor_free(&v);
    return 0;
}

static int stages(char *text, struct ds_error *err)
{
    uint64_t f32_at;
    return ds_stages_parse(text, &f32_at, err) == 0 && f32_at ? 0 : -1;
}

static int device(char *text, struct ds_error *err)
{
    int kind, number;
    if (ds_device_parse_name(text, &kind, &number, err) != 0)
        return -1;
    require(kind >= 0 && kind < DS_DEVICE_KINDS && number >= 0);
    return 0;
}

/* A word a line. */
static int command_line(char *text, struct ds_error *err)
{
    enum { MOST = 64 };
    char name[] = "driftscope", *argv[MOST + 1] = {name};
    struct ds_options o;
    int argc = 1;
    for (char *p = text; p && argc < MOST;) {
        char *end = strchr(p, '\n');
        if (end)
            *end++ = '\0';
        argv[argc++] = p;
        p = end;
    }
    const int rc = ds_options_parse(argc, argv, &o, err);
    if (rc == 0) {
        require(o.verb != DS_VERB_NONE || o.action != DS_ACTION_VERB);
        for (size_t i = 0; i < o.n_values; i++)
            require(o.values[i].def && (!o.values[i].text || o.values[i].def->arg));
    }
    require(o.error_exit >= 2 && o.error_exit <= 255);
    ds_options_free(&o);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const parse[8])(char *, struct ds_error *) = {
        kernel_set, shape, placement, random_model, factor, stages, device, command_line};
    struct ds_error err = {{0}, {0}};
    if (size < 1)
        return 0;
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (parse[data[0] & 7](text, &err) != 0)
        require(err.msg[0] && memchr(err.msg, '\0', sizeof err.msg));
    free(text);
    return 0;
}
