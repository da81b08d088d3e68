/* test_sim_portable.c: the tests of test_sim.c on fibers that are made with swapcontext, as on processors
 * for which there is no switch of our own (see the Makefile). */
#include "tests/unit/kernels/test_sim.c"
