/* testing.h: what every unit test includes: cmocka, and numeric asserts that a NaN cannot pass. */
#ifndef DS_TESTING_H
#define DS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/error.h"

#include <stdio.h>

/* Written at once, line by line: what a test that crashes or is ended wrote is not lost, messages of stdout and stderr stand in
 * the order in which they were written, and no child writes once more what waits. */
static void __attribute__((constructor)) write_lines_at_once(void)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

/* Fails unless the bits are equal; shows tensor, index, both values and their distance. */
#define assert_bits_equal(name, index, got, want)                                                  \
    do {                                                                                           \
        float got_ = (got), want_ = (want);                                                        \
        if (ds_f32_bits(got_) != ds_f32_bits(want_)) {                                             \
            print_error("%s[%ld]: got %.9g (%a), want %.9g (%a), %llu ulp apart\n", (name),        \
                        (long)(index), (double)got_, (double)got_, (double)want_, (double)want_,   \
                        (unsigned long long)ds_ulp_distance(DS_F32, ds_f32_bits(got_),             \
                                                            ds_f32_bits(want_)));                  \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* Fails unless |got - want| <= tol holds; so a NaN on either side fails. */
#define assert_close(name, index, got, want, tol)                                                  \
    do {                                                                                           \
        double got_ = (double)(got), want_ = (double)(want), tol_ = (double)(tol);                 \
        double diff_ = got_ > want_ ? got_ - want_ : want_ - got_;                                 \
        if (!(diff_ <= tol_)) {                                                                    \
            print_error("%s[%ld]: got %.9g (%a), want %.9g (%a), off by %.3g, allowed %.3g\n",     \
                        (name), (long)(index), got_, got_, want_, want_, diff_, tol_);             \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* Fails when a library call did not return 0, showing its error. */
#define assert_ok(call, err)                                                                       \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            print_error("%s: %s\n", #call, (err).msg);                                             \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#endif
