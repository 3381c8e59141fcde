/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - tests of the header reader: what it takes, and each thing that it must refuse, with the sentence. */
#include "core/core.h"
#include "test.h"
#include <sys/stat.h>
#include <unistd.h>

static qn_status parse(const char *header, uint64_t data_bytes, qn_safetensors *list)
{
  return qn_safetensors_parse(header, strlen(header), data_bytes, "x.safetensors", list);
}

static void test_what_it_takes(void)
{
  qn_safetensors list;
  check(parse("{}", 0, &list) == QN_OK && list.n == 0, "no tensors and no data");
  qn_safetensors_free(&list);
  const char *two = "{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"w\\u00e9\\ud83d\\ude00\\n\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]},\n"
                    " \"a\" : { \"shape\" : [ ] , \"data_offsets\" : [ 0 , 2 ] , \"dtype\" : \"BF16\" } }   ";
  check(parse(two, 26, &list) == QN_OK && list.n == 2, "two tensors, metadata, spaces, any order");
  if (list.n == 2) {
    const qn_safetensor *a = &list.tensor[0], *w = &list.tensor[1];
    check(!strcmp(a->name, "a") && !strcmp(a->dtype, "BF16") && a->ndim == 0 && a->begin == 0 && a->end == 2,
          "they come in the order of the data; one of no dimensions is one element");
    check(!strcmp(w->name, "w\303\251\360\237\230\200\n") && w->ndim == 2 && w->shape[0] == 2 && w->shape[1] == 3 &&
              w->begin == 2 && w->end == 26,
          "escapes in a name are decoded");
  }
  qn_safetensors_free(&list);
  qn_safetensors_free(&list);
  check(parse("{\"e\":{\"dtype\":\"F16\",\"shape\":[9223372036854775807,0,9223372036854775807],\"data_offsets\":[0,0]},"
              "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
              4, &list) == QN_OK,
        "an empty tensor, whatever its other extents");
  qn_safetensors_free(&list);
  check(parse("{\"q\":{\"dtype\":\"F4_E2M1\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, &list) == QN_OK &&
            !strcmp(list.tensor[0].dtype, "F4_E2M1"),
        "a dtype that is newer than the reader is kept by name");
  qn_safetensors_free(&list);
}

/* Many tensors in a bad order: the list is sorted, and each is found again. */
static void test_many(void)
{
  enum { N = 3000 };
  qn_text text = {0};
  qn_safetensors list = {0};
  qn_text_add(&text, "{");
  for (int k = 0; k < N; k++) {
    int at = (k * 1999) % N;
    qn_text_add(&text, "%s\"t%d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[%d,%d]}", k ? "," : "", at, 8 * at,
                8 * at + 8);
  }
  qn_text_add(&text, "}");
  bool sorted = parse(text.at, 8 * N, &list) == QN_OK && list.n == N;
  for (size_t k = 0; sorted && k < N; k++)
    sorted = list.tensor[k].begin == 8 * k && atoi(list.tensor[k].name + 1) == (int)k;
  check(sorted, "%d tensors in another order than their data", N);
  qn_safetensors_free(&list);
  text.at[text.length - 1] = 0;
  refuses(parse(text.at, 8 * N, &list), QN_BAD_FILE, "is not closed");
  qn_text_free(&text);
}

#define F32(shape, offsets) "\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets
#define ONE(shape, offsets) "{\"t\":{" F32(shape, offsets) "}}"
#define TEN "1,1,1,1,1,1,1,1,1,1"

static const struct {
  const char *header;
  uint64_t data_bytes;
  const char *words;
} refused[] = {
    {"", 0, "does not begin with {"},
    {"[]", 0, "does not begin with {"},
    {" {}", 0, "does not begin with {"},
    {"{", 0, "a string should stand here"},
    {"{}x", 0, "something stands behind"},
    {"{}{}", 0, "something stands behind"},
    {"{\"t\"", 0, "a colon"},
    {"{\"t\":", 0, "should stand here"},
    {"{\"t\":3}", 0, "should stand here"},
    {"{\"t\":[[[[[[[[[[[[[[[[", 0, "should stand here"},
    {"{\"t\":{}}", 0, "without dtype, shape or data_offsets"},
    {"{\"t\":{\"dtype\":\"F32\"}}", 0, "without dtype, shape or data_offsets"},
    {"{\"t\":{" F32("[1]", "[0,4]") ",\"dtype\":\"F32\"}}", 4, "stands twice"},
    {"{\"t\":{" F32("[1]", "[0,4]") ",\"more\":1}}", 4, "none of dtype, shape"},
    {"{\"t\":{" F32("[1]", "[0,4]") ",}}", 4, "a string should stand here"},
    {"{\"t\":{" F32("[1]", "[0,4]") "},}", 4, "a string should stand here"},
    {"{\"t\":{" F32("[1]", "[0,4]") "},\"t\":{" F32("[1]", "[4,8]") "}}", 8, "member \"t\" stands twice"},
    {"{\"t\":{" F32("[1]", "[0,4]") "},\"\\u0074\":{" F32("[1]", "[4,8]") "}}", 8, "member \"t\" stands twice"},
    {ONE("[1,]", "[0,4]"), 4, "a value should stand here"},
    {ONE("[-1]", "[0,4]"), 4, "a whole number"},
    {ONE("[1.0]", "[0,4]"), 4, "a fraction or exponent"},
    {ONE("[1e2]", "[0,400]"), 400, "a fraction or exponent"},
    {ONE("[01]", "[0,4]"), 4, "leading zero"},
    {ONE("[9223372036854775808]", "[0,4]"), 4, "above 2^63 - 1"},
    {ONE("[99999999999999999999999999]", "[0,4]"), 4, "above 2^63 - 1"},
    {ONE("[4611686018427387904,4]", "[0,0]"), 0, "more than 2^63 - 1 bytes"},
    {ONE("[" TEN "," TEN "," TEN ",1,1,1]", "[0,4]"), 4, "more than 32 dimensions"},
    {ONE("1", "[0,4]"), 4, "a list of numbers"},
    {ONE("[1 1]", "[0,4]"), 4, "is not closed"},
    {ONE("[1]", "[0]"), 4, "wants two numbers"},
    {ONE("[1]", "[0,4,8]"), 8, "more than two"},
    {ONE("[1]", "[4,0]"), 4, "run backwards, from 4 to 0"},
    {ONE("[2]", "[0,4]"), 4, "make 8 bytes, data_offsets 4"},
    {ONE("[1]", "[0,4]"), 3, "end at byte 4 of the data; there are 3"},
    {ONE("[1]", "[0,4]"), 5, "end at byte 4 of the data; there are 5"},
    {ONE("[1]", "[1,5]"), 5, "begins at 1; the data before it ends at 0"},
    {"{\"a\":{" F32("[2]", "[0,8]") "},\"b\":{" F32("[2]", "[4,12]") "}}", 12,
     "\"b\" begins at 4; the data before it ends at 8"},
    {"{\"a\":{" F32("[2]", "[0,8]") "},\"b\":{" F32("[1]", "[12,16]") "}}", 16, "\"b\" begins at 12"},
    {"{\"t\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, "a dtype that cannot be one"},
    {"{\"t\":{\"dtype\":\"f32\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, "a dtype that cannot be one"},
    {"{\"t\":{\"dtype\":\"ABCDEFGHIJKLMNOP\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, "a dtype that cannot be one"},
    {"{\"t\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,0]}}", 0, "a string should stand here"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a string should stand here"},
    {"{\"__metadata__\":[]}", 0, "an object of strings"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "member \"__metadata__\" stands twice"},
    {"{\"a\nb\":{}}", 0, "a control character"},
    {"{\"a\\x\":{}}", 0, "an escape that JSON does not know"},
    {"{\"a\\u12", 0, "ends within \\u"},
    {"{\"a\\u12G4\":{}}", 0, "four hexadecimal digits"},
    {"{\"a\\u0000\":{}}", 0, "a NUL"},
    {"{\"\\ud800\":{}}", 0, "half a surrogate pair"},
    {"{\"\\ud800\\u0041\":{}}", 0, "half a surrogate pair"},
    {"{\"\\udc00\":{}}", 0, "half a surrogate pair"},
    {"{\"\xff\":{}}", 0, "not UTF-8"},
    {"{\"\xc0\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xed\xa0\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xe2\x82\":{}}", 0, "not UTF-8"},
    {"{\"a", 0, "ends within a string"},
    {"{\"a\\", 0, "ends within a string"},
};

static void test_what_it_refuses(void)
{
  for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
    qn_safetensors list = {.n = 7};
    qn_status status = parse(refused[k].header, refused[k].data_bytes, &list);
    check(status == QN_BAD_FILE && strstr(qn_last_error(), refused[k].words) &&
              !strncmp(qn_last_error(), "x.safetensors: ", 15) && !list.n && !list.tensor && !list.storage,
          "refused: %s", refused[k].words);
  }
  qn_safetensors list;
  qn_status status = parse("{\"a\\u001b[31m\":{" F32("[1]", "[0,5]") "}}", 5, &list);
  check(status == QN_BAD_FILE && !strchr(qn_last_error(), 27), "a sentence carries no control character of a name");
}

/* ---- files ---- */

static char path[64];

static qn_status read_back(uint64_t claimed, const char *header, size_t data_bytes, qn_safetensors *list)
{
  FILE *file = fopen(path, "wb");
  unsigned char length[8];
  for (int k = 0; k < 8; k++) length[k] = (unsigned char)(claimed >> 8 * k);
  fwrite(length, 1, 8, file);
  fwrite(header, 1, strlen(header), file);
  for (size_t k = 0; k < data_bytes; k++) fputc(0, file);
  fclose(file);
  return qn_safetensors_read(path, list);
}

static void test_files(void)
{
  qn_safetensors list;
  const char *header = ONE("[2]", "[0,8]");
  size_t n = strlen(header);
  char folder[] = "/tmp/quern-test-XXXXXX";
  if (!check(mkdtemp(folder) != NULL, "a folder of our own")) return;
  snprintf(path, sizeof path, "%s/t.safetensors", folder);
  refuses(qn_safetensors_read(path, &list), QN_IO_ERROR, "No such file");
  refuses(qn_safetensors_read(folder, &list), QN_BAD_FILE, "not a regular file");
  check(mkfifo(path, 0600) == 0, "a pipe");
  refuses(qn_safetensors_read(path, &list), QN_BAD_FILE, "not a regular file");
  unlink(path);
  check(read_back(n, header, 8, &list) == QN_OK && list.n == 1 && list.tensor[0].shape[0] == 2, "a file is read");
  qn_safetensors_free(&list);
  refuses(read_back(n, header, 7, &list), QN_BAD_FILE, "there are 7 bytes");
  refuses(read_back(n + 100, header, 8, &list), QN_BAD_FILE, "claims a header of");
  refuses(read_back(UINT64_MAX, header, 8, &list), QN_BAD_FILE, "18446744073709551615 bytes and has");
  refuses(read_back(UINT64_MAX - 7, header, 8, &list), QN_BAD_FILE, "claims a header of");
  check(truncate(path, 7) == 0, "a file of 7 bytes");
  refuses(qn_safetensors_read(path, &list), QN_BAD_FILE, "it has 7 bytes");
  read_back(200000000, header, 8, &list);
  check(truncate(path, 300000000) == 0, "a sparse file of 300 MB");
  refuses(qn_safetensors_read(path, &list), QN_BAD_FILE, "200000000 bytes, at most 100000000");
  unlink(path);
  rmdir(folder);
}

int main(void)
{
  test_what_it_takes();
  test_many();
  test_what_it_refuses();
  test_files();
  return test_end();
}
