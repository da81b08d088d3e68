/* attention.c */
#include "specimen.h"
const struct ds_kernel specimen_attention[] = {{.name = NULL}};
