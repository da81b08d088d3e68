/* option_text.h: the options of a record as they are shown. Pure. */
#ifndef DS_OPTION_TEXT_H
#define DS_OPTION_TEXT_H

#include <stddef.h>

/* The value of an option; of one that holds a whole file (recorded inputs, the schedule of a serving run) its size and digest,
 * in out: whoever wants the file has it written by `replay`. */
const char *ds_option_text(const char *name, const char *value, char out[64]);

#endif
