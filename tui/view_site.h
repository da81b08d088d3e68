/* view_site.h: what the files of the view Site share. */
#ifndef DS_TUI_VIEW_SITE_H
#define DS_TUI_VIEW_SITE_H

#include "tui/view.h"

/* The table's sections, in this order; one without lines is not there. */
enum site_part {
    SITE_ROWS = 0,
    SITE_LAUNCH, /* both sides field by field */
    SITE_INPUTS,
    SITE_HEADS,
    SITE_CHANNELS,
    SITE_POSITIONS,
    SITE_PARTS
};
/* Columns before and behind those of the arms. */
enum {
    SITE_KEY = 0,
    SITE_KIND,
    SITE_STEP,
    SITE_LABEL,
    SITE_SIZE, /* in the metric of the place */
    SITE_BAR,
    SITE_ARMS,                    /* the first arm's */
    SITE_OTHERS = 3,              /* the other metrics */
    SITE_BEHIND = SITE_OTHERS + 2 /* and both digests */
};
enum { SITE_BAR_CELLS = 10, SITE_COMMANDS = 2 };
/* Cells that the columns before the arms' mostly take, with the cursor's and the scroll bar. */
enum { SITE_BEFORE_ARMS = 61 };
enum { SITE_HEAD = UINT32_MAX, SITE_FOLDED = UINT32_MAX - 1 }; /* of site_line.index */
struct site_line {
    uint32_t part,
        index; /* SITE_HEAD: the section's heading; SITE_FOLDED: what stands for its lines */
};
struct site_own {
    /* Asked anew before each use; NULL: not there (yet). */
    const struct tui_site *site;
    const struct tui_pair *pair;
    const struct ds_header *h;
    const struct tui_whole *whole;

    struct tui_place at; /* what lines and names are made for */
    int width;           /* of the table, likewise */
    int ascii, alone;    /* alone: one trial, compared with nothing */
    struct site_line *lines;
    size_t n_lines;
    size_t count[SITE_PARTS]; /* lines that a section has, folded or not */
    size_t first[SITE_PARTS]; /* where its lines begin; its heading stands before them */
    uint8_t folded[SITE_PARTS];
    uint32_t *rows; /* numbers of the rows that any arm has here */
    size_t n_rows, n_drift, n_missing, n_nonfinite;
    uint8_t *jump; /* [n_rows] */
    double most[SITE_PARTS];
    struct tui_column *columns;
    size_t n_columns, n_arms;
    char (*arm_name)[24];
    struct tui_column *old_columns; /* the table looks at them until it has the new source */
    char (*old_names)[24];
    /* Texts of the reference, of this side. */
    struct ds_report_launch_field field[DS_REPORT_LAUNCH_FIELDS];
    size_t n_fields;
    struct {
        const char *name;
        char text[480];
        size_t verb;          /* where it begins behind the program, which is as it was called */
    } command[SITE_COMMANDS]; /* that tell more of the kernel here than a record can */
    size_t n_commands;
    char kernel[2][256]; /* what they say of themselves */
    size_t n_kernels;
    char tree
        [256]; /* what the launches say of the order of addition; "" where nothing is added up */
};

/* Fills lines, columns and counts from own->site. -1: no memory. */
int site_lines_make(struct site_own *o, struct ds_error *err);
void site_lines_free(struct site_own *o);
/* Once the table has another source, or none. */
void site_old_free(struct site_own *o);
void site_source(struct site_own *o, struct tui_source *out);
/* The line of a row (number of its key); SIZE_MAX: none. */
size_t site_line_of(const struct site_own *o, size_t row);
/* The row that a line is about; for parts of a profile the first drifting one that can be, best
 * with values. */
size_t site_row_of(const struct site_own *o, size_t line);

static inline int site_drifts(int label)
{
    return label >= DS_LABEL_ORIGIN;
}
/* The parts of a section of the profile; returns how many. */
size_t site_parts(const struct tui_site *s, uint32_t part, const struct ds_profile_part **out);
/* The metric of column 0 .. SITE_OTHERS - 1 behind the arms. */
int site_metric_at(const struct site_own *o, size_t other);
/* One size in a metric: of a drifting row, of a part of the profile. */
double site_part_size(const struct ds_profile_part *p, int metric);
double site_drift_size(const struct ds_drift *d, int metric);
void site_size_text(double size, int metric, char *out, size_t n);

/* Lines above the table; `most` of them. */
int site_head_make(struct tui_view *v, const struct site_own *o, int most);
/* Launch fields and commands. */
void site_launch_make(struct site_own *o, const struct tui_context *c);
void site_panel(struct tui_view *v, const struct tui_context *c, struct tui_canvas *canvas,
                struct tui_rect r);

/* What the sides of a pair are called, the reference's (0) and this one's (1): "A" and "B" if they
 * are of two records, else "reference" and "this". */
const char *tui_side_name(const struct tui_whole *w, const struct tui_place *p, int side);

/* ---- shared with Tensor and Tokens ----------------------------------------------------------- */

/* The command line that shows a site of the place in text; nothing where the record has no path. */
void tui_site_command(const struct tui_context *c, uint32_t site, const char *more,
                      struct ds_buf *out);
/* The same stage and part in the next (1) or previous (-1) layer. 0, or -1 with a message. */
int tui_site_beside(const struct ds_header *h, uint32_t site, int step, uint32_t *out,
                    struct ds_error *err);
/* "L03 q_proj", "L00 kv_write/k", "embed". */
void tui_site_name(const struct ds_header *h, uint32_t site, char *out, size_t n);

#endif
