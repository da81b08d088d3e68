/* fuzz_schedule.c: batch schedules as hostile text. What must hold: no crash; an error that names the line; or steps that
 * are written and read again as the same text, and of which ds_serve_check says that they can be run, or which not. */
#include "tests/fuzz/fuzz.h"

#include "cli/storm.h"

#include <stdlib.h>
#include <string.h>

static void is_read_again(const struct ds_serve_plan *p)
{
    struct ds_serve_plan second;
    struct ds_buf text = {0}, again = {0};
    struct ds_error err = {{0}, {0}};
    ds_schedule_text(p, &text);
    require(!text.failed && ds_schedule_parse("g", text.data, text.len, &second, &err) == 0);
    require(second.n_steps == p->n_steps && second.n_pieces == p->n_pieces);
    ds_schedule_text(&second, &again);
    require(text.len == again.len && memcmp(text.data, again.data, text.len) == 0);
    ds_serve_plan_free(&second);
    ds_buf_free(&text);
    ds_buf_free(&again);
}

/* A plan that can be run holds no row twice and none that was not computed. */
static void is_judged(struct ds_serve_plan *p)
{
    static const int32_t ids[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 9, 9, 9}};
    static const struct ds_serve_prompt prompts[] = {{.tokens = ids[0], .n = 6},
                                                     {.tokens = ids[1], .n = 6}};
    struct ds_error err = {{0}, {0}};
    size_t step = 0;
    if (ds_serve_check(p, prompts, 2, &step, &err) != 0) {
        require(step < p->n_steps && err.msg[0] != '\0');
        return;
    }
    require(p->slots >= 1 && p->capacity >= 1 && p->max_rows >= 1);
    for (size_t k = 0; k < p->n_pieces; k++) {
        const struct ds_serve_piece *x = &p->pieces[k];
        require(x->slot >= 0 && x->slot < p->slots && x->request < p->n_requests);
        require(x->n_tokens >= 1 && x->cached + x->n_tokens <= p->capacity);
    }
    is_read_again(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ds_serve_plan p;
    struct ds_error err = {{0}, {0}};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (ds_schedule_parse("f", text, size, &p, &err) == 0) {
        require(p.n_steps > 0);
        is_judged(&p);
        ds_serve_plan_free(&p);
    } else {
        require(strncmp(err.msg, "f, line ", 8) == 0 ||
                strcmp(err.msg, "f: the schedule has no steps") == 0);
    }
    free(text);
    return 0;
}
