/* check.c: see check.h. The parent starts a child that measures one unit (property) after the other
 * into shared memory. A unit in which the child dies is measured again from its start by the next
 * child, which leaves out the settings that were fatal; after a few it is given up. */
#include "kernels/lab/check.h"

#include "base/buf.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "kernels/device.h"
#include "kernels/lab/check_first.h"
#include "kernels/lab/check_plan.h"
#include "kernels/lab/contain.h"
#include "kernels/lab/content.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCURACY = DS_PROPERTY_COUNT, SPEED, UNITS };
enum { MOST_FATAL = 5, MOST_FATAL_ALL = 64, MOST_HANGS = 2 };
/* Work units of one property at one shape; batch, which has most settings, gets three times as many. */
static const double BUDGET = 5e8, LAUNCH_SECONDS = 20;

/* What parent and child share. */
struct shared {
    struct ds_contained contained;
    struct ds_check_result result;
    int unit;           /* measured now, or to be measured first */
    uint64_t launching; /* the setting that runs now; 0 = none */
    char setting[160];
    int64_t rows;                   /* of it */
    uint64_t fatal[MOST_FATAL_ALL]; /* settings that ended a child */
    int n_fatal, hangs;
    struct ds_first first;
};

/* What the child is started with. */
struct job {
    const struct ds_kernel *kernel;
    const struct ds_shape *shape;
    const struct ds_check_options *opt;
    struct shared *shared;
};

/* The one check that runs in this process: launches are few, and the struct that plans see is theirs.
 */
static struct shared *at;

/* ---- names ---------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t claim;
    int always;
} properties[DS_PROPERTY_COUNT] = {
    [DS_PROPERTY_REPEAT] = {"repeat", DS_CLAIM_REPEAT, 0},
    [DS_PROPERTY_BATCH] = {"batch", DS_CLAIM_BATCH, 0},
    [DS_PROPERTY_SLOT] = {"slot", DS_CLAIM_SLOT, 0},
    [DS_PROPERTY_NEIGHBOURS] = {"neighbours", DS_CLAIM_SLOT, 0},
    [DS_PROPERTY_THREADS] = {"threads", DS_CLAIM_THREADS, 0},
    [DS_PROPERTY_CHUNK] = {"chunk", DS_CLAIM_CHUNK, 0},
    [DS_PROPERTY_ALIGNMENT] = {"alignment", 0, 0},
    [DS_PROPERTY_SIZES] = {"sizes", 0, 1},
    [DS_PROPERTY_MEMORY] = {"memory", 0, 1},
    [DS_PROPERTY_SPECIAL] = {"special", 0, 0},
    [DS_PROPERTY_FORMATS] = {"formats", 0, 1},
};

const char *ds_property_name(int property)
{
    return property >= 0 && property < DS_PROPERTY_COUNT ? properties[property].name : NULL;
}

uint32_t ds_property_claim(int property)
{
    return properties[property].claim;
}

int ds_property_always(const struct ds_kernel *k, int property)
{
    return properties[property].always &&
           (property != DS_PROPERTY_FORMATS || !(k->features & DS_FEATURE_OWN_FORMATS));
}

int ds_check_failure(const struct ds_kernel *k, const struct ds_check_result *r)
{
    /* What uses memory that is not its own may be anything else besides. */
    if (r->property[DS_PROPERTY_MEMORY].state == DS_STATE_BROKEN)
        return DS_PROPERTY_MEMORY;
    for (int p = 0; p < DS_PROPERTY_COUNT; p++)
        if (r->property[p].state == DS_STATE_BROKEN &&
            (ds_property_always(k, p) || (k->claims & properties[p].claim)))
            return p;
    return -1;
}

int ds_check_died(const struct ds_check_result *r)
{
    for (int i = 0; i < r->n_faults; i++)
        if (r->fault[i].fault.kind >= DS_FAULT_CRASH)
            return 1;
    return 0;
}

/* ---- for plans: launching --------------------------------------------------------------------------- */

struct ds_call ds_check_call(const struct ds_check *c, const struct ds_segment *seg, int64_t n)
{
    return (struct ds_call){.segment = seg,
                            .n_segments = n,
                            .threads = c->opt->threads[0],
                            .poison = DS_POISON_NAN,
                            .seed = 1};
}

/* A setting, whatever the rows hold and however threads are disturbed: what ends a process there is
 * most likely to end it again. Never 0. */
static uint64_t identity(const struct ds_check *c, const struct ds_call *call)
{
    const int64_t numbers[] = {call->threads,     call->place,
                               call->gap,         call->bias,
                               call->page_size,   (int64_t)call->permute,
                               call->spare_slots, (int64_t)call->features,
                               call->window,      (int64_t)ds_f32_bits(call->soft_cap),
                               call->stored,      call->wide};
    const struct ds_shape *s = ds_subject_shape(c->subject);
    const int attention = s->op == DS_OP_ATTENTION;
    uint64_t h = ds_content_hash((uint64_t)s->n, (uint64_t)s->k);
    h = ds_content_hash(h, (uint64_t)(s->width + s->vocab + s->experts));
    h = ds_content_hash(h, (uint64_t)(s->heads * 1000 + s->head_dim));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        h = ds_content_hash(h, (uint64_t)numbers[i]);
    for (int64_t i = 0; i < call->n_segments; i++) {
        const struct ds_segment *g = &call->segment[i];
        if (attention)
            h = ds_content_hash(h, (uint64_t)(uint32_t)g->sequence << 32 | (uint32_t)g->first);
        h = ds_content_hash(h, (uint64_t)(uint32_t)g->length << 32 | (uint32_t)g->padding);
    }
    return h ? h : 1;
}

static int is_fatal(uint64_t id)
{
    for (int i = 0; i < at->n_fatal; i++)
        if (at->fatal[i] == id)
            return 1;
    return 0;
}

static void note_fault(struct ds_check_result *r, const struct ds_fault *f, int property,
                       const char *setting, int64_t rows)
{
    for (int i = 0; i < r->n_faults; i++) {
        struct ds_check_fault *have = &r->fault[i];
        if (have->fault.kind == f->kind && strcmp(have->fault.array, f->array) == 0 &&
            have->fault.write == f->write && (have->fault.col < 0) == (f->col < 0) &&
            have->fault.signal == f->signal) {
            have->times++;
            if (rows < have->rows) {
                have->fault = *f;
                have->property = property;
                have->rows = rows;
                snprintf(have->setting, sizeof have->setting, "%s", setting);
            }
            return;
        }
    }
    if (r->n_faults == DS_MOST_FAULTS)
        return;
    struct ds_check_fault *x = &r->fault[r->n_faults++];
    x->fault = *f;
    x->property = property;
    x->times = 1;
    x->rows = rows;
    snprintf(x->setting, sizeof x->setting, "%s", setting);
}

/* Writes the setting where the parent finds it when this launch is the last. */
static void announce(const struct ds_call *call, uint64_t id)
{
    struct ds_buf b = {0};
    ds_call_print(&b, call);
    snprintf(at->setting, sizeof at->setting, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
    at->rows = ds_call_rows(call);
    at->launching = id;
    at->contained.beats++;
}

static int launch(struct ds_check *c, const struct ds_call *call, struct ds_output *out)
{
    const uint64_t id = identity(c, call);
    if (is_fatal(id)) {
        c->property->not_tried++;
        return 0;
    }
    announce(call, id);
    ds_contain_watch(ds_subject_arena(c->subject));
    int rc = ds_subject_run(c->subject, call, out, c->err);
    ds_contain_watch(NULL);
    at->launching = 0;
    at->contained.beats++;
    c->out->launches++;
    if (rc != 0)
        return -1;
    if (out->fault.kind == DS_FAULT_NONE)
        return 1;
    note_fault(c->out, &out->fault, (int)(c->property - c->out->property), at->setting, at->rows);
    if (out->fault.kind == DS_FAULT_REFUSED) {
        if (!c->property->note[0])
            snprintf(c->property->note, sizeof c->property->note, "refuses %.80s: %.90s",
                     at->setting, out->fault.text);
        c->property->not_tried++;
        return 0;
    }
    /* What a row holds that was not written says nothing about the row. */
    if (out->fault.kind == DS_FAULT_UNWRITTEN || out->fault.kind == DS_FAULT_WROTE_OTHER ||
        out->fault.kind == DS_FAULT_DEVICE) {
        c->property->not_tried++;
        return 0;
    }
    return 1;
}

int ds_check_launch_base(struct ds_check *c, const struct ds_call *call, struct ds_output *out)
{
    return launch(c, call, out);
}

/* Its work, and filling and looking through its rows (weights stay). */
double ds_check_cost(const struct ds_check *c, const struct ds_call *call)
{
    const struct ds_call none = {.threads = 1};
    return ds_subject_work(c->subject, call) +
           2 * (ds_subject_bytes(c->subject, call) - ds_subject_bytes(c->subject, &none));
}

int ds_check_launch(struct ds_check *c, const struct ds_call *call, struct ds_output *out)
{
    const double work = ds_check_cost(c, call);
    if (work > c->budget && !c->opt->full) {
        c->property->not_tried++;
        return 0;
    }
    c->budget -= work;
    return launch(c, call, out);
}

int ds_check_describe(struct ds_check *c, const struct ds_call *call, struct ds_launch_info *info)
{
    at->contained.beats++;
    return ds_subject_describe(c->subject, call, info, c->err);
}

/* ---- the child -------------------------------------------------------------------------------------------- */

static const struct ds_check_plan *plan_of(int op)
{
    return op == DS_OP_ATTENTION ? &ds_check_attention_plan : &ds_check_rows_plan;
}

static int measure_unit(struct ds_check *c, const struct ds_check_plan *plan, int unit)
{
    /* Accuracy and speed launch, too: what goes wrong there is noted at memory. */
    c->property = &c->out->property[unit < DS_PROPERTY_COUNT ? unit : DS_PROPERTY_MEMORY];
    c->budget = c->opt->budget > 0 ? c->opt->budget : BUDGET;
    if (unit >= DS_PROPERTY_COUNT && c->opt->only)
        return 0;
    if (unit == DS_PROPERTY_BATCH)
        c->budget *= 3;
    if (unit == ACCURACY)
        return plan->accuracy ? plan->accuracy(c) : 0;
    if (unit == SPEED)
        return plan->speed && !c->opt->no_speed ? plan->speed(c) : 0;
    if (c->opt->only && !(c->opt->only >> unit & 1))
        return 0;
    if (!plan->property[unit]) {
        ds_check_not_applicable(c, "does not apply to this op");
        return 0;
    }
    return plan->property[unit](c);
}

/* A library that the kernel opens to find out is opened here, where threads of its own do no harm. */
static int can_run(const struct ds_kernel *k, struct ds_check_result *r)
{
    if (ds_kernel_available(k, r->why_not, sizeof r->why_not) == 0) {
        r->why_not[0] = '\0';
        return 1;
    }
    if (!r->why_not[0])
        snprintf(r->why_not, sizeof r->why_not, "it cannot run here");
    return 0;
}

/* Whether the process's first calls are kept and held. */
static int holds_first(const struct ds_check_options *opt)
{
    return !opt->only_speed && (!opt->only || opt->only >> DS_PROPERTY_REPEAT & 1);
}

/* The first calls again, as part of repeat, whatever unit ran before. */
static int hold_first(struct ds_check *c, const char *when)
{
    c->property = &c->out->property[DS_PROPERTY_REPEAT];
    return ds_first_hold(c, &at->first, when);
}

/* What fails might be a kernel that seldom disagrees with itself: then nothing that was changed is to blame. */
static int doubt_failure(struct ds_check *c, const struct ds_check_plan *plan)
{
    struct ds_property_result *repeat = &c->out->property[DS_PROPERTY_REPEAT],
                              *memory = &c->out->property[DS_PROPERTY_MEMORY];
    const struct ds_kernel *k = ds_subject_kernel(c->subject);
    int broken = 0;
    for (int p = 0; p < DS_PROPERTY_COUNT; p++)
        broken |= c->out->property[p].differ &&
                  (ds_property_always(k, p) || (k->claims & properties[p].claim));
    if (!broken || repeat->differ)
        return 0;
    c->property = repeat;
    if (ds_first_insist(c, &at->first) != 0)
        return -1;
    if (!repeat->differ || !memory->differ)
        return 0;
    memset(memory, 0, sizeof *memory);
    return measure_unit(c, plan, DS_PROPERTY_MEMORY);
}

static int child(void *arg, struct ds_contained *contained, struct ds_error *err)
{
    const struct job *j = arg;
    const struct ds_check_plan *plan = plan_of(j->kernel->op);
    struct ds_check c = {.opt = j->opt, .out = &j->shared->result, .err = err};
    (void)contained;
    at = j->shared;
    if (!can_run(j->kernel, c.out))
        return 0;
    c.subject = ds_subject_new(j->kernel, j->shape, j->opt->seed, err);
    if (!c.subject)
        return -1;
    int rc = plan->open ? plan->open(&c) : 0;
    if (rc == 0 && at->unit == 0 && holds_first(j->opt)) {
        c.property = &c.out->property[DS_PROPERTY_REPEAT];
        rc = ds_first_keep(&c, &at->first);
    }
    for (; rc == 0 && at->unit < UNITS; at->unit++) {
        at->contained.beats++;
        if (at->unit == ACCURACY && holds_first(j->opt))
            rc = hold_first(&c, "again, after all other calls");
        if (rc == 0 && at->unit == ACCURACY && holds_first(j->opt))
            rc = doubt_failure(&c, plan);
        rc = rc == 0 ? measure_unit(&c, plan, at->unit) : rc;
    }
    if (plan->close)
        plan->close(&c);
    ds_subject_free(c.subject);
    return rc;
}

/* In a process that has launched nothing: other calls first. */
static int fresh_child(void *arg, struct ds_contained *contained, struct ds_error *err)
{
    const struct job *j = arg;
    struct ds_check c = {.opt = j->opt, .out = &j->shared->result, .err = err};
    (void)contained;
    at = j->shared;
    c.property = &c.out->property[DS_PROPERTY_REPEAT];
    if (!can_run(j->kernel, c.out))
        return 0;
    c.subject = ds_subject_new(j->kernel, j->shape, j->opt->seed, err);
    int rc = c.subject ? ds_first_others(&c) : -1;
    if (rc == 0)
        rc = hold_first(&c, "again, in a process that began with a call of many rows");
    ds_subject_free(c.subject);
    return rc;
}

/* ---- the parent ------------------------------------------------------------------------------------------- */

/* The unit will be measured from its start again. */
static void forget_unit(struct shared *s)
{
    if (s->unit < DS_PROPERTY_COUNT)
        memset(&s->result.property[s->unit], 0, sizeof s->result.property[0]);
    if (s->unit == ACCURACY)
        memset(&s->result.accuracy, 0, sizeof s->result.accuracy);
    if (s->unit == SPEED)
        s->result.n_speeds = 0;
}

/* A kernel that never ends costs the device's whole patience each time: nothing more is asked of it. On the host it
 * costs LAUNCH_SECONDS, and is asked MOST_HANGS times: other settings may be those at which it ends. */
static int is_stuck(const struct ds_fault *f)
{
    return f->kind == DS_FAULT_DEVICE && strstr(f->text, DS_DEVICE_STUCK);
}

static void give_up(struct shared *s)
{
    for (; s->unit < UNITS; s->unit++)
        if (s->unit < DS_PROPERTY_COUNT && !s->result.property[s->unit].compared)
            snprintf(s->result.property[s->unit].note, sizeof s->result.property[s->unit].note,
                     "a launch did not come to an end");
}

/* Decides what a dead child means: the next one goes on behind the setting or behind the unit. */
static void after_death(struct shared *s, int *deaths_in_unit)
{
    struct ds_property_result *p =
        &s->result.property[s->unit < DS_PROPERTY_COUNT ? s->unit : DS_PROPERTY_MEMORY];
    const struct ds_fault *f = &s->contained.fault;
    const int unit = s->unit;
    const int known = s->launching && s->n_fatal < MOST_FATAL_ALL;
    note_fault(&s->result, f, unit < DS_PROPERTY_COUNT ? unit : DS_PROPERTY_MEMORY,
               s->launching ? s->setting : "outside of any launch", s->launching ? s->rows : 0);
    if (known)
        s->fatal[s->n_fatal++] = s->launching;
    s->launching = 0;
    ++*deaths_in_unit;
    /* A hang costs its whole time limit: one a unit is enough. */
    if (known && *deaths_in_unit <= MOST_FATAL && f->kind != DS_FAULT_HANG && !is_stuck(f)) {
        forget_unit(s);
        return;
    }
    forget_unit(s);
    s->hangs += f->kind == DS_FAULT_HANG;
    if (is_stuck(f) || s->hangs >= MOST_HANGS) {
        give_up(s);
        return;
    }
    if (unit < DS_PROPERTY_COUNT)
        snprintf(p->note, sizeof p->note, "given up after %d child process%s died", *deaths_in_unit,
                 *deaths_in_unit == 1 ? "" : "es");
    s->unit++;
    *deaths_in_unit = 0;
}

/* A unit's state follows from what was compared, memory's from every launch. */
static void conclude(struct ds_check_result *r)
{
    struct ds_property_result *m = &r->property[DS_PROPERTY_MEMORY];
    for (int i = 0; i < DS_PROPERTY_COUNT; i++) {
        struct ds_property_result *p = &r->property[i];
        if (p->state == DS_STATE_NOT_RUN && (p->compared || p->differ))
            p->state = p->differ ? DS_STATE_BROKEN : DS_STATE_HOLDS;
    }
    for (int i = 0; i < r->n_faults; i++) {
        struct ds_buf b = {0};
        if (r->fault[i].fault.kind == DS_FAULT_REFUSED)
            continue;
        ds_fault_print(&b, &r->fault[i].fault);
        if (m->state != DS_STATE_BROKEN || !m->smallest_cost || i == 0)
            snprintf(m->smallest, sizeof m->smallest, "%s, with %s", b.data ? b.data : "",
                     r->fault[i].setting);
        m->state = DS_STATE_BROKEN;
        m->differ += r->fault[i].times, m->compared += r->fault[i].times;
        ds_buf_free(&b);
        break;
    }
}

/* A kernel may keep what it met first in a process. Not where the making of the arrays costs more than
 * the rest, nor where a launch ended a process: those have no result to be held against. */
static int run_fresh(struct job *j, double limit, struct ds_error *err)
{
    static const double MOST = 4e6;
    struct shared *s = j->shared;
    const double weights =
        (double)(j->shape->n * j->shape->k) + (double)(j->shape->vocab * j->shape->width);
    if (!holds_first(j->opt) || s->result.why_not[0] || ds_check_died(&s->result))
        return 0;
    if (weights > MOST && !j->opt->full) {
        s->result.property[DS_PROPERTY_REPEAT].not_tried += DS_FIRST_CALLS;
        return 0;
    }
    if (ds_contain(&s->contained, fresh_child, j, limit, err) != 0)
        return -1;
    if (s->contained.finished && s->contained.rc != 0 && ds_error_is_memory(&s->contained.error))
        return ds_fail(err, "%.900s", s->contained.error.msg);
    if (!s->contained.finished && s->launching)
        note_fault(&s->result, &s->contained.fault, DS_PROPERTY_REPEAT, s->setting, s->rows);
    return 0;
}

static int run(struct job *j, struct ds_error *err)
{
    struct shared *s = j->shared;
    const double limit = j->opt->launch_seconds > 0 ? j->opt->launch_seconds : LAUNCH_SECONDS;
    int deaths_in_unit = 0, last_unit = 0;
    while (s->unit < UNITS) {
        if (ds_contain(&s->contained, child, j, limit, err) != 0)
            return -1;
        if (s->contained.finished) {
            if (s->contained.rc != 0 && ds_error_is_memory(&s->contained.error))
                return ds_fail(err, "%.900s", s->contained.error.msg);
            if (s->contained.rc != 0)
                snprintf(s->result.why_not, sizeof s->result.why_not, "%.250s",
                         s->contained.error.msg);
            break;
        }
        if (s->unit != last_unit)
            deaths_in_unit = 0;
        last_unit = s->unit;
        after_death(s, &deaths_in_unit);
        last_unit = s->unit;
    }
    if (!is_stuck(&s->contained.fault) && run_fresh(j, limit, err) != 0)
        return -1;
    conclude(&s->result);
    return 0;
}

int ds_check_run(const struct ds_kernel *k, const struct ds_shape *shape,
                 const struct ds_check_options *opt, struct ds_check_result *out,
                 struct ds_error *err)
{
    struct shared *s = ds_contain_map(sizeof *s, err);
    if (!s)
        return -1;
    struct job j = {k, shape, opt, s};
    s->unit = opt->only_speed ? SPEED : 0;
    int rc = run(&j, err);
    *out = s->result;
    ds_contain_unmap(s, sizeof *s);
    return rc;
}
