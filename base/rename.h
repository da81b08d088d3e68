/* rename.h: a file that takes its name only where nothing has it, or nothing that must stay. */
#ifndef DS_RENAME_H
#define DS_RENAME_H

/* rename() that fails with EEXIST instead of replacing; also on file systems that cannot say it in one step, and on those
 * without hard links. 0, or -1 with errno. */
int ds_rename_new(const char *from, const char *to);

/* What is in a file that no text may replace, by its first bytes: "a record" (any HDF5 file), "a model" (GGUF). NULL for
 * any other file, and where there is none. */
const char *ds_file_kept(const char *path);

#endif
