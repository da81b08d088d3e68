/* render_site.h: inside cli/ only: one site of one arm in detail: rows, and the values of both
 * sides where they are dumped. */
#ifndef DS_RENDER_SITE_H
#define DS_RENDER_SITE_H

#include "cli/render_verdict.h"

struct ds_site_view {
    const struct ds_render *r;
    struct ds_analysis *a;
    const struct ds_source *s;
    uint32_t arm, ref; /* equal: repeats of one arm */
    /* As in ds_diff_options: side 0 is the reference. */
    int (*blob)(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err);
    void *ctx;
};

/* Reads "LAYER,STAGE[/PART]" or "STAGE[/PART]" (first layer that has it). 0, or -1 with an error
 * that names the nearest stage. */
int ds_parse_site(const struct ds_header *h, const char *text, uint32_t *site,
                  struct ds_error *err);

int ds_render_site(const struct ds_site_view *w, uint32_t site, struct ds_buf *out,
                   struct ds_error *err);

/* The grid of the pair with its heading. */
int ds_render_sites(const struct ds_site_view *w, struct ds_buf *out, struct ds_error *err);

#endif
