/* arrays.c: see arrays.h. The widest-read form of HDF5: earliest format, contiguous datasets, little-
 * endian, fixed-length texts. After a call that failed none follows, not even one that closes. */
#include "dumps/arrays.h"

#include "dumps/record_h5.h"

#include <string.h>

static int write_array(hid_t file, const struct ds_named_array *a)
{
    const hid_t disk[] = {H5T_IEEE_F32LE, H5T_STD_I32LE, H5T_STD_U8LE},
                mem[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_INT32, H5T_NATIVE_UINT8};
    const hsize_t dims[2] = {a->rows, a->cols};
    hid_t space = H5Screate_simple(a->cols ? 2 : 1, dims, NULL);
    hid_t set = space < 0 ? -1
                          : H5Dcreate2(file, a->name, disk[a->type], space, H5P_DEFAULT,
                                       H5P_DEFAULT, H5P_DEFAULT);
    if (set < 0 ||
        (a->rows && H5Dwrite(set, mem[a->type], H5S_ALL, H5S_ALL, H5P_DEFAULT, a->data) < 0))
        return -1;
    return H5Dclose(set) < 0 || H5Sclose(space) < 0 ? -1 : 0;
}

static int write_value(hid_t file, const struct ds_named_value *v)
{
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t type = space < 0 ? -1 : H5Tcopy(v->text ? H5T_C_S1 : H5T_IEEE_F64LE);
    if (type < 0 || (v->text && H5Tset_size(type, strlen(v->text) + 1) < 0))
        return -1;
    const hid_t at = H5Acreate2(file, v->name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (at < 0 ||
        (v->text ? H5Awrite(at, type, v->text) : H5Awrite(at, H5T_NATIVE_DOUBLE, &v->number)) < 0)
        return -1;
    return H5Aclose(at) < 0 || H5Tclose(type) < 0 || H5Sclose(space) < 0 ? -1 : 0;
}

int ds_arrays_write(const char *path, const struct ds_named_array *arrays, size_t n_arrays,
                    const struct ds_named_value *values, size_t n_values, struct ds_error *err)
{
    if (ds_h5_enter(err) != 0)
        return -1;
    hid_t file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0)
        return ds_h5_fail(err, "cannot write '%s'", path);
    int rc = 0;
    for (size_t i = 0; i < n_arrays && rc == 0; i++)
        rc = write_array(file, &arrays[i]);
    for (size_t i = 0; i < n_values && rc == 0; i++)
        rc = write_value(file, &values[i]);
    if (rc == 0 && H5Fclose(file) >= 0)
        return 0;
    ds_h5_poison();
    return ds_h5_fail(err, "cannot write '%s'", path);
}
