// Sums over the middle axis of x[before, terms, after] in float32, as a handler of XLA's FFI.
//
//   result[b, a] = sum over t of x[b, t, a]
//
// BLOCK terms at a time are added up in float32, and these sums in float64. Results do not depend on the number of cores.
#include "handler.h"
#include "middle_sum.h"
#include "parts.h"
#include "processor.h"

typedef struct SumWork {
  const SumShapes *shapes;
  const float *x;
  float *sums;  // of each slice, [slices, before, after]
  float *result;
} SumWork;

enum { PANEL = 512 };  // columns: their sums stay in the first cache

#define KERNELS "sum_kernels.h"
#include "instruction_sets.h"

// Adds up the slices' sums, in order.
static void add_up(const SumWork *w) {
  const int64_t size = w->shapes->before * w->shapes->after;
  for (int64_t i = 0; i < size; i++) {
    double total = 0;
    for (int64_t slice = 0; slice < w->shapes->slices; slice++) total += w->sums[slice * size + i];
    w->result[i] = (float)total;
  }
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const SumShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 1 || call->results.size != 2) return "a sum has one operand and two results";
  if (sum_is_empty(s)) return "sizes are not positive";
  const int64_t size = s->before * s->after;
  if (handler_elements(in[0], FFI_FLOAT32) != size * s->terms) return "x is not of the shape";
  if (handler_elements(out[0], FFI_FLOAT32) != size) return "the result is not of the shape";
  if (s->slices > 1 && handler_elements(out[1], FFI_FLOAT32) < s->slices * size) return "there is too little room for sums";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_sum(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const SumShapes *s = handler_words(call, SUM_WORDS);
  if (!s) return handler_refuses(call, "a sum's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  float *result = out[0]->data;
  SumWork work = {s, in[0]->data, s->slices > 1 ? out[1]->data : result, result};
  Part *const part_of[] = OF_EACH_SET(sum_part);
  parts_run(call, &work, s->slices * s->cuts, part_of[level_within(s->level)]);
  if (s->slices > 1) add_up(&work);
  return NULL;
}
