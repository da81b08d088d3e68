/* rename.h: a file that takes its name only where nothing has it. */
#ifndef DS_RENAME_H
#define DS_RENAME_H

/* rename() that fails with EEXIST instead of replacing; also on file systems that cannot say it in one step, and on those
 * without hard links. 0, or -1 with errno. */
int ds_rename_new(const char *from, const char *to);

#endif
