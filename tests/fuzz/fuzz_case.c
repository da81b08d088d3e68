/* fuzz_case.c: files of cases (tests/specimens/README.md), as somebody may write them wrong. What must hold: no
 * crash, an error that names the file and a line, or cases that can be taken apart and held against an answer. */
#include "tests/fuzz/fuzz.h"

#include "cli/case_expect.h"
#include "cli/case_file.h"

#include "base/buf.h"

#include <jansson.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char answer_text[] =
    "{\"stable\": true, \"result\": \"drift\", \"notes\": [\"a constant\", 3],"
    "\"first_drift\": {\"layer\": 0, \"stage\": \"q_proj\", \"kind\": \"wrong-data\", "
    "\"evidence\": \"x\"},"
    "\"factors\": [{\"factor\": \"batch\", \"phase\": \"decode\", \"classes\": [[\"1\"], "
    "[\"4\"]]}],"
    "\"kernels\": [{\"op\": \"matmul\", \"variant\": \"plain\", \"conditions\": {\"batch\": "
    "\"drift\"}}]}";

static void visit(const struct ds_case *c, json_t *answer)
{
    struct ds_buf why = {0};
    require(c->id && c->id[0] && c->n_steps > 0);
    for (size_t s = 0; s < c->n_steps; s++) {
        const struct ds_case_step *step = &c->steps[s];
        require(ds_case_verb(step) <= step->argc);
        for (size_t i = 0; i < step->argc; i++)
            for (int healthy = 0; healthy < 2; healthy++) {
                char *text = ds_case_argument(step->argv[i], healthy);
                require(text && strlen(text) <= strlen(step->argv[i]));
                require(ds_case_has_choice(step->argv[i]) || strcmp(text, step->argv[i]) == 0);
                free(text);
            }
        for (size_t i = 0; i < step->n_expects; i++) {
            const int with = ds_case_holds(&step->expects[i], answer, 1, &why),
                      without = ds_case_holds(&step->expects[i], NULL, 1, &why);
            require((with == 0 || with == 1) && (without == 0 || without == 1));
        }
    }
    ds_buf_free(&why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_case *cases = NULL;
    struct ds_error err = {{0}, {0}};
    char path[64];
    size_t n = 0;
    json_t *answer = json_loads(answer_text, 0, NULL);
    const int fd = memfd_create("own.case", MFD_CLOEXEC);
    require(answer && fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ds_case_read(path, &cases, &n, &err) == 0)
        for (size_t i = 0; i < n; i++)
            visit(&cases[i], answer);
    else
        require(strncmp(err.msg, path, strlen(path)) == 0);
    ds_cases_free(cases, n);
    json_decref(answer);
    close(fd);
    return 0;
}
