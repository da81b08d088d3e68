/* make_tui_records.c: writes the records of tests/tui/records.h into a folder, NAME.h5 each.
 *
 *     make_tui_records FOLDER [NAME ...] */
#include "tests/tui/records.h"

int main(int argc, char **argv)
{
    struct ds_error err;
    char path[1024];
    if (argc < 2) {
        fprintf(stderr, "usage: make_tui_records FOLDER [NAME ...]\n");
        return 2;
    }
    for (size_t i = 0; i < RECORDS; i++) {
        int wanted = argc == 2;
        for (int k = 2; k < argc; k++)
            wanted |= strcmp(argv[k], records_all[i].name) == 0;
        snprintf(path, sizeof path, "%s/%s.h5", argv[1], records_all[i].name);
        if (wanted && records_write(i, path, &err) != 0) {
            fprintf(stderr, "make_tui_records: %s: %s\n", path, err.msg);
            return 2;
        }
    }
    return 0;
}
