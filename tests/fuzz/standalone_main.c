/* standalone_main.c: runs a libFuzzer target without libFuzzer: every seed file as it is, then
 * mutations of the seeds from a seeded generator, so that a run can be repeated. Build with the
 * sanitizers; each input lies in memory of exactly its size. An input that kills the process is
 * written to crash-SEED-RUN in the current folder.
 *
 * usage: fuzz_X [-runs=N] [-seed=S] FILE... */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* In the sanitizers' run time; absent without them. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum { MAX_SEEDS = 256, MAX_BYTES = 1 << 20, HANG_SECONDS = 120 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input seeds[MAX_SEEDS];
static size_t n_seeds;
static uint64_t state, seed = 1;
static struct input current;
static char crash_name[64];

static uint64_t draw(void)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t below(size_t n)
{
    return n ? (size_t)(draw() % n) : 0;
}

static void save_current(void)
{
    int fd = open(crash_name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return;
    for (size_t done = 0; done < current.size;) {
        ssize_t n = write(fd, current.bytes + done, current.size - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(fd);
}

static void on_signal(int number)
{
    save_current();
    signal(number, SIG_DFL);
    raise(number);
}

static void run(const uint8_t *bytes, size_t size, unsigned long number)
{
    current.bytes = malloc(size ? size : 1);
    if (!current.bytes)
        exit(2);
    if (size)
        memcpy(current.bytes, bytes, size);
    current.size = size;
    snprintf(crash_name, sizeof crash_name, "crash-%llu-%lu", (unsigned long long)seed, number);
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(current.bytes, size);
    free(current.bytes);
    current = (struct input){0};
}

/* Numbers at which comparisons and products tip over. */
static uint64_t tipping_number(void)
{
    static const uint64_t known[] = {0,
                                     1,
                                     2,
                                     4,
                                     8,
                                     31,
                                     32,
                                     33,
                                     63,
                                     64,
                                     255,
                                     256,
                                     0x7fff,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000u,
                                     0xffffffffu,
                                     (uint64_t)1 << 32,
                                     INT64_MAX,
                                     (uint64_t)1 << 63,
                                     UINT64_MAX,
                                     UINT64_MAX / 4,
                                     UINT64_MAX / 8 + 1,
                                     UINT64_MAX - 7};
    return known[below(sizeof known / sizeof known[0])] + (draw() % 8 ? 0 : draw() % 5 - 2);
}

/* Half of the places lie among the first 2 KiB, where headers are. */
static size_t place(size_t size)
{
    return draw() & 1 ? below(size < 2048 ? size : 2048) : below(size);
}

static size_t mutate(uint8_t *b, size_t size)
{
    size_t at = place(size), n = 1 + below(16), width = (size_t)1 << below(4);
    uint64_t v = tipping_number();
    switch (draw() % 8) {
    case 0:
        b[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        b[at] = (uint8_t)draw();
        break;
    case 2:
    case 3: /* a little-endian number */
        for (size_t i = 0; i < width && at + i < size; i++)
            b[at + i] = (uint8_t)(v >> (8 * i));
        break;
    case 4: /* cut */
        return below(8) ? size : place(size);
    case 5: /* take bytes out */
        n = n < size - at ? n : size - at;
        memmove(b + at, b + at + n, size - at - n);
        return size - n;
    case 6: /* put bytes in */
        if (size + n > MAX_BYTES)
            break;
        memmove(b + at + n, b + at, size - at);
        for (size_t i = 0; i < n; i++)
            b[at + i] = (uint8_t)draw();
        return size + n;
    default: { /* copy a piece from elsewhere in a seed */
        const struct input *from = &seeds[below(n_seeds)];
        size_t src = place(from->size), len = 1 + below(64);
        for (size_t i = 0; i < len && at + i < size && src + i < from->size; i++)
            b[at + i] = from->bytes[src + i];
    }
    }
    return size;
}

static int read_seed(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || n_seeds == MAX_SEEDS) {
        fprintf(stderr, "%s: %s\n", path, f ? "too many seeds" : "cannot be opened");
        return -1;
    }
    struct input *s = &seeds[n_seeds];
    s->bytes = malloc(MAX_BYTES);
    s->size = s->bytes ? fread(s->bytes, 1, MAX_BYTES, f) : 0;
    fclose(f);
    n_seeds += s->bytes != NULL;
    return s->bytes ? 0 : -1;
}

int main(int argc, char **argv)
{
    unsigned long runs = 10000;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0)
            runs = strtoul(argv[i] + 6, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0)
            seed = strtoull(argv[i] + 6, NULL, 10);
        else if (read_seed(argv[i]))
            return 2;
    }
    uint8_t *work = malloc(MAX_BYTES);
    if (!work || n_seeds == 0) {
        fprintf(stderr, "usage: %s [-runs=N] [-seed=S] FILE...\n", argv[0]);
        return 2;
    }
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(save_current);
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    for (size_t i = 0; i < n_seeds; i++)
        run(seeds[i].bytes, seeds[i].size, i);
    for (unsigned long r = 0; r < runs; r++) {
        state = seed * 0x100000001b3u + r; /* each run stands alone */
        const struct input *from = &seeds[below(n_seeds)];
        size_t size = from->size;
        memcpy(work, from->bytes, size);
        for (size_t k = 1 + below(6); k-- && size;)
            size = mutate(work, size);
        run(work, size, n_seeds + r);
    }
    alarm(0);
    printf("%zu seeds, %lu mutations, seed %llu: no fault\n", n_seeds, runs,
           (unsigned long long)seed);
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].bytes);
    free(work);
    return 0;
}
