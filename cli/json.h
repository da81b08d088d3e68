/* json.h: inside cli/ only: values of JSON as every verb prints them. JSON.md says what is printed. */
#ifndef DS_JSON_H
#define DS_JSON_H

#include "base/buf.h"
#include "base/error.h"

#include <jansson.h>

#include <stdint.h>

/* Names come from records, models and plugins, and may hold any byte: escaped text is always valid
 * UTF-8. null for NULL. */
json_t *ds_json_text(const char *s);
/* The text that was put together in `b`, which is freed; memory that ran out there is noticed, too. */
json_t *ds_json_buf(struct ds_buf *b);
/* JSON has no NaN or Inf: they are strings. */
json_t *ds_json_real(double x);
json_t *ds_json_whole(uint64_t x);
json_t *ds_json_digest(uint64_t x); /* 16 hex digits */

/* Before an object is made: from here on memory that runs out is noticed by ds_json_print. */
void ds_json_begin(void);
/* Prints one object with a newline, and lets it go. -1: memory ran out on the way. */
int ds_json_print(json_t *j, struct ds_buf *out, struct ds_error *err);
/* The same on one line: for objects with long lists of numbers. */
int ds_json_print_line(json_t *j, struct ds_buf *out, struct ds_error *err);

#endif
