/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writes a safetensors file: the header's length, the header, the tensors one behind the other.
 * It writes the subset that safetensors.c reads. */
#include "core/core.h"
#include "core/file.h"
#include <fcntl.h>
#include <string.h>

static const char *dtype_name(qn_dtype dtype)
{
  static const char *const names[QN_DTYPE_COUNT] = {
      [QN_F32] = "F32", [QN_BF16] = "BF16", [QN_F16] = "F16", [QN_F64] = "F64", [QN_BOOL] = "BOOL",
      [QN_U8] = "U8",   [QN_I8] = "I8",     [QN_U16] = "U16", [QN_I16] = "I16", [QN_U32] = "U32",
      [QN_I32] = "I32", [QN_U64] = "U64",   [QN_I64] = "I64", [QN_C64] = "C64", [QN_F8E4M3] = "F8_E4M3"};
  return (unsigned)dtype < QN_DTYPE_COUNT ? names[dtype] : NULL;
}

static uint64_t bytes_of(const qn_safetensor_made *t)
{
  uint64_t bytes = qn_dtype_bytes(t->dtype);
  for (int d = 0; d < t->ndim; d++) bytes *= (uint64_t)t->shape[d];
  return bytes;
}

static void add_metadata(qn_text *text, const char *const *pairs)
{
  qn_text_add(text, "\"__metadata__\":{");
  for (size_t k = 0; pairs[k]; k += 2) {
    qn_text_add(text, "%s", k ? "," : "");
    qn_json_add_string(text, pairs[k]);
    qn_text_add(text, ":");
    qn_json_add_string(text, pairs[k + 1]);
  }
  qn_text_add(text, "}");
}

static void add_header(qn_text *text, const qn_safetensor_made *tensors, size_t n, const char *const *metadata)
{
  uint64_t at = 0;
  qn_text_add(text, "{");
  if (metadata) add_metadata(text, metadata);
  for (size_t k = 0; k < n; k++) {
    const qn_safetensor_made *t = &tensors[k];
    const uint64_t end = at + bytes_of(t);
    qn_text_add(text, "%s", k || metadata ? "," : "");
    qn_json_add_string(text, t->name);
    qn_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
    for (int d = 0; d < t->ndim; d++) qn_text_add(text, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    qn_text_add(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
    at = end;
  }
  qn_text_add(text, "}");
  while (!text->failed && text->length % 8) qn_text_add(text, " "); /* so that the data is aligned */
}

static bool write_parts(int file, const qn_text *header, const qn_safetensor_made *tensors, size_t n)
{
  unsigned char length[8];
  for (int k = 0; k < 8; k++) length[k] = (unsigned char)((uint64_t)header->length >> 8 * k);
  bool written = qn_write_all(file, length, sizeof length) && qn_write_all(file, header->at, header->length);
  for (size_t k = 0; k < n && written; k++) written = qn_write_all(file, tensors[k].data, bytes_of(&tensors[k]));
  return written;
}

qn_status qn_safetensors_write(const char *path, const qn_safetensor_made *tensors, size_t n,
                               const char *const *metadata)
{
  qn_text header = {0};
  for (size_t k = 0; k < n; k++)
    qn_require(dtype_name(tensors[k].dtype), "%s: tensor \"%s\" is of no storage type that is known (%d)", path,
               tensors[k].name, (int)tensors[k].dtype);
  add_header(&header, tensors, n, metadata);
  if (header.failed) {
    qn_text_free(&header);
    return qn_fail(QN_NO_MEMORY, "%s: no memory for the header of %zu tensors", path, n);
  }
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), error = errno;
  bool written = file >= 0 && write_parts(file, &header, tensors, n);
  if (file >= 0 && !written) error = errno;
  if (file >= 0 && close(file) && written) written = false, error = errno;
  qn_text_free(&header);
  return written ? QN_OK : qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(error));
}
