/* numbers.h: included before every file by the compiler's command line (-include). It stops the
 * build when the compiler was told to change arithmetic, by whatever way the flag came (variables,
 * response files, specs, pragmas). */
#ifndef DS_NUMBERS_H
#define DS_NUMBERS_H

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||     \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error                                                                                             \
    "a fast-math flag is in force: it reorders sums and breaks isnan; driftscope must be built without it"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "float arithmetic is evaluated in a wider format (x87?): build with -mfpmath=sse"
#endif

#endif
