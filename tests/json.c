/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - tests of the reader of JSON: the values it gives, each thing that it must refuse with its place, its limits,
 * and memory that runs out. */
#include "core/json.h"
#include "failing.h"
#include "test.h"
#include <math.h>

static qn_json_tree tree;

static qn_status read_text(const char *text)
{
  qn_json_free(&tree);
  return qn_json_read(text, strlen(text), "x.json", &tree);
}

static void test_values(void)
{
  int64_t i = 0;
  double d = 0;
  check(!read_text("{\"n\": null, \"t\": true, \"i\": -9223372036854775808, \"d\": 2.5e-1,\n \"s\": "
                   "\"a\\u00e9\\ud83d\\ude00\\n\\/\303\251\", \"l\": [1, [], {}]}"),
        "a text with each type: %s", qn_last_error());
  const qn_json *r = tree.root, *list = qn_json_get(r, "l");
  check(qn_json_is(r, QN_JSON_OBJECT) && qn_json_count(r) == 6 && !strcmp(qn_json_first(r)->key, "n"),
        "an object keeps its members' order");
  check(qn_json_is(qn_json_get(r, "n"), QN_JSON_NULL) && qn_json_get(r, "t")->boolean, "null and true");
  check(qn_json_integer(qn_json_get(r, "i"), &i) && i == INT64_MIN, "the least integer");
  check(qn_json_number(qn_json_get(r, "d"), &d) && d == 0.25 && !qn_json_integer(qn_json_get(r, "d"), &i),
        "a real number is no integer");
  check(qn_json_number(qn_json_get(r, "i"), &d) && d == -0x1p63, "an integer is a number");
  check(!strcmp(qn_json_string(qn_json_get(r, "s")), "a\303\251\360\237\230\200\n/\303\251"), "escapes are decoded");
  check(qn_json_count(list) == 3 && qn_json_at(list, 0)->integer == 1 && !qn_json_count(qn_json_at(list, 1)) &&
            qn_json_is(qn_json_at(list, 2), QN_JSON_OBJECT) && !qn_json_at(list, 3),
        "a list by place");
  check(qn_json_get(r, "s")->line == 2 && qn_json_get(r, "s")->column == 7, "a value knows its line and column");
  check(!qn_json_get(r, "x") && !qn_json_get(list, "n") && !qn_json_get(NULL, "n") && !qn_json_string(list) &&
            !qn_json_first(NULL) && !qn_json_at(r, 0),
        "what is not there is NULL");
  check(!strcmp(qn_json_describe(list), "a list") && !strcmp(qn_json_describe(NULL), "null") &&
            !strcmp(qn_json_describe(qn_json_get(r, "t")), "true"),
        "a value is named in sentences");
  check(!read_text(" 7 ") && qn_json_integer(tree.root, &i) && i == 7, "a text may be one number");
  check(!read_text("-0") && qn_json_integer(tree.root, &i) && !i, "-0 is the integer 0");
  check(!read_text("[1.7976931348623157e308, 5e-324, 0.1, -0.0]"), "the ends of the range");
  check(qn_json_at(tree.root, 0)->real == 0x1.fffffffffffffp1023 && qn_json_at(tree.root, 1)->real == 0x1p-1074 &&
            qn_json_at(tree.root, 2)->real == 0.1 && signbit(qn_json_at(tree.root, 3)->real),
        "are read exactly");
  qn_json_tree part;
  check(!qn_json_read("[12]garbage", 4, "x", &part) && qn_json_at(part.root, 0)->integer == 12,
        "no byte behind the text is read");
  qn_json_free(&part);
  qn_json_free(&part);
}

static const struct {
  const char *text, *words;
} refused[] = {
    {"", "x.json:1:1: a value should stand here, and the text ends"},
    {" \n ", "x.json:2:2: a value should stand here, and the text ends"},
    {"[1,\n  ?]", "x.json:2:3: a value should stand here"},
    {"[1,]", ":1:4: a value should stand here"},
    {"[1 2]", ":1:4: an array that is not closed"},
    {"[1", ":1:3: an array that is not closed"},
    {"{\"a\":1", ":1:7: an object that is not closed"},
    {"{\"a\" 1}", "a colon"},
    {"{a: 1}", ":1:2: a string should stand here"},
    {"{\"a\":1,}", ":1:8: a string should stand here"},
    {"{\"a\":1,\n\"b\":2,\"a\":3}", "x.json:2:11: the member \"a\" stands twice"},
    {"{\"a\":1,\"\\u0061\":3}", "stands twice"},
    {"{\"\\u001b\":1,\"\\u001b\":3}", "the member \"?\" stands twice"},
    {"[}", "a value should stand here"},
    {"{]", "a string should stand here"},
    {"{}{}", ":1:3: something stands behind"},
    {"nul", "a value should stand here"},
    {"truex", "something stands behind"},
    {"NaN", "a value should stand here"},
    {"01", "a leading zero"},
    {"+1", "a value should stand here"},
    {"-", "a digit"},
    {"1.", "a digit"},
    {".5", "a value should stand here"},
    {"1e", "a digit"},
    {"1e+", "a digit"},
    {"1e999", "beyond the range of a double"},
    {"0x10", "something stands behind"},
    {"9223372036854775808", "above 2^63 - 1"},
    {"-9223372036854775809", "below -2^63"},
    {"\"a", "ends within a string"},
    {"\"a\\", "ends within a string"},
    {"\"a\\u12", "ends within \\u"},
    {"\"a\\u12G4\"", "four hexadecimal digits"},
    {"\"a\\x\"", "an escape that JSON does not know"},
    {"\"a\tb\"", ":1:3: a control character"},
    {"\"\\u0000\"", "a NUL"},
    {"\"\\ud800\"", "half a surrogate pair"},
    {"\"\\ud800\\u0041\"", "half a surrogate pair"},
    {"\"\\udc00\"", "half a surrogate pair"},
    {"\"\xc0\x80\"", "not UTF-8"},
    {"\"\xed\xa0\x80\"", "not UTF-8"},
    {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
    {"\"\xe2\x82\"", "not UTF-8"},
    {"\xef\xbb\xbf{}", "a value should stand here"},
};

static void test_refusals(void)
{
  for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
    refuses(read_text(refused[k].text), QN_BAD_FILE, refused[k].words);
    if (tree.root || tree.memory) check(false, "a tree that is not read is empty");
  }
  refuses(qn_json_read("[1,\0 2]", 7, "x", &tree), QN_BAD_FILE, "a value should stand here");
  refuses(qn_json_read("\"a\0\"", 4, "x", &tree), QN_BAD_FILE, "a control character");
}

static void repeat(qn_text *text, const char *word, int n)
{
  for (int k = 0; k < n; k++) qn_text_add(text, "%s", word);
}

static void test_limits(void)
{
  qn_text text = {0};
  repeat(&text, "[", QN_JSON_DEPTH), repeat(&text, "]", QN_JSON_DEPTH);
  check(!read_text(text.at), "%d lists within each other: %s", QN_JSON_DEPTH, qn_last_error());
  text.length = 0;
  repeat(&text, "{\"a\":", QN_JSON_DEPTH), repeat(&text, "[", 1);
  refuses(read_text(text.at), QN_BAD_FILE, "more than 128");
  text.length = 0;
  repeat(&text, "[", 1000000);
  refuses(read_text(text.at), QN_BAD_FILE, "more than 128");
  text.length = 0;
  repeat(&text, "[", 1), repeat(&text, "0,", QN_JSON_VALUES), repeat(&text, "0]", 1);
  refuses(read_text(text.at), QN_BAD_FILE, "more than 4194304 values");
  text.length = 0;
  qn_text_add(&text, "{");
  for (int k = 0; k < 100000; k++) qn_text_add(&text, "%s\"k%d\": %d", k ? ",\n" : "", k * 7919 % 100000, k);
  qn_text_add(&text, "}");
  check(!read_text(text.at) && qn_json_count(tree.root) == 100000, "100000 members of distinct names");
  text.at[--text.length] = 0;
  qn_text_add(&text, ",\n\"k55\": 1}");
  refuses(read_text(text.at), QN_BAD_FILE, "x.json:100001:8: the member \"k55\" stands twice");
  qn_text_free(&text);
}

static void test_written(void)
{
  static const char given[] = "{\"a\\\"\": [1, -2.5, true, null, \"\\n\"], \"b\": {}, \"c\": 0.1}";
  qn_text text = {0}, again = {0};
  check(!read_text(given), "a text: %s", qn_last_error());
  qn_json_add(&text, tree.root);
  check(!read_text(text.at) && qn_json_get(tree.root, "c")->real == 0.1, "written, it is read again: %s", text.at);
  qn_json_add(&again, tree.root);
  check(!strcmp(text.at, again.at) && !strncmp(text.at, given, 30), "and written the same: %s", again.at);
  qn_text_free(&text), qn_text_free(&again);
}

/* Every allocation fails once: nothing is lost, and the sentence names the text. */
static void test_memory(void)
{
  static const qn_allocator hooks = {.allocate = hook_allocate, .release = hook_release};
  qn_text text = {0};
  qn_status status = QN_NO_MEMORY;
  qn_json_free(&tree);
  qn_text_add(&text, "{\"k\": [0");
  repeat(&text, ",0", 100);
  qn_text_add(&text, "]");
  for (int k = 0; k < 20; k++) qn_text_add(&text, ",\"k%d\": 1", k);
  qn_text_add(&text, "}");
  const size_t n = text.length;
  char *copy = strdup(text.at);
  qn_text_free(&text);
  check(!qn_allocator_set(&hooks), "counting hooks are set");
  int k = 0;
  for (; status == QN_NO_MEMORY && k < 100; k++) {
    atomic_store(&allocated, 0), atomic_store(&fail_at, k + 1);
    status = qn_json_read(copy, n, "x.json", &tree);
    if (status == QN_NO_MEMORY && (tree.memory || outstanding || !strstr(qn_last_error(), "x.json"))) break;
  }
  check(status == QN_OK && k > 3, "each of %d allocations fails once: %s", k - 1, qn_last_error());
  qn_json_free(&tree);
  check(!outstanding, "all memory is given back");
  qn_allocator_set(NULL);
  free(copy);
}

int main(void)
{
  test_values();
  test_refusals();
  test_limits();
  test_written();
  test_memory();
  qn_json_free(&tree);
  return test_end();
}
