/* rope.c */
#include "specimen.h"
const struct ds_kernel specimen_rope[] = {{.name = NULL}};
