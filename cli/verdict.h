/* verdict.h: inside cli/ only: how the verbs make and print a verdict. */
#ifndef DS_CLI_VERDICT_H
#define DS_CLI_VERDICT_H

#include "cli/cli.h"
#include "report/report.h"

/* How this program was called, for the commands that a report suggests. */
extern const struct ds_report_caller ds_cli_caller;

/* Sets what a report cannot know: colours and the caller. */
void ds_cli_report(const struct ds_options *o, struct ds_report *r);

/* Makes the verdict of a source and prints it (text or --json). r and path: the record it comes
 * from, or NULL. */
int ds_cli_verdict(const struct ds_options *o, const struct ds_source *s, struct ds_record *r,
                   const char *path, int *exit_code, struct ds_error *err);

#endif
