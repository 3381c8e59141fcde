/* SPDX-License-Identifier: Apache-2.0 */
/* objects.c - looks at a framework's tensor objects through DLPack's table for C. It knows DLPack's struct and nothing
 * of Python: objects are opaque, and the functions that know them are the caller's. */
#include "quern/objects.h"
#include "op/call.h"
#include "op/view.h"
#include "python/dlpack.h"

static bool are_equal(const int64_t *one, const int64_t *other, int n)
{
  for (int d = 0; d < n; d++)
    if (one[d] != other[d]) return false;
  return true;
}

static bool is_like(const qn_tensor *now, const qn_tensor *known)
{
  if (now->dtype != known->dtype || now->ndim != known->ndim) return false;
  if (now->device.kind != known->device.kind || now->device.index != known->device.index) return false;
  if (!are_equal(now->shape, known->shape, now->ndim)) return false;
  const bool alike = now->strides && known->strides && are_equal(now->strides, known->strides, now->ndim);
  return alike || qn_same_layout(now, known);
}

static qn_follow follow(const qn_object_calls *calls, const qn_object_part *part, size_t k)
{
  qn_dl_tensor t;
  qn_tensor *known = &part->tensors[k];
  void *owner = calls->at(part->list, (ptrdiff_t)k);
  void *object = owner && part->get ? part->get(owner, part->key) : owner;
  if (!object) return QN_FOLLOW_ERROR;
  qn_follow found = QN_FOLLOW_ERROR;
  if (!calls->read(object, &t)) {
    const qn_tensor now = qn_dl_seen(&t);
    found = !is_like(&now, known) ? QN_FOLLOW_CHANGED : now.data == known->data ? QN_FOLLOW_SAME : QN_FOLLOW_MOVED;
    if (found == QN_FOLLOW_MOVED) known->data = now.data;
  }
  if (part->get) calls->release(object);
  return found;
}

/* Part by part of each place, so that what belongs together is looked at while it is in the caches. */
int qn_objects_follow(const qn_object_calls *calls, size_t n, const qn_object_part *parts, size_t n_parts,
                      qn_follow *found)
{
  for (size_t j = 0; j < n_parts; j++) found[j] = QN_FOLLOW_SAME;
  for (size_t k = 0; k < n; k++)
    for (size_t j = 0; j < n_parts; j++) {
      if (found[j] == QN_FOLLOW_CHANGED) continue;
      const qn_follow now = follow(calls, &parts[j], k);
      if (now == QN_FOLLOW_ERROR) return 1;
      if (now != QN_FOLLOW_SAME) found[j] = now;
    }
  return 0;
}

int qn_objects_same(const qn_object_calls *calls, size_t n, void *one, void *other)
{
  for (size_t k = 0; k < n; k++)
    if (calls->at(one, (ptrdiff_t)k) != calls->at(other, (ptrdiff_t)k)) return 0;
  return 1;
}
