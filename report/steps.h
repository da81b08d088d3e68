/* steps.h: one step of two arms in words; see dumps/steps.h. */
#ifndef DS_REPORT_STEPS_H
#define DS_REPORT_STEPS_H

#include "dumps/steps.h"
#include "report/report.h"

enum { DS_STEP_TEXT = 32 };
/* How far the logits drift: "=" not at all, "?" not known, "." not compared, else max abs. */
void ds_step_drift_text(const struct ds_step_pair *s, char out[DS_STEP_TEXT]);
/* "12.3x": the drift must be so many times as large; "within": it is large enough; "flipped"; "=" or "0 drift"; "." not
 * known. */
void ds_step_room_text(const struct ds_step_pair *s, char out[DS_STEP_TEXT]);
/* "first other token", "can flip", "tied", ... or "". names: of the sides, reference first. */
void ds_step_note_text(const struct ds_step_pair *s, const char *const names[2],
                       char out[DS_STEP_TEXT]);
/* This side's logit of an id, where it is among its top 8: 1. */
int ds_step_logit(const struct ds_step *s, int32_t id, float *out);

#endif
