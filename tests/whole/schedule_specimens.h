/* schedule_specimens.h: schedules with one known fault each, for test_schedules.c. */
#ifndef DS_TESTS_SCHEDULE_SPECIMENS_H
#define DS_TESTS_SCHEDULE_SPECIMENS_H

#include "kernels/registry.h"
#include "tests/unit/testing.h"

/* Decode rows stand one position too far. */
static int far_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; a->phase == 1 && i < a->rows; i++)
        a->positions[i]++;
    return 0;
}

/* In the third call of a trial the newest slot is overwritten, and from then on one is missing. */
static int forget_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; a->call == 2 && i < a->n_sequences; i++)
        a->sequences[i].kv_len--;
    return 0;
}

/* Every request writes where the next one does. */
static int page_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences * a->pages_each; i++)
        a->page_table[i] = (int32_t)((a->page_table[i] + 1) % a->pages);
    return 0;
}

/* After a rejection one slot too many is given back. */
static int trim_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        a->sequences[i].kv_len -= a->past[i].trimmed > 0;
    return 0;
}

/* All rows of the batch go on as the one that kept most of its drafts. */
static int uniform_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    int32_t least = INT32_MAX;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        least = a->past[i].trimmed < least ? a->past[i].trimmed : least;
    for (int64_t i = 0; i < a->n_sequences; i++)
        a->sequences[i].kv_len += a->past[i].trimmed - least;
    return 0;
}

/* A prefix hit starts again at position 0. */
static int restart_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->n_sequences; i++)
        for (int64_t k = 0; a->past[i].cached && k < a->sequences[i].q_len; k++)
            a->positions[a->sequences[i].q_first + k] = (int32_t)k;
    return 0;
}

/* Results of rows that a prefix hit did not compute are whatever the memory held. */
static int unfilled_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; !a->cached[r] && j < a->vocab; j++)
            a->y[r * a->ldy + j] = a->logits[r * a->ldx + j];
    return 0;
}

/* A token that was there before is worth less. */
static int penalty_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t j = 0; j < a->vocab; j++)
            a->y[r * a->ldy + j] = a->logits[r * a->ldx + j];
        for (int32_t t = 0; t < a->n_tokens[r]; t++)
            a->y[r * a->ldy + a->tokens[r][t]] -= 4.0f;
    }
    return 0;
}

/* What no engine can follow. */
static int which_lie;
static int lie_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_schedule_args *a = args;
    struct ds_sequence *s = &a->sequences[a->n_sequences - 1];
    (void)exec, (void)why, (void)why_size;
    if (a->call != 1)
        return 0;
    switch (which_lie) {
    case 0:
        a->positions[a->rows - 1] = (int32_t)a->table_positions;
        break;
    case 1:
        a->positions[0] = -1;
        break;
    case 2:
        s->kv_len = (int32_t)a->capacity + 1;
        break;
    case 3:
        s->kv_len = s->q_len - 1;
        break;
    case 4:
        s->kv_first = s->kv_len + 1;
        break;
    case 5:
        a->page_table[0] = (int32_t)a->pages;
        break;
    case 6:
        s->pages++;
        break;
    case 7:
        s->q_len = 2;
        break;
    default:
        s->request++;
    }
    return 0;
}

#define PROCESS(NAME, LAUNCH)                                                                      \
    {                                                                                              \
        .abi = DS_KERNEL_ABI, .op = DS_OP_PROCESS, .name = NAME, .summary = "a known fault",       \
        .launch = LAUNCH                                                                           \
    }

#define SCHEDULE(NAME, LAUNCH)                                                                     \
    {                                                                                              \
        .abi = DS_KERNEL_ABI, .op = DS_OP_SCHEDULE, .name = NAME, .summary = "a known fault",      \
        .launch = LAUNCH                                                                           \
    }

static const struct ds_kernel schedules[] = {
    SCHEDULE("far", far_launch),         SCHEDULE("forget", forget_launch),
    SCHEDULE("page", page_launch),       SCHEDULE("lie", lie_launch),
    SCHEDULE("trim", trim_launch),       SCHEDULE("uniform", uniform_launch),
    SCHEDULE("restart", restart_launch), PROCESS("unfilled", unfilled_launch),
    PROCESS("penalty", penalty_launch),
};

static int add_schedules(void **state)
{
    struct ds_error err;
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        assert_ok(ds_kernel_add(&schedules[i], &err), err);
    return 0;
}

#endif
