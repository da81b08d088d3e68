/* norm.c */
#include "specimen.h"
const struct ds_kernel specimen_norm[] = {{.name = NULL}};
