/* choice.h: of which part of a list choices are the largest: some of its entries alone, one group of them by row, one of
 * each stretch, all but the first. Pure, on numbers; knows no op and no record.
 *
 * How a claim is made. A row *tells* when its choices are not the largest of the whole list. A rule is claimed when it
 * gives the choices of every row, by value, so that ties do not matter, and enough rows tell: DS_CHOICE_TELLING, and so
 * many that choices at random, of so long a list, would not all fit it. */
#ifndef DS_CHOICE_H
#define DS_CHOICE_H

#include <stddef.h>
#include <stdint.h>

enum { DS_CHOICE_TELLING = 4, DS_CHOICE_TEXT = 200 };

struct ds_choice_row {
    const float *x;     /* [n] */
    const int32_t *ids; /* [top] what was chosen among them, best first */
};

/* 1 and a text such as "the 2 largest of experts 0-3 alone, in 7 of 8 rows not those of all"; 0: the rows are the largest
 * of all, or no rule gives them. what: "experts". used: [n] scratch. */
int ds_choice_part(const struct ds_choice_row *rows, size_t n_rows, int64_t n, int64_t top,
                   const char *what, uint8_t *used, char text[DS_CHOICE_TEXT]);

#endif
