/* other.c */
#include "specimen.h"
const struct ds_kernel specimen_other[] = {{.name = NULL}};
