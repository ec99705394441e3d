// Softmax of the rows of x[rows, columns] in float32, as a handler of XLA's FFI.
//
//   result[r, c] = exp(y[r, c] - max y[r]) / sum of these over c        y = scale * x
//
//   x[r] ──► scale, largest ──► exp of the distances, their sum ──► / sum ──► result[r]       rows stay in the first cache
//
// Sixteen numbers at a time, for all instruction sets, and each sum is added up in one order, so results depend
// neither on the instruction set nor on the number of cores. A row with a NaN, or of infinities, is NaN.
#include <math.h>
#include <string.h>

#include "handler.h"
#include "parts.h"
#include "processor.h"
#include "row_shapes.h"

typedef struct SoftmaxWork {
  const RowShapes *shapes;
  const float *x;
  float *result;
} SoftmaxWork;

enum { SUMMED = 64 };               // vectors that are added up in float32
enum { ROWS = 16, CACHE = 4096 };  // rows that are computed at once, and floats of them, at most

static int64_t rows_at_once(const RowShapes *s) {
  const int64_t fit = CACHE / s->columns;
  return fit < 1 ? 1 : fit > ROWS ? ROWS : fit;
}

#define KERNELS "softmax_kernels.h"
#include "rounded_instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const RowShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 1 || call->results.size != 1) return "a softmax has one operand and one result";
  if (rows_are_wrong(s)) return "sizes are not positive";
  if (handler_elements(in[0], FFI_FLOAT32) != s->rows * s->columns) return "x is not of the shape";
  if (handler_elements(out[0], FFI_FLOAT32) != s->rows * s->columns) return "the result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_softmax(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const RowShapes *s = handler_words(call, ROW_WORDS);
  if (!s) return handler_refuses(call, "a softmax's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const SoftmaxWork work = {s, in[0]->data, out[0]->data};
  Span *const rows_of[] = OF_EACH_SET(softmax_rows);
  spans_run(call, &work, s->rows, s->parts, rows_of[level_within(s->level)]);
  return NULL;
}
