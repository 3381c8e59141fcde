/* SPDX-License-Identifier: Apache-2.0 */
/* function.c - a forward kernel with its vjp and jvp: which tensors they share is decided and checked here, once, by
 * count and name; a call is then a launch whose shapes are held against each other. gradient.c proves the result.
 *
 * Which inputs have cotangents: an output of the vjp is its input's where all of them are named "<input>_cotangent" or
 * "<input>_grad"; else there must be as many as inputs, and the k-th is input k's. Tangents of a jvp likewise, by
 * "<input>_tangent". */
#include "kernel/function.h"
#include <stdio.h>
#include <string.h>

/* ---- who is whose ---- */
static const char *const cotangent_endings[] = {"_cotangent", "_grad", NULL};
static const char *const tangent_endings[] = {"_tangent", NULL};

/* The forward's input that `name` is made of with one of the endings; -1: none. */
static int named_for(const qn_kernel_source *forward, const char *name, const char *const *endings)
{
  for (; *endings; endings++)
    for (size_t k = 0; k < forward->n_inputs; k++) {
      size_t length = strlen(forward->inputs[k]);
      if (!strncmp(name, forward->inputs[k], length) && !strcmp(name + length, *endings)) return (int)k;
    }
  return -1;
}

/* Fills `of` for n tensors of a kernel. `what`: "the vjp's output", for sentences. */
static qn_status match(const char *function, const qn_kernel_source *forward, const char *what, size_t n,
                       const char *const *names, const char *const *endings, uint8_t *of)
{
  size_t named = 0;
  int place[QN_KERNEL_MAX_TENSORS];
  for (size_t k = 0; k < n; k++) {
    place[k] = named_for(forward, names[k], endings);
    named += place[k] >= 0;
  }
  for (size_t k = 0; k < n && named < n; k++) {
    qn_require(n == forward->n_inputs || place[k] >= 0,
               "%s: %s \"%s\" is no input's name with \"%s\", and without names there must be one for each of the %zu "
               "inputs, not %zu",
               function, what, names[k], endings[0], forward->n_inputs, n);
    if (n != forward->n_inputs) continue;
    qn_require(place[k] < 0 || place[k] == (int)k,
               "%s: %s \"%s\" is number %zu, but not all are named for inputs, so that their order counts and it is "
               "input \"%s\"'s",
               function, what, names[k], k, forward->inputs[k]);
    place[k] = (int)k;
  }
  for (size_t k = 0; k < n; k++) {
    for (size_t other = 0; other < k; other++)
      qn_require(place[k] != place[other], "%s: %s \"%s\" and \"%s\" are both input \"%s\"'s", function, what,
                 names[other], names[k], forward->inputs[place[k]]);
    of[k] = (uint8_t)place[k];
  }
  return QN_OK;
}

static qn_status match_vjp(qn_function *f)
{
  const qn_kernel_source *forward = &f->forward->source, *vjp = &f->vjp->source;
  const size_t least = forward->n_inputs + forward->n_outputs;
  qn_require(vjp->n_inputs == least || vjp->n_inputs == least + forward->n_outputs,
             "%s: the vjp \"%s\" has %zu inputs; the forward has %zu inputs and %zu outputs, so it takes %zu (inputs, "
             "cotangents) or %zu (outputs besides)",
             f->name, vjp->name, vjp->n_inputs, forward->n_inputs, forward->n_outputs, least,
             least + forward->n_outputs);
  f->vjp_sees_outputs = vjp->n_inputs != least;
  qn_require(vjp->n_outputs <= forward->n_inputs, "%s: the vjp \"%s\" has %zu outputs; the forward has %zu inputs",
             f->name, vjp->name, vjp->n_outputs, forward->n_inputs);
  return match(f->name, forward, "the vjp's output", vjp->n_outputs, vjp->outputs, cotangent_endings, f->cotangent_of);
}

static qn_status match_jvp(qn_function *f)
{
  const qn_kernel_source *forward = &f->forward->source, *jvp = &f->jvp->source;
  const size_t n = forward->n_inputs;
  qn_require(jvp->n_inputs > n && jvp->n_inputs <= 2 * n,
             "%s: the jvp \"%s\" has %zu inputs; the forward has %zu, so it takes them and from 1 to %zu tangents",
             f->name, jvp->name, jvp->n_inputs, n, n);
  qn_require(jvp->n_outputs == forward->n_outputs, "%s: the jvp \"%s\" has %zu outputs; the forward has %zu", f->name,
             jvp->name, jvp->n_outputs, forward->n_outputs);
  return match(f->name, forward, "the jvp's input", jvp->n_inputs - n, jvp->inputs + n, tangent_endings, f->tangent_of);
}

qn_status qn_function_create(qn_function **function, const qn_function_source *source)
{
  qn_require(function, "qn_function_create: the place for the function is NULL");
  *function = NULL;
  qn_require(source, "qn_function_create: the source is NULL");
  qn_require(source->size == sizeof *source, "qn_function_create: the source has size %zu, it must be %zu",
             source->size, sizeof *source);
  qn_require(qn_is_identifier(source->name), "qn_function_create: the name \"%s\" is no identifier",
             source->name ? source->name : "NULL");
  qn_require(source->forward, "%s: the forward kernel is NULL", source->name);
  qn_function *f = qn_allocate_zero(1, sizeof *f);
  char *name = qn_duplicate(source->name);
  if (!f || !name) {
    qn_release(f);
    qn_release(name);
    return qn_fail(QN_NO_MEMORY, "%s: no memory for the function", source->name);
  }
  *f = (qn_function){.name = name, .forward = source->forward, .vjp = source->vjp, .jvp = source->jvp};
  qn_status status = f->vjp ? match_vjp(f) : QN_OK;
  if (status == QN_OK && f->jvp) status = match_jvp(f);
  if (status != QN_OK)
    qn_function_destroy(&f);
  else
    *function = f;
  return status;
}

void qn_function_destroy(qn_function **function)
{
  if (!function || !*function) return;
  qn_release((*function)->name);
  qn_release(*function);
  *function = NULL;
}

/* ---- calls ---- */
enum { SHAPE_BYTES = 21 * QN_MAX_NDIM + 3 };

static const char *shape_text(const qn_tensor *t, char text[SHAPE_BYTES])
{
  size_t at = 0;
  text[at++] = '[';
  for (int k = 0; k < t->ndim && k < QN_MAX_NDIM; k++)
    at += (size_t)snprintf(text + at, SHAPE_BYTES - at, "%s%lld", k ? ", " : "", (long long)t->shape[k]);
  text[at++] = ']';
  text[at] = 0;
  return text;
}

static bool readable(const qn_tensor *t) { return t->ndim >= 0 && t->ndim <= QN_MAX_NDIM && (!t->ndim || t->shape); }

/* Tensors that a launch will refuse anyway are left to it: its sentence is the better one. */
static qn_status same_shape(const qn_function *f, const char *name, const qn_tensor *t, const char *of_name,
                            const qn_tensor *of)
{
  char text[SHAPE_BYTES], of_text[SHAPE_BYTES];
  if (!readable(t) || !readable(of)) return QN_OK;
  qn_require(t->ndim == of->ndim && (!t->ndim || !memcmp(t->shape, of->shape, sizeof *t->shape * (size_t)t->ndim)),
             "%s: \"%s\" has the shape %s, and \"%s\", which it belongs to, %s", f->name, name, shape_text(t, text),
             of_name, shape_text(of, of_text));
  return QN_OK;
}

static bool has_tensors(const qn_kernel_call *call)
{
  return call && call->size == sizeof *call && call->inputs && call->outputs;
}

qn_status qn_function_forward(qn_function *function, const qn_exec *exec, const qn_kernel_call *call)
{
  qn_require(function, "qn_function_forward: the function is NULL");
  return qn_kernel_launch(function->forward, exec, call);
}

qn_status qn_function_vjp(qn_function *function, const qn_exec *exec, const qn_kernel_call *call)
{
  qn_require(function, "qn_function_vjp: the function is NULL");
  const qn_function *f = function;
  const size_t inputs = qn_function_inputs(f), outputs = qn_function_outputs(f);
  if (!f->vjp) return qn_fail(QN_UNSUPPORTED, "%s has no vjp", f->name);
  const qn_kernel_source *vjp = &f->vjp->source;
  for (size_t k = 0; has_tensors(call) && k < vjp->n_outputs; k++)
    qn_try(same_shape(f, vjp->outputs[k], &call->outputs[k], vjp->inputs[f->cotangent_of[k]],
                      &call->inputs[f->cotangent_of[k]]));
  for (size_t k = inputs; has_tensors(call) && f->vjp_sees_outputs && k < inputs + outputs; k++)
    qn_try(same_shape(f, vjp->inputs[k], &call->inputs[k], vjp->inputs[k + outputs], &call->inputs[k + outputs]));
  return qn_kernel_launch(f->vjp, exec, call);
}

qn_status qn_function_jvp(qn_function *function, const qn_exec *exec, const qn_kernel_call *call)
{
  qn_require(function, "qn_function_jvp: the function is NULL");
  const qn_function *f = function;
  const size_t inputs = qn_function_inputs(f);
  if (!f->jvp) return qn_fail(QN_UNSUPPORTED, "%s has no jvp", f->name);
  const qn_kernel_source *jvp = &f->jvp->source;
  for (size_t k = inputs; has_tensors(call) && k < jvp->n_inputs; k++)
    qn_try(same_shape(f, jvp->inputs[k], &call->inputs[k], jvp->inputs[f->tangent_of[k - inputs]],
                      &call->inputs[f->tangent_of[k - inputs]]));
  return qn_kernel_launch(f->jvp, exec, call);
}
