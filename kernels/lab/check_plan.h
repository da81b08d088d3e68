/* check_plan.h: private to the lab's check: what a property's measurement sees and calls. One plan
 * for ops whose rows stand alone (check_rows.c), one for attention (check_attention.c). */
#ifndef DS_LAB_CHECK_PLAN_H
#define DS_LAB_CHECK_PLAN_H

#include "kernels/lab/check.h"
#include "kernels/lab/subject.h"

/* Lives in the child. */
struct ds_check {
    struct ds_subject *subject;
    const struct ds_check_options *opt;
    struct ds_check_result *out;         /* shared with the parent */
    struct ds_property_result *property; /* the one measured now */
    double budget;                       /* left for it */
    void *own;                           /* of the plan: references kept from one property to the
                                             next; freed by the plan's close */
    struct ds_error *err;
};

/* A property sets c->property->note and state NOT_APPLICABLE by itself where it does not apply; else
 * its state follows from what was compared. 0, or -1 with c->err when the lab failed. */
typedef int (*ds_check_fn)(struct ds_check *c);

struct ds_check_plan {
    int (*open)(struct ds_check *c); /* sets c->own; may be NULL */
    void (*close)(struct ds_check *c);
    ds_check_fn property[DS_PROPERTY_COUNT]; /* NULL: does not apply to the op */
    ds_check_fn accuracy, speed;             /* may be NULL */
};
extern const struct ds_check_plan ds_check_rows_plan, ds_check_attention_plan;

/* The base setting of all properties: threads of the base, everything else plain. The segments are
 * the caller's. */
struct ds_call ds_check_call(const struct ds_check *c, const struct ds_segment *seg, int64_t n);

/* Runs a call: 1 = *out has its rows, 0 = it has none (over the budget, a setting that crashed
 * before, a fault: counted and noted already), -1 = the lab failed. Damage to memory is noted with
 * the setting whatever property is measured. */
int ds_check_launch(struct ds_check *c, const struct ds_call *call, struct ds_output *out);
/* The same without a budget, for the reference that everything else is held against. */
int ds_check_launch_base(struct ds_check *c, const struct ds_call *call, struct ds_output *out);

/* What a call costs of the budget. */
double ds_check_cost(const struct ds_check *c, const struct ds_call *call);

/* What describe says of a call that is not launched: 1 = *info, 0 = nothing, -1 = the lab failed. */
int ds_check_describe(struct ds_check *c, const struct ds_call *call, struct ds_launch_info *info);

/* check_choice.c: settings counted by one number, and where along them the launch choice changes. */
struct ds_choice_of {
    int threads;
    int32_t slot; /* attention: of the row that is looked at, where it is not what is counted */
};
typedef int (*ds_choice_fn)(struct ds_check *c, const struct ds_choice_of *of, int32_t setting,
                            struct ds_launch_info *info);
struct ds_border {
    int32_t at; /* the choice here is not that of at - 1 */
    int fresh;  /* ... nor any that came before */
};
struct ds_borders {
    struct ds_border *border;
    size_t n, cap;
};
/* Asks at every setting 1..to, in ascending order; none where the kernel has no describe or does not
 * answer. *out is released with ds_borders_free also after -1. */
int ds_borders_find(struct ds_check *c, const struct ds_choice_of *of, ds_choice_fn ask, int32_t to,
                    struct ds_borders *out);
void ds_borders_free(struct ds_borders *b);
/* At most so many of the borders above..up_to; returns how many. */
size_t ds_borders_pick(const struct ds_borders *b, int32_t above, int32_t up_to, size_t most,
                       int32_t *at);
int ds_same_choice(const struct ds_launch_info *a, const struct ds_launch_info *b);
/* For the pair that was named last: what describe said of both launches. */
void ds_check_choices(struct ds_check *c, const struct ds_launch_info *ref,
                      const struct ds_launch_info *got);

/* Holds one row of `width` words against its reference, counts it, and returns 1 when it differs and
 * is the smallest pair so far (by `cost`, the lower the smaller): the caller then writes the pair to
 * c->property->smallest by ds_check_pair. */
int ds_check_differs(struct ds_check *c, const uint32_t *ref, const uint32_t *got, int64_t width,
                     double cost);
void ds_check_pair(struct ds_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A result that is wrong, not only different (sizes, special): counted as a comparison that differs
 * if wrong is not 0; same return as above. */
int ds_check_wrong(struct ds_check *c, int wrong, double cost);
/* f32 rows so far apart that no order of addition explains it, as a rule; or NaN on one side. */
int ds_check_far_apart(const uint32_t *a, const uint32_t *b, int64_t width);
/* What judging rows that differ may still cost, in multiply-adds, for one property. What is far apart
 * is most of what is wrong, and has a purse of its own; the rest is judged until its is empty. */
struct ds_purse {
    const struct ds_property_result *of;
    double left[2];
};
int ds_check_may_judge(const struct ds_check *c, struct ds_purse *p, int far_apart, double cost);
void ds_check_not_applicable(struct ds_check *c, const char *why);

/* Activations of 16 bits (check_stored.c): nothing for a kernel that takes f32 alone. */
int ds_check_takes_stored(const struct ds_check *c);
int ds_check_stored(struct ds_check *c);

/* Times n calls beside the vendor's variant (check_speed.c) and fills c->out->speed. */
int ds_check_speed(struct ds_check *c, const struct ds_call *call, int n);

/* Classes of one row's bits over an ascending list of numbers: add each, then print "1-3 | 4-7 | 8-"
 * into c->property. A number that comes back to an earlier class is written there: "1-3 8 | 4-7". */
enum { DS_CLASS_VALUES = 520, DS_CLASS_MOST = 24 };
struct ds_classes {
    int64_t value[DS_CLASS_VALUES];
    uint64_t bits[DS_CLASS_VALUES]; /* a hash of the row's words */
    int n;
    /* Numbers up to it and above it are no neighbours: those between were not tried; 0: all are. */
    int64_t apart;
    char at[64]; /* as ds_property_result.classes_at */
};
void ds_classes_add(struct ds_classes *k, int64_t value, const uint32_t *row, int64_t width);
/* Printed in place of what is there. */
void ds_classes_print(struct ds_check *c, const struct ds_classes *k, const char *of);
/* None: those that are there are of another pair. */
void ds_classes_drop(struct ds_check *c);

#endif
