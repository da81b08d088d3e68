/* clocks.cu: how fast a GPU's clocks run at this moment, from the driver's management library, opened with dlopen: the
 * CUDA runtime tells the highest only. Where there is no such library, or it says nothing, clocks are 0. */
#include "kernels/cuda/library/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace
{

/* NVML's own numbers and types (nvml.h): nvmlClockType_t, nvmlReturn_t, nvmlDevice_t. */
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, NVML_OK = 0 };
typedef int (*init_fn)(void);
typedef int (*by_bus_fn)(const char *bus, void **device);
typedef int (*clock_fn)(void *device, int type, unsigned *mhz);

struct nvml {
    int asked;
    by_bus_fn by_bus;
    clock_fn clock;
} nvml;

template <class F> int find(void *handle, F *out, const char *name)
{
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
    return p != nullptr;
}

void open_library(void)
{
    init_fn init;
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml.asked = 1;
    if (!handle || !find(handle, &init, "nvmlInit_v2") || init() != NVML_OK ||
        !find(handle, &nvml.by_bus, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find(handle, &nvml.clock, "nvmlDeviceGetClockInfo"))
        nvml.clock = nullptr;
}

int32_t khz(void *device, int type)
{
    unsigned mhz = 0;
    return nvml.clock(device, type, &mhz) == NVML_OK ? (int32_t)(mhz * 1000) : 0;
}

} /* namespace */

void ds_cuda_clocks(int domain, int bus, int number, int32_t *sm_khz, int32_t *memory_khz)
{
    char name[32];
    void *device = nullptr;
    *sm_khz = *memory_khz = 0;
    if (!nvml.asked)
        open_library();
    snprintf(name, sizeof name, "%08x:%02x:%02x.0", domain, bus, number);
    if (!nvml.clock || nvml.by_bus(name, &device) != NVML_OK)
        return;
    *sm_khz = khz(device, CLOCK_SM);
    *memory_khz = khz(device, CLOCK_MEMORY);
}
