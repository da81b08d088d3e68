/* placement.c: see placement.h. */
#include "engine/placement.h"

#include "kernels/driftscope_kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPU = DS_OWN_DEVICES, SIM, CUDA, MOST_CUDA = DS_MOST_DEVICES - CUDA };

static int bad(const char *text, const char *what, struct ds_error *err)
{
    ds_fail(err, "place '%.80s': %s", text, what);
    return ds_hint(
        err, "write one, or for example layers=0-14:cpu0;15-:cpu1 or layers=0-14:sim;15-:cpu");
}

/* A whole number at *p, which moves behind it; -1 if there is none. */
static int32_t number(const char **p)
{
    if (**p < '0' || **p > '9')
        return -1;
    char *end;
    errno = 0;
    long v = strtol(*p, &end, 10);
    *p = end;
    return errno || v > INT32_MAX / 2 ? -1 : (int32_t)v;
}

/* "cpu1", "cpu", "sim", "cuda", "cuda:1". */
static int take_device(const char *text, const char **at, int32_t *device, struct ds_error *err)
{
    static const struct {
        const char *name;
        int32_t first, n; /* a number may follow, below n; 0: none may */
    } names[] = {
        {"cpu", 0, DS_OWN_DEVICES}, {"sim", SIM, 0}, {"cuda:", CUDA, MOST_CUDA}, {"cuda", CUDA, 0}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i].name);
        if (strncmp(*at, names[i].name, n) != 0)
            continue;
        *at += n;
        const int digit = **at >= '0' && **at <= '9';
        *device = i == 0 && !digit ? (int32_t)CPU : names[i].first;
        if (!digit || names[i].n == 0)
            return i == 2 ? bad(text, "a number follows cuda:", err) : 0;
        const int32_t number_of = number(at);
        if (number_of < 0 || number_of >= names[i].n)
            return bad(text, "devices are cpu0 to cpu7, cpu, sim, cuda:0 to cuda:5", err);
        *device += number_of;
        return 0;
    }
    return bad(text, "a range needs a device: cpu0, cpu1, ..., cpu, sim, cuda", err);
}

/* "0-14:cpu0", "15-:cpu1" or "3:cpu0". */
static int take_part(const char *text, const char **at, struct ds_placement *p,
                     struct ds_error *err)
{
    if (p->n == DS_MOST_PLACES)
        return bad(text, "too many ranges", err);
    const int32_t want = p->n ? p->part[p->n - 1].last + 1 : 0;
    const int32_t first = number(at);
    int32_t last = first;
    if (first < 0)
        return bad(text, "a range of layers is missing", err);
    if (p->n && p->part[p->n - 1].last < 0)
        return bad(text, "only the last range may be open", err);
    if (first != want)
        return bad(text, "ranges must ascend from layer 0 without gaps", err);
    if (**at == '-') {
        ++*at;
        const int open = **at == ':';
        last = open ? -1 : number(at);
        if (!open && last < first)
            return bad(text, last < 0 ? "a range has no end" : "a range ends before it begins",
                       err);
    }
    int32_t device = 0;
    if (**at != ':')
        return bad(text, "a range needs a device: cpu0, cpu1, ..., cpu, sim, cuda", err);
    ++*at;
    if (take_device(text, at, &device, err) != 0)
        return -1;
    p->part[p->n].first = first, p->part[p->n].last = last, p->part[p->n].device = device;
    p->n++;
    return 0;
}

int ds_placement_parse(const char *text, struct ds_placement *out, struct ds_error *err)
{
    static const char prefix[] = "layers=";
    struct ds_placement p = {0};
    memset(out, 0, sizeof *out);
    if (strcmp(text, "one") == 0)
        return 0;
    const char *at = text;
    if (strncmp(at, prefix, sizeof prefix - 1) != 0)
        return bad(text, "unknown value", err);
    at += sizeof prefix - 1;
    for (;;) {
        if (take_part(text, &at, &p, err) != 0)
            return -1;
        if (!*at)
            break;
        if (*at != ';' && *at != ',')
            return bad(text, "a range is followed by ';' or nothing", err);
        at++;
    }
    *out = p;
    return 0;
}

static void print_device(int32_t device, char *out, size_t size)
{
    if (device < DS_OWN_DEVICES)
        snprintf(out, size, "cpu%d", (int)device);
    else if (device <= CUDA)
        snprintf(out, size, "%s", device == CPU ? "cpu" : device == SIM ? "sim" : "cuda");
    else
        snprintf(out, size, "cuda:%d", (int)(device - CUDA));
}

int ds_placement_kind(int32_t device, int own)
{
    return device < DS_OWN_DEVICES ? own
           : device == CPU         ? (int)DS_DEVICE_CPU
           : device == SIM         ? (int)DS_DEVICE_SIM
                                   : (int)DS_DEVICE_CUDA;
}

int ds_placement_number(int32_t device, int own_kind, int own)
{
    if (device < DS_OWN_DEVICES || (device == SIM && own_kind == DS_DEVICE_SIM))
        return own;
    return device >= CUDA ? (int)(device - CUDA) : 0;
}

int ds_placement_through_host(int32_t from, int32_t to, int own)
{
    const int a = ds_placement_kind(from, own), b = ds_placement_kind(to, own);
    return a != b || (a == DS_DEVICE_CUDA && from != to && (from >= CUDA || to >= CUDA));
}

void ds_placement_print(const struct ds_placement *p, char *text, size_t size)
{
    int n = snprintf(text, size, "%s", p->n ? "layers=" : "one");
    for (int32_t i = 0; i < p->n && n >= 0 && (size_t)n < size; i++) {
        const int32_t first = p->part[i].first, last = p->part[i].last;
        char end[16] = "";
        if (last >= 0)
            snprintf(end, sizeof end, "%d", (int)last);
        char device[16];
        print_device(p->part[i].device, device, sizeof device);
        n += snprintf(text + n, size - (size_t)n, "%s%d%s%s:%s", i ? ";" : "", (int)first,
                      last == first ? "" : "-", last == first ? "" : end, device);
    }
}

int ds_placement_check(const struct ds_placement *p, int32_t n_layers, struct ds_error *err)
{
    if (p->n == 0)
        return 0;
    char text[512];
    ds_placement_print(p, text, sizeof text);
    const int32_t first = p->part[p->n - 1].first, last = p->part[p->n - 1].last;
    if (first >= n_layers || last >= n_layers)
        return ds_fail(err, "place '%.80s': the model has layers 0 to %d", text, (int)n_layers - 1);
    if (last >= 0 && last != n_layers - 1)
        return ds_fail(err, "place '%.80s': layers %d to %d have no device", text, (int)last + 1,
                       (int)n_layers - 1);
    return 0;
}

int32_t ds_placement_device(const struct ds_placement *p, int32_t layer)
{
    for (int32_t i = p->n; i-- > 0;)
        if (layer >= p->part[i].first)
            return p->part[i].device;
    return p->n ? p->part[0].device : 0;
}

int ds_placement_boundary(const struct ds_placement *p, int32_t layer)
{
    return layer > 0 && ds_placement_device(p, layer) != ds_placement_device(p, layer - 1);
}
