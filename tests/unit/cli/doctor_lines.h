/* doctor_lines.h: launch lines for tests of the doctor. */
#ifndef DS_DOCTOR_LINES_H
#define DS_DOCTOR_LINES_H

#include "tests/unit/testing.h"

#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline void parse(const char *text, struct ds_doctor_commands *out)
{
    struct ds_error err;
    memset(out, 0, sizeof *out);
    assert_ok(ds_doctor_parse("script", text, strlen(text), out, &err), err);
}

#endif
