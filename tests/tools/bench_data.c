/* bench_data.c: times what the terminal UI waits for: how long until a record's header and trials are known, until its
 * verdict is, until a pair, a site and its values are, and the same again; and the most memory it took.
 *
 *     bench_data REC.h5 [REC2.h5] */
#include "tui/data.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static double begun;

static void tell(const char *what)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("  %-28s %9.1f ms  %6.1f MB\n", what, 1000 * (ds_seconds(CLOCK_MONOTONIC) - begun),
           (double)u.ru_maxrss / 1000);
    fflush(stdout);
    begun = ds_seconds(CLOCK_MONOTONIC);
}

/* The first row of the site whose digests differ and whose bytes are there on both sides. */
static int find_values(const struct tui_site *s, uint64_t *a, uint64_t *b)
{
    for (size_t i = 0; i < s->n_rows; i++) {
        *a = s->facts[i].digest;
        *b = s->facts[i].ref_digest;
        if (s->facts[i].dumped && s->facts[i].ref_dumped && *a != *b)
            return 1;
    }
    return 0;
}

static int look(struct tui_data *d)
{
    const char *error = NULL;
    tui_data_wait(d, 600000);
    const struct tui_whole *w = tui_data_whole(d);
    tell(w->verdict ? "verdict" : w->error ? w->error : "nothing");
    uint32_t arm = w->verdict ? w->verdict->first.arm : 1,
             site = w->verdict ? w->verdict->first.site : 0,
             ref = w->verdict ? w->verdict->first.ref_arm : 0;
    tui_data_pair(d, arm, ref, &error);
    tui_data_wait(d, 600000);
    tell(tui_data_pair(d, arm, ref, &error) ? "pair of the first drift"
         : error                            ? error
                                            : "no pair");
    tui_data_site(d, arm, ref, site, &error);
    tui_data_wait(d, 600000);
    const struct tui_site *s = tui_data_site(d, arm, ref, site, &error);
    tell(s ? "site of the first drift" : error ? error : "no site");
    uint64_t a, b;
    if (s && find_values(s, &a, &b)) {
        tui_data_values(d, arm, ref, a, b, &error);
        tui_data_wait(d, 600000);
        tell("values of a row");
    }
    for (int i = 0; i < 1000; i++) {
        tui_data_turn(d);
        tui_data_pair(d, arm, ref, &error);
        tui_data_site(d, arm, ref, site, &error);
    }
    tell("the same a thousand times");
    const size_t n_sites = w->header ? w->header->n_sites : 0;
    for (uint32_t k = 0; k < 20 && k < n_sites; k++) {
        tui_data_site(d, arm, ref, (uint32_t)((n_sites - 1) * k / 19), &error);
        tui_data_wait(d, 600000);
    }
    tell("twenty other sites");
    const size_t n_arms = w->header ? w->header->n_arms : 0;
    for (uint32_t k = 0; k < 5 && k < n_arms; k++) {
        tui_data_pair(d, k, 0, &error);
        tui_data_wait(d, 600000);
    }
    tell("five other pairs");
    return 0;
}

int main(int argc, char **argv)
{
    struct ds_error err;
    struct tui_data *d;
    if (argc < 2)
        return 2;
    begun = ds_seconds(CLOCK_MONOTONIC);
    const struct tui_data_options o = {.path = argv[1], .path_b = argc > 2 ? argv[2] : NULL};
    if (tui_data_open(&o, &d, &err) != 0) {
        fprintf(stderr, "bench_data: %s\n", err.msg);
        return 2;
    }
    tell("header and trials");
    look(d);
    tui_data_close(d);
    tell("closed");
    return 0;
}
