// Layer normalisation of the rows of x[rows, columns] in float32, as a handler of XLA's FFI: x is read once.
//
//   sums[r], squares[r] = sum of x[r], sum of squared distances from its mean         as in moments.c
//   s                   = gamma / sqrt(squares[r] / columns + epsilon)
//   result[r]           = x[r] * s + (beta - sums[r] / columns * s)
//
//   ROWS rows of x  ─►  their moments  ─►  result, out of the first cache
//
// Each operation is rounded, and each sum is added up in one order, so results depend neither on the instruction set nor
// on the number of cores.
#include <math.h>

#include "handler.h"
#include "moments.h"
#include "parts.h"
#include "processor.h"
#include "row_shapes.h"

typedef struct LayerWork {
  const RowShapes *shapes;
  const float *x, *gamma, *beta;
  float *result, *sums, *squares;
} LayerWork;

enum { LAYER_ROWS = 8 };  // that are computed at once

#define KERNELS "layer_normalization_kernels.h"
#include "rounded_instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const RowShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 3 || call->results.size != 3) return "a normalisation has three operands and three results";
  if (rows_are_wrong(s)) return "sizes are not positive";
  if (handler_elements(in[0], FFI_FLOAT32) != s->rows * s->columns) return "x is not of the shape";
  for (int i = 1; i < 3; i++)
    if (handler_elements(in[i], FFI_FLOAT32) != s->columns) return "gamma or beta is not of the shape";
  if (handler_elements(out[0], FFI_FLOAT32) != s->rows * s->columns) return "the result is not of the shape";
  for (int i = 1; i < 3; i++)
    if (handler_elements(out[i], FFI_FLOAT32) != s->rows) return "sums are not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_layer_normalization(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const RowShapes *s = handler_words(call, ROW_WORDS);
  if (!s) return handler_refuses(call, "a normalisation's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const LayerWork work = {s, in[0]->data, in[1]->data, in[2]->data, out[0]->data, out[1]->data, out[2]->data};
  Span *const rows_of[] = OF_EACH_SET(layer_rows);
  spans_run(call, &work, s->rows, s->parts, rows_of[level_within(s->level)]);
  return NULL;
}
