/* page.h: one self-contained page of HTML about records: no script, nothing from elsewhere. Sections are added record by record;
 * what is said of all of them together stands before. Lays out; judges nothing. Texts are escaped on the way. */
#ifndef DS_PAGE_H
#define DS_PAGE_H

#include "report/environment.h"
#include "report/figure.h"
#include "report/report.h"

struct ds_page {
    struct ds_buf top, list, body; /* about all records; links to them; a section for each */
    size_t n_records, n_figures;
};
void ds_page_free(struct ds_page *p);

/* role: of the result. sentence: escaped for a terminal. */
void ds_page_begin_record(struct ds_page *p, const char *path, const struct ds_header *h,
                          const char *sentence, enum ds_role role);
/* The same of what is no record; facts: escaped for a terminal. */
void ds_page_begin(struct ds_page *p, const char *path, const char *start, const char *facts,
                   const char *sentence, enum ds_role role);
void ds_page_end_record(struct ds_page *p);
/* Kernel x factor; nothing where nothing was compared. */
void ds_page_matrix(struct ds_page *p, const struct ds_report *r);
/* The paragraphs of the verdict, but for those that are figures here. */
void ds_page_verdict(struct ds_page *p, const struct ds_report *r);
/* A figure of the record at work; top: of all records. f->id must be ds_page_figure_id's. */
void ds_page_figure_id(struct ds_page *p, struct ds_figure *f);
void ds_page_figure(struct ds_page *p, const struct ds_figure *f, int top);
/* A table with a heading, and a sentence about it. */
void ds_page_table(struct ds_page *p, const char *heading, const char *about,
                   const struct ds_buf *tsv, int top);
int ds_page_environment(struct ds_page *p, const struct ds_env_of *w, struct ds_error *err);
/* The whole page. made: what made it, and of what; both escaped for a terminal. */
void ds_page_print(const struct ds_page *p, const char *title, const char *made,
                   struct ds_buf *out);

#endif
