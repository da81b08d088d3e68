/* recorded_model.h: inside cli/ only: the model of verbs that are given a record or a lock, which names one. */
#ifndef DS_CLI_RECORDED_MODEL_H
#define DS_CLI_RECORDED_MODEL_H

#include "cli/cli.h"
#include "dumps/record.h"

/* What a file from outside says of its model. */
struct ds_recorded_model {
    const char *what;                       /* "record", "lock" */
    const char *name;                       /* NULL: it says none */
    const struct ds_record_weight *weights; /* NULL: it lists none, as a lock */
    size_t n_weights;
};

/* Of a record's header. */
struct ds_recorded_model ds_recorded_model_of(const struct ds_header *h);

/* What model to open, as *name, borrowed: that of -m; where none is given, the recorded one if its name is a random:
 * name, which a note says; else the default. Never a file that a record names: paths come from the command line alone.
 * The recorded name is believed in nothing: -1 where it is no random: name, or asks for other weights than are listed, or
 * for more memory than a name of someone else is given. `recorded` NULL: there is no such file. */
int ds_cli_model(const struct ds_options *o, const struct ds_recorded_model *recorded,
                 const char **name, struct ds_error *err);

#endif
