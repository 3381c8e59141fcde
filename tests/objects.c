/* SPDX-License-Identifier: Apache-2.0 */
/* objects.c - qn_objects_follow over objects of our own, which stand for a framework's. */
#include "quern/objects.h"
#include "test.h"
#include <string.h>

typedef struct object {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} object; /* a DLTensor */

static const int64_t shape[] = {3, 1, 5}, row_major[] = {5, 5, 1}, other_of_one[] = {5, 99, 1},
                     transposed[] = {1, 3, 3};
static const int64_t other_shape[] = {5, 1, 3};
static float memory[64];
static object objects[3];
static qn_tensor known[3];

static int read_object(void *from, void *to)
{
  memcpy(to, from, sizeof(object));
  return ((object *)from)->ndim < 0;
}
static void *object_at(void *list, ptrdiff_t k) { return k < 3 ? (object *)list + k : NULL; }

static void begin(void)
{
  for (int k = 0; k < 3; k++) {
    objects[k] = (object){memory + 16 * k, 1, 0, 3, 2, 32, 1, shape, row_major, 0};
    known[k] = (qn_tensor){memory + 16 * k, QN_F32, 3, shape, NULL, {QN_CPU, 0}};
  }
}

/* Stands for get: returns the object that stands at its own place from `key` on. */
static int taken, released;
static void *get_object(void *owner, void *key)
{
  taken++;
  return ((object *)owner)->lanes == 99 ? NULL : (object *)key + ((object *)owner - objects);
}
static void release_object(void *o) { released += o != NULL; }
static const qn_object_calls calls = {read_object, object_at, release_object};

static qn_follow follow(void)
{
  const qn_object_part part = {objects, NULL, NULL, known};
  qn_follow found;
  return qn_objects_follow(&calls, 3, &part, 1, &found) ? QN_FOLLOW_ERROR : found;
}

/* Three parts: the objects, what get makes of them, and the same list again with tensors of its own. */
static void parts(void)
{
  object grads[3];
  qn_tensor of_grads[3], again[3];
  const qn_object_part part[] = {
      {objects, NULL, NULL, known}, {objects, get_object, grads, of_grads}, {objects, NULL, NULL, again}};
  qn_follow found[3];
  begin();
  memcpy(grads, objects, sizeof grads);
  memcpy(of_grads, known, sizeof of_grads);
  memcpy(again, known, sizeof again);
  taken = released = 0;
  check(!qn_objects_follow(&calls, 3, part, 3, found) && found[0] == QN_FOLLOW_SAME && found[1] == QN_FOLLOW_SAME &&
            found[2] == QN_FOLLOW_SAME,
        "three parts that are the same");
  check(taken == 3 && released == 3, "every attribute that was taken was released");
  grads[1].ndim = 2;
  objects[2].data = memory + 1;
  check(!qn_objects_follow(&calls, 3, part, 3, found) && found[0] == QN_FOLLOW_MOVED && found[1] == QN_FOLLOW_CHANGED &&
            found[2] == QN_FOLLOW_MOVED && known[2].data == memory + 1 && again[2].data == memory + 1,
        "each part is told what became of it");
  check(taken == 5 && released == 5, "a part that changed is not looked at any further");
  grads[1] = objects[1];
  objects[1].lanes = 99;
  check(qn_objects_follow(&calls, 3, part + 1, 1, found), "an attribute that is not there is an error");
  check(taken == 7 && released == 6, "and nothing is released then");
  grads[0].ndim = -1;
  check(qn_objects_follow(&calls, 1, part + 1, 1, found) && released == 7, "one that cannot be read is released");
}

#define DIFFERS(what, ...)                                                                                             \
  do {                                                                                                                 \
    begin();                                                                                                           \
    __VA_ARGS__;                                                                                                       \
    check(follow() == QN_FOLLOW_CHANGED, "another " what " is seen");                                                  \
  } while (0)

int main(void)
{
  begin();
  check(follow() == QN_FOLLOW_SAME, "what is the same is the same");
  objects[1].strides = other_of_one;
  check(follow() == QN_FOLLOW_SAME, "the stride of an extent of 1 is not looked at");
  objects[2].data = memory + 48;
  check(follow() == QN_FOLLOW_MOVED && known[2].data == memory + 48 && known[0].data == memory,
        "what moved is followed");
  check(follow() == QN_FOLLOW_SAME, "and has then been seen");
  objects[0].byte_offset = 4;
  check(follow() == QN_FOLLOW_MOVED && known[0].data == memory + 1, "an offset counts");

  DIFFERS("type of as many bytes", objects[2].code = 0);
  DIFFERS("number of bits", objects[2].bits = 64);
  DIFFERS("number of lanes", objects[2].lanes = 2);
  DIFFERS("shape of as many elements", objects[2].shape = other_shape);
  DIFFERS("number of dimensions", objects[2].ndim = 2);
  DIFFERS("layout", objects[2].strides = transposed);
  DIFFERS("kind of device", objects[2].device_type = 2);
  DIFFERS("device that has no name here", objects[2].device_type = 10);
  begin();
  for (int k = 0; k < 3; k++) known[k].device.kind = QN_CUDA, objects[k].device_type = 2;
  check(follow() == QN_FOLLOW_SAME, "a GPU's tensors are followed");
  objects[1].device_id = 1;
  check(follow() == QN_FOLLOW_CHANGED, "another GPU is seen");
  begin();
  for (int k = 0; k < 3; k++) known[k].dtype = k ? QN_BF16 : QN_F16, objects[k].bits = 16, objects[k].code = k ? 4 : 2;
  check(follow() == QN_FOLLOW_SAME, "the two types of 16 bits are known");
  objects[1].code = 2;
  check(follow() == QN_FOLLOW_CHANGED, "and told apart");
  begin();
  objects[1].ndim = -1;
  check(follow() == QN_FOLLOW_ERROR, "an object that cannot be read is an error");
  const qn_object_part part = {objects, NULL, NULL, known};
  qn_follow found;
  begin();
  check(qn_objects_follow(&calls, 4, &part, 1, &found), "so is a list that is too short");
  check(!qn_objects_follow(&calls, 0, &part, 1, &found) && found == QN_FOLLOW_SAME, "an empty list is the same");
  parts();
  object *one = objects, *shifted = objects + 1;
  check(qn_objects_same(&calls, 3, one, one), "a list has the same objects as itself");
  check(!qn_objects_same(&calls, 1, one, shifted) && qn_objects_same(&calls, 0, one, shifted),
        "another object is another");
  return test_end();
}
