/* fuzz_doctor.c: scripts that start engines as hostile text. What must hold: no crash; an error that names the line; or
 * commands that every rule can be held against, with a text and a status for each line. */
#include "tests/fuzz/fuzz.h"

#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_doctor d = {.o = NULL};
    struct ds_error err = {{0}, {0}};
    if (ds_doctor_parse("s", (const char *)data, size, &d.commands, &err) == 0) {
        for (size_t i = 0; i < d.commands.n; i++) {
            const struct ds_doctor_command *c = &d.commands.at[i];
            require(c->engine && c->first <= c->n_words && c->line >= 1);
            /* A file of this machine may have the model's name, and be no model. */
            require(ds_doctor_judge(&d, c, &err) == 0 || err.msg[0]);
        }
        require(ds_doctor_compare(&d, &err) == 0);
        for (size_t i = 0; i < d.n_lines; i++)
            require(d.lines[i].text && d.lines[i].check && d.lines[i].remedy &&
                    d.lines[i].status >= DS_DOCTOR_FOUND && d.lines[i].status <= DS_DOCTOR_FIXED);
    } else
        require(strncmp(err.msg, "s, line ", 8) == 0);
    ds_doctor_free(&d);
    return 0;
}
