// Sums over the middle axis of x[before, terms, after] in float32, and of squared distances from their means, as a
// handler of XLA's FFI: x is read once.
//
//   sums[b, a]    = sum over t of x[b, t, a]
//   squares[b, a] = sum over t of (x[b, t, a] - sums[b, a] / terms)^2
//
//   BLOCK terms of a few columns  ─►  their mean  ─►  their distances from it, out of the first cache
//
// The mean of a block is rounded, which the sum of the distances from it makes good.
// Blocks, and then slices, are put together in float64 as Chan, Golub and LeVeque have it, "Algorithms for Computing the
// Sample Variance", 1983, (2.1): nothing is lost where a mean is large beside the distances from it. A call is cut into
// `slices` of the terms and `cuts` of what is before them, by the shapes alone, so results do not depend on the number
// of cores. Nor do they depend on the instruction set: products are rounded before they are added.
#include <stdlib.h>

#include "handler.h"
#include "middle_sum.h"
#include "moments.h"
#include "parts.h"
#include "processor.h"

typedef struct MomentsWork {
  const SumShapes *shapes;
  const float *x;
  double *sums, *squares;  // of each slice, [slices, before, after]
} MomentsWork;

#define KERNELS "moments_kernels.h"
#include "rounded_instruction_sets.h"

// Puts the slices together, in order.
static void finish(const MomentsWork *w, float *sums, float *squares) {
  const SumShapes *s = w->shapes;
  const int64_t size = s->before * s->after;
  Moments all = {w->sums, w->squares, slice_begin(s, 1)};
  for (int64_t slice = 1; slice < s->slices; slice++) {
    const int64_t count = slice_begin(s, slice + 1) - slice_begin(s, slice);
    put_together(&all, w->sums + slice * size, w->squares + slice * size, count, size);
    all.count += count;
  }
  for (int64_t i = 0; i < size; i++) sums[i] = (float)all.sums[i], squares[i] = (float)all.squares[i];
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const SumShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 1 || call->results.size != 2) return "moments have one operand and two results";
  if (sum_is_empty(s)) return "sizes are not positive";
  if (s->slices > s->terms) return "there are more slices than terms";
  const int64_t size = s->before * s->after;
  if (handler_elements(in[0], FFI_FLOAT32) != size * s->terms) return "x is not of the shape";
  for (int i = 0; i < 2; i++)
    if (handler_elements(out[i], FFI_FLOAT32) != size) return "a result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_moments(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const SumShapes *s = handler_words(call, SUM_WORDS);
  if (!s) return handler_refuses(call, "the shapes of moments are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int64_t size = s->slices * s->before * s->after;
  double *room = malloc(2 * size * sizeof(double));
  if (!room) return handler_refuses(call, "there is no memory for moments");
  const MomentsWork work = {s, in[0]->data, room, room + size};
  Part *const part_of[] = OF_EACH_SET(moments_part);
  parts_run(call, &work, s->slices * s->cuts, part_of[level_within(s->level)]);
  finish(&work, out[0]->data, out[1]->data);
  free(room);
  return NULL;
}
