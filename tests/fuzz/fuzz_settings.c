/* fuzz_settings.c: what doctor reads beside launch lines, as hostile bytes: a file of settings (--config) and a shared object's
 * code. What must hold: no crash; words that are flags, before those of the command line, and rules that can be held against them;
 * one of three answers about the object. */
#include "tests/fuzz/fuzz.h"

#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void put(int fd, const uint8_t *data, size_t size)
{
    require(ftruncate(fd, 0) == 0);
    for (size_t done = 0; done < size;) {
        const ssize_t n = pwrite(fd, data + done, size - done, (off_t)done);
        require(n > 0);
        done += (size_t)n;
    }
}

static void read_settings(const char *path)
{
    struct ds_doctor d = {.o = NULL};
    struct ds_error err = {{0}, {0}};
    char line[128];
    const int n = snprintf(line, sizeof line, "vllm serve m --seed 5 --config %s", path);
    require(ds_doctor_parse("s", line, (size_t)n, &d.commands, &err) == 0 && d.commands.n == 1);
    struct ds_doctor_command *c = d.commands.at;
    const size_t before = c->n_words;
    require(ds_doctor_read_config(c, &err) == 0 && c->n_words >= before);
    require(c->config == DS_DOCTOR_CONFIG_READ || c->config == DS_DOCTOR_CONFIG_PART);
    /* "vllm", "serve", "m", what the file has, and what the command line has: that counts. */
    for (size_t i = 3; i < 3 + c->n_words - before; i++)
        require(strncmp(c->words[i], "--", 2) == 0 && c->words[i][2] && !strchr(c->words[i], '\n'));
    require(strcmp(ds_doctor_flag(c, "--seed="), "5") == 0);
    /* A file of this machine may have a name that the settings give, and be none of its kind. */
    require(ds_doctor_judge(&d, c, &err) == 0 || err.msg[0]);
    ds_doctor_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("settings", 0);
        require(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    const int found = ds_doctor_scan_object(data, size);
    require(found >= -1 && found <= 1);
    put(fd, data, size);
    read_settings(path);
    return 0;
}
