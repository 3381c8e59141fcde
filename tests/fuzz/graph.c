/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - throws mutated descriptions of graphs at the planner. With clang's -fsanitize=fuzzer (QN_LIBFUZZER defined)
 * libFuzzer drives it; alone it mutates good descriptions for some seconds and reports in TAP: fuzz_graph [SECONDS
 * [SEED]]. A plan that is made is JSON with steps; one that is not has a sentence. */
#include "core/json.h"
#include "quern/graph.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
  qn_graph_plan *plan = NULL;
  qn_json_tree tree;
  char *exact = malloc(bytes ? bytes : 1); /* so that a read past the end is seen */
  if (!exact) return 0;
  if (bytes) memcpy(exact, data, bytes);
  if (qn_graph_plan_create(&plan, exact, bytes, NULL) == QN_OK) {
    const char *text = qn_graph_plan_text(plan);
    if (qn_json_read(text, strlen(text), "plan", &tree)) abort();
    if (!qn_json_is(qn_json_get(tree.root, "steps"), QN_JSON_ARRAY)) abort();
    qn_json_free(&tree);
  } else if (plan || !*qn_last_error())
    abort();
  qn_graph_plan_destroy(&plan);
  free(exact);
  return 0;
}

#ifndef QN_LIBFUZZER
#include "mutate.h"

static const char *const seeds[] = {
    "{\"device\":\"cuda\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4,6],\"strides\":[1,4]}],\"nodes\":["
    "{"
    "\"name\":\"a\",\"op\":\"aten._softmax.default\",\"args\":[{\"ref\":\"x\"},-1,false],\"kwargs\":{},\"dtype\":"
    "\"f32\","
    "\"shape\":[4,6]},{\"name\":\"b\",\"op\":\"aten.permute.default\",\"args\":[{\"ref\":\"a\"},[1,0]],\"dtype\":"
    "\"f32\","
    "\"shape\":[6,4]},{\"name\":\"c\",\"op\":\"aten.mm.default\",\"args\":[{\"ref\":\"a\"},{\"ref\":\"b\"}],\"dtype\":"
    "\"f32\","
    "\"shape\":[4,4]}],\"outputs\":[\"c\",\"b\"]}",
    "{\"device\":\"cpu\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f16\",\"shape\":[2,6,4]},{\"name\":\"w\",\"dtype\":"
    "\"f16\","
    "\"shape\":[6]}],\"nodes\":[{\"name\":\"g\",\"op\":\"aten.native_group_norm.default\",\"args\":[{\"ref\":\"x\"},{"
    "\"ref\":"
    "\"w\"},null,2,6,4,3,0.00001],\"results\":[{\"dtype\":\"f16\",\"shape\":[2,6,4]},{\"dtype\":\"f16\",\"shape\":[2,3]"
    "},{"
    "\"dtype\":\"f16\",\"shape\":[2,3]}]},{\"name\":\"p\",\"op\":\"aten.constant_pad_nd.default\",\"args\":[{\"ref\":"
    "\"g\","
    "\"index\":0},[1,2],{\"float\":\"-inf\"}],\"dtype\":\"f16\",\"shape\":[2,6,7]},{\"name\":\"m\",\"op\":"
    "\"aten.max_pool1d.default\",\"args\":[{\"ref\":\"p\"},[3],[2],[1]],\"dtype\":\"f16\",\"shape\":[2,6,4]},{\"name\":"
    "\"v\","
    "\"op\":\"aten.view.default\",\"args\":[{\"ref\":\"m\"},[12,4]],\"dtype\":\"f16\",\"shape\":[12,4]},{\"name\":"
    "\"s\","
    "\"op\":\"aten.cat.default\",\"args\":[[{\"ref\":\"v\"},{\"ref\":\"v\"}],1],\"dtype\":\"f16\",\"shape\":[12,8]},{"
    "\"name\":\"u\",\"op\":\"aten.copy_.default\",\"args\":[{\"ref\":\"x\"},{\"ref\":\"x\"}],\"dtype\":\"f16\","
    "\"shape\":"
    "[2,6,4]},{\"name\":\"q\",\"op\":\"aten.argmax.default\",\"args\":[{\"ref\":\"s\"},0],\"dtype\":\"i64\",\"shape\":["
    "8]}],"
    "\"outputs\":[\"q\",{\"ref\":\"g\",\"index\":1}]}"};
static const char *const words[] = {"{\"ref\":\"x\"}",
                                    "[",
                                    "]",
                                    ",",
                                    "null",
                                    "0",
                                    "-1",
                                    "1",
                                    "12",
                                    "32",
                                    "281474976710656",
                                    "9223372036854775807",
                                    "\"i64\"",
                                    "\"bool\"",
                                    "\"f64\"",
                                    "aten.sum.dim_IntList",
                                    "aten.slice.Tensor",
                                    "aten.select.int",
                                    "aten.expand.default",
                                    "aten.embedding.default",
                                    "aten.avg_pool2d.default",
                                    "aten.native_batch_norm.default",
                                    "aten.where.self",
                                    "aten.flip.default",
                                    "aten.cumsum.default",
                                    "aten.logcumsumexp.default",
                                    "aten.triu.default",
                                    "aten._to_copy.default",
                                    "aten.var.correction",
                                    "aten.split.Tensor",
                                    "aten.full.default"};

int main(int argc, char **argv)
{
  const corpus c = {seeds,
                    words,
                    sizeof seeds / sizeof *seeds,
                    sizeof words / sizeof *words,
                    "0123456789.-",
                    "graphs",
                    "of mutated graphs each has a plan or a sentence"};
  return fuzz(&c, argc, argv);
}
#endif
