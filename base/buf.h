/* buf.h: a growing text or byte buffer, and the escaping of untrusted text. */
#ifndef DS_BUF_H
#define DS_BUF_H

#include "base/error.h"

#include <stdarg.h>
#include <stddef.h>

/* Zero-initialise to start. `data` is NUL-terminated once anything was added. `failed` is sticky:
 * after an allocation failure all additions are ignored and the caller checks once at the end. */
struct ds_buf {
    char *data;
    size_t len, cap;
    int failed;
};

void ds_buf_add(struct ds_buf *b, const void *bytes, size_t n);
void ds_buf_puts(struct ds_buf *b, const char *text);
void ds_buf_printf(struct ds_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds untrusted text with every control character, mark that turns the direction of writing, code point that is no
 * character, backslash and byte that is not well-formed UTF-8 written as \n, \t, \\ or \xNN, so that it is safe on a terminal. n = (size_t)-1: up to the
 * NUL. */
void ds_buf_escape(struct ds_buf *b, const char *text, size_t n);

/* Adds one argument of a command, quoted for a POSIX shell; for bytes that a terminal must not see,
 * in the $'...' form of bash and zsh. */
void ds_buf_quote(struct ds_buf *b, const char *arg);

/* The number of bytes (1..4) of the well-formed UTF-8 sequence at p with n bytes left, or 0.
 * Rejects overlong forms, surrogates and values above U+10FFFF (RFC 3629). */
int ds_utf8_len(const char *p, size_t n);

/* Writes all of it to a descriptor, whatever interrupts: 0, or -1 with errno. */
int ds_buf_write(const struct ds_buf *b, int fd);

void ds_buf_free(struct ds_buf *b);

/* A part of the text could not be made for want of memory. */
void ds_buf_lose(struct ds_buf *b);

/* Whether a text of this process lost a part for want of memory, wherever it was made: an answer that may
 * have it in it is not whole. */
int ds_buf_lost(void);

#endif
