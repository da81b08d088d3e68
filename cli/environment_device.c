/* environment_device.c: the devices of a sweep, as they are written into its record: what a device says of itself is
 * asked in a child process, since this one forks workers that open it. */
#include "cli/cli.h"

#include "base/mem.h"
#include "dumps/record.h"
#include "kernels/device_open.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct ds_text **lines, size_t *n, const char *name, const char *value,
               struct ds_error *err)
{
    struct ds_text line = {strdup(name), strdup(value)};
    if (line.name && line.value &&
        ds_grow_by_one(lines, *n, sizeof **lines, "environment", err) == 0) {
        (*lines)[(*n)++] = line;
        return 0;
    }
    free(line.name);
    free(line.value);
    return ds_fail(err, "out of memory for the environment");
}

static int is_there(const struct ds_text *lines, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(lines[i].name, name) == 0)
            return 1;
    return 0;
}

/* What decides bits in one line; clocks, which do not, in another. */
static int add_device(const char *device, struct ds_text **lines, size_t *n, struct ds_error *err)
{
    struct ds_device_info d;
    char name[48], value[400];
    int kind, number;
    if (ds_device_parse_name(device, &kind, &number, err) != 0)
        return -1;
    snprintf(name, sizeof name, "device_%s_%d", ds_device_name(kind), number);
    if (kind == DS_DEVICE_CPU || is_there(*lines, *n, name))
        return 0;
    if (ds_device_describe(kind, number, &d, err) != 0)
        return -1;
    snprintf(value, sizeof value, "%s%s%s, %d multiprocessors%s%s%s%s%s%s", d.name,
             d.arch[0] ? ", " : "", d.arch, d.multiprocessors, d.driver[0] ? ", driver CUDA " : "",
             d.driver, d.runtime[0] ? ", runtime " : "", d.runtime, d.library[0] ? ", " : "",
             d.library);
    if (add(lines, n, name, value, err) != 0)
        return -1;
    if (!d.clock_khz)
        return 0;
    strcat(name, DS_CLI_CLOCKS);
    snprintf(value, sizeof value, "%d MHz, memory %d MHz", d.clock_khz / 1000,
             d.memory_clock_khz / 1000);
    return add(lines, n, name, value, err);
}

static const char *value_of(const struct ds_header *h, const struct ds_arm *a, const char *factor)
{
    for (size_t f = 0; f < h->n_factors; f++)
        if (strcmp(h->factors[f], factor) == 0)
            return a->values[f];
    return NULL;
}

/* Those of --place by name, "layers=0-14:cuda;15-:cpu0": simulated ones are the arm's own kind. */
static int add_placed(const char *place, struct ds_text **lines, size_t *n, struct ds_error *err)
{
    for (const char *p = strchr(place, ':'); p; p = strchr(p, ':')) {
        char word[24];
        const size_t len = strcspn(++p, ";,");
        int kind, number;
        snprintf(word, sizeof word, "%.*s", (int)(len < 23 ? len : 23), p);
        if (ds_device_parse_name(word, &kind, &number, NULL) == 0 &&
            add_device(word, lines, n, err) != 0)
            return -1;
        p += len;
    }
    return 0;
}

int ds_cli_environment_devices(const struct ds_header *h, struct ds_text **lines, size_t *n,
                               struct ds_error *err)
{
    for (size_t a = 0; a < h->n_arms; a++) {
        const char *device = value_of(h, &h->arms[a], "device"),
                   *place = value_of(h, &h->arms[a], "place");
        if ((device && add_device(device, lines, n, err) != 0) ||
            (place && add_placed(place, lines, n, err) != 0))
            return -1;
    }
    return 0;
}
