/* subject_words.c: a call in words: the settings that differ from the plain ones. */
#include "kernels/lab/subject.h"

#include "base/buf.h"

void ds_call_print(struct ds_buf *b, const struct ds_call *c)
{
    const int64_t rows = ds_call_rows(c);
    ds_buf_printf(b, "%lld row%s", (long long)rows, rows == 1 ? "" : "s");
    if (c->threads != 1)
        ds_buf_printf(b, ", %d threads", c->threads);
    if (c->place == DS_PLACE_END)
        ds_buf_puts(b, ", arrays end at a page");
    else if (c->place == DS_PLACE_START)
        ds_buf_puts(b, ", arrays start at a page");
    else if (c->place)
        ds_buf_printf(b, ", offset %d", c->place);
    if (c->gap)
        ds_buf_printf(b, ", gap %d", c->gap);
    if (c->bias)
        ds_buf_puts(b, ", bias");
    if (c->page_size)
        ds_buf_printf(b, ", pages of %d", c->page_size);
    if (c->permute)
        ds_buf_puts(b, ", permuted");
    if (c->window)
        ds_buf_printf(b, ", window %d", c->window);
    if (c->soft_cap != 0.0f)
        ds_buf_printf(b, ", soft cap %g", (double)c->soft_cap);
    if (c->disturb)
        ds_buf_puts(b, ", disturbed");
    if (c->poison == DS_POISON_HUGE)
        ds_buf_puts(b, ", huge poison");
}
