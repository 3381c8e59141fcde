/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_arrays.c - see kernel_arrays.h. Safetensors are the library's business; NumPy's header of version 1 to 3 is
 * read here. */
#include "workbench/kernel_arrays.h"
#include "core/core.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one array more ---- */
static qn_status append(qn_arrays *arrays, const qn_file_array *array)
{
  qn_file_array *more = qn_reallocate(arrays->array, (arrays->n + 1) * sizeof *more);
  if (!more) return qn_fail(QN_NO_MEMORY, "a list of %zu arrays", arrays->n + 1);
  arrays->array = more;
  more[arrays->n++] = *array;
  return QN_OK;
}

/* Elements times their size, or false. */
static bool size_of(const qn_file_array *a, size_t *bytes)
{
  *bytes = qn_dtype_bytes(a->dtype);
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] < 0 || __builtin_mul_overflow(*bytes, (size_t)a->shape[d], bytes)) return false;
  return *bytes < SIZE_MAX / 2;
}

/* An array of the header's type and shape, with memory for its data. */
static qn_status make(qn_arrays *arrays, const char *path, const qn_file_array *header, const char *name,
                      qn_file_array **made)
{
  qn_file_array a = *header;
  if (!size_of(&a, &a.bytes)) return qn_fail(QN_BAD_FILE, "%s: array %s has more bytes than there are", path, name);
  a.name = qn_duplicate(name);
  a.data = qn_allocate(a.bytes);
  qn_status status = a.name && a.data ? QN_OK : qn_fail(QN_NO_MEMORY, "%zu bytes of %s", a.bytes, path);
  if (status == QN_OK) status = append(arrays, &a);
  if (status == QN_OK) {
    *made = &arrays->array[arrays->n - 1];
    return QN_OK;
  }
  qn_release(a.name);
  qn_release(a.data);
  return status;
}

/* ---- safetensors ---- */
static qn_dtype safetensors_type(const char *text)
{
  char small[16];
  size_t k = 0;
  for (; text[k] && k < sizeof small - 1; k++)
    small[k] = text[k] >= 'A' && text[k] <= 'Z' ? (char)(text[k] + 32) : text[k];
  small[k] = 0;
  return qn_dtype_from_name(small);
}

static qn_status read_tensor(qn_arrays *arrays, const char *path, const qn_safetensors *list, const qn_safetensor *t,
                             const char *name)
{
  qn_file_array header = {.dtype = safetensors_type(t->dtype), .ndim = t->ndim}, *a;
  if (header.dtype == QN_NONE)
    return qn_fail(QN_BAD_FILE, "%s: array %s is of type %s, which kernels do not have", path, t->name, t->dtype);
  memcpy(header.shape, t->shape, sizeof header.shape);
  qn_try(make(arrays, path, &header, name ? name : t->name, &a));
  return qn_safetensors_read_data(path, list, t, a->data);
}

static qn_status read_safetensors(qn_arrays *arrays, const char *path, const char *name)
{
  qn_safetensors list;
  size_t only = SIZE_MAX;
  qn_try(qn_safetensors_read(path, &list));
  qn_status status = QN_OK;
  for (size_t k = 0; name && k < list.n; k++)
    if (!strcmp(list.tensor[k].name, name) || (list.n == 1)) only = k;
  if (name && only == SIZE_MAX)
    status = qn_fail(QN_BAD_FILE, "%s: it holds %zu arrays, and none is called %s", path, list.n, name);
  for (size_t k = 0; status == QN_OK && k < list.n; k++)
    if (!name || k == only) status = read_tensor(arrays, path, &list, &list.tensor[k], name);
  qn_safetensors_free(&list);
  return status;
}

/* ---- .npy ---- */
static qn_dtype npy_type(const char *text)
{
  static const struct {
    char text[4];
    qn_dtype dtype;
  } types[] = {{"f4", QN_F32}, {"f2", QN_F16}, {"f8", QN_F64}, {"b1", QN_BOOL}, {"u1", QN_U8},
               {"i1", QN_I8},  {"u2", QN_U16}, {"i2", QN_I16}, {"u4", QN_U32},  {"i4", QN_I32},
               {"u8", QN_U64}, {"i8", QN_I64}, {"c8", QN_C64}, {"V2", QN_BF16}}; /* ml_dtypes writes bfloat16 so */
  if (*text != '<' && *text != '|' && *text != '=') return QN_NONE;
  for (size_t k = 0; k < sizeof types / sizeof *types; k++)
    if (!strcmp(text + 1, types[k].text)) return types[k].dtype;
  return QN_NONE;
}

/* The value behind 'key': in the header's dictionary; NULL. */
static const char *npy_value(const char *header, const char *key)
{
  const char *at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  at += strspn(at, " ");
  if (*at++ != ':') return NULL;
  return at + strspn(at, " ");
}

static qn_status npy_header(const char *path, const char *header, qn_file_array *a)
{
  char type[16] = "";
  const char *descr = npy_value(header, "'descr'"), *order = npy_value(header, "'fortran_order'");
  const char *shape = npy_value(header, "'shape'");
  if (!descr || !order || !shape || *descr != '\'' || *shape != '(')
    return qn_fail(QN_BAD_FILE, "%s: its header has no descr, fortran_order and shape", path);
  sscanf(descr + 1, "%15[^']", type);
  a->dtype = npy_type(type);
  if (a->dtype == QN_NONE) return qn_fail(QN_BAD_FILE, "%s: arrays of type %s are not read", path, type);
  if (strncmp(order, "False", 5))
    return qn_fail(QN_BAD_FILE, "%s: its array lies column by column (fortran_order); save it as C order", path);
  for (const char *at = shape + 1; *at && *at != ')';) {
    char *end;
    errno = 0;
    long long extent = strtoll(at, &end, 10);
    if (end == at || errno || extent < 0 || a->ndim == QN_MAX_NDIM)
      return qn_fail(QN_BAD_FILE, "%s: its shape %.40s cannot be read", path, shape);
    a->shape[a->ndim++] = extent;
    at = end + strspn(end, " ,");
  }
  return QN_OK;
}

static qn_status read_npy(qn_arrays *arrays, const char *path, FILE *stream, const char *name)
{
  enum { MOST_HEADER = 1 << 20 };
  unsigned char start[12];
  qn_file_array header_of = {0}, *a = NULL;
  if (fread(start, 1, 12, stream) != 12 || memcmp(start, "\x93NUMPY", 6) || start[6] < 1 || start[6] > 3)
    return qn_fail(QN_BAD_FILE, "%s: it does not begin as a .npy file does", path);
  size_t wide = start[6] > 1, base = wide ? 12 : 10;
  size_t length = start[8] + 256u * start[9] + (wide ? 65536u * start[10] + 16777216u * start[11] : 0);
  if (length > MOST_HEADER) return qn_fail(QN_BAD_FILE, "%s: its header has %zu bytes", path, length);
  char *header = qn_allocate(length + 1);
  if (!header) return qn_fail(QN_NO_MEMORY, "the header of %s", path);
  qn_status status = QN_OK;
  if (fseek(stream, (long)base, SEEK_SET) || fread(header, 1, length, stream) != length)
    status = qn_fail(QN_BAD_FILE, "%s: it ends within its header", path);
  header[length] = 0;
  if (status == QN_OK) status = npy_header(path, header, &header_of);
  if (status == QN_OK) status = make(arrays, path, &header_of, name, &a);
  if (status == QN_OK && fread(a->data, 1, a->bytes, stream) != a->bytes)
    status = qn_fail(QN_BAD_FILE, "%s: the %zu bytes of array %s are not there", path, a->bytes, name);
  qn_release(header);
  return status;
}

qn_status qn_arrays_read(qn_arrays *arrays, const char *path, const char *name)
{
  const char *dot = strrchr(path, '.');
  bool npy = dot && !strcmp(dot, ".npy");
  struct stat is;
  if (npy && !name) return qn_fail(QN_BAD_ARGUMENT, "%s: a .npy file has no name for its array: NAME=FILE", path);
  FILE *stream = fopen(path, "rb");
  if (!stream || fstat(fileno(stream), &is) || !S_ISREG(is.st_mode)) {
    const char *why = stream ? "it is no file" : strerror(errno);
    if (stream) fclose(stream);
    return qn_fail(QN_BAD_FILE, "%s: %s", path, why);
  }
  qn_status status = npy ? read_npy(arrays, path, stream, name) : read_safetensors(arrays, path, name);
  fclose(stream);
  return status;
}

const qn_file_array *qn_arrays_find(const qn_arrays *arrays, const char *name)
{
  for (size_t k = 0; arrays && k < arrays->n; k++)
    if (!strcmp(arrays->array[k].name, name)) return &arrays->array[k];
  return NULL;
}

void qn_arrays_free(qn_arrays *arrays)
{
  for (size_t k = 0; k < arrays->n; k++) {
    qn_release(arrays->array[k].name);
    qn_release(arrays->array[k].data);
  }
  qn_release(arrays->array);
  *arrays = (qn_arrays){0};
}

qn_status qn_arrays_write(const char *path, const qn_safetensor_made *arrays, size_t n)
{
  qn_text beside = {0};
  qn_text_add(&beside, "%s.%ld", path, (long)getpid());
  if (beside.failed) return qn_fail(QN_NO_MEMORY, "%s: no memory for a name", path);
  qn_status status = qn_safetensors_write(beside.at, arrays, n, NULL);
  if (status == QN_OK && rename(beside.at, path))
    status = qn_fail(QN_IO_ERROR, "%s could not be written: %s", path, strerror(errno));
  if (status != QN_OK) unlink(beside.at);
  qn_text_free(&beside);
  return status;
}
