// Products of a few rows with a large matrix in float32, as a handler of XLA's FFI.
//
//   result[r, c] = sum over k of x[r, k] * matrix[k, c]        or, turned, * matrix[c, k]
//
// The matrix is read once, each part of the call from one end of its memory to the other: slices of the inner axis, whose
// sums are added up at the end, or, turned, some of the columns. The cut follows from the shapes alone, so results do
// not depend on the number of cores.
#include <string.h>

#include "handler.h"
#include "parts.h"
#include "processor.h"

typedef struct RowShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t rows, inner, columns;
  int64_t turned;  // whether a column's numbers lie one after the other
  int64_t parts;
} RowShapes;

typedef struct RowWork {
  const RowShapes *shapes;
  const float *x, *matrix;
  float *sums;  // of each slice, [parts, rows, columns]
} RowWork;

enum { ROW_WORDS = sizeof(RowShapes) / sizeof(int64_t) };
enum { MOST_ROWS = 8 };  // as in row_product.py
enum { LINES = 16 };      // lines of the matrix that are read beside each other
enum { STRETCH = 1024 };  // lines, or 16 places of a column, whose products are added up before sums of stretches are
enum { FEW_SUMS = 1024 }; // of more, a stretch is not worth room of its own: their inner axis is not that long
typedef float RowV __attribute__((vector_size(64), aligned(4), may_alias));

#define KERNELS "row_kernels.h"
#include "instruction_sets.h"

// Adds up the slices' sums, in order.
static void add_up(const RowWork *w, float *result) {
  const int64_t size = w->shapes->rows * w->shapes->columns;
  memcpy(result, w->sums, size * sizeof(float));
  for (int64_t slice = 1; slice < w->shapes->parts; slice++)
    for (int64_t i = 0; i < size; i++) result[i] += w->sums[slice * size + i];
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const RowShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size != 2) return "a product has two operands and two results";
  if (s->rows < 1 || s->rows > MOST_ROWS || s->inner < 1 || s->columns < 1 || s->parts < 1) return "wanted 1 to 8 rows, and sizes";
  if (handler_elements(in[0], FFI_FLOAT32) != s->rows * s->inner) return "x is not of the shape";
  if (handler_elements(in[1], FFI_FLOAT32) != s->inner * s->columns) return "the matrix is not of the shape";
  if (handler_elements(out[0], FFI_FLOAT32) != s->rows * s->columns) return "the result is not of the shape";
  const int64_t slices = s->turned || s->parts == 1 ? 0 : s->parts;
  if (handler_elements(out[1], FFI_FLOAT32) < slices * s->rows * s->columns) return "there is too little room for sums";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_row_product(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const RowShapes *s = handler_words(call, ROW_WORDS);
  if (!s) return handler_refuses(call, "a product's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int sliced = !s->turned && s->parts > 1;
  RowWork work = {s, in[0]->data, in[1]->data, sliced ? out[1]->data : out[0]->data};
  Part *const part_of[] = OF_EACH_SET(row_part);
  parts_run(call, &work, s->parts, part_of[level_within(s->level)]);
  if (sliced) add_up(&work, out[0]->data);
  return NULL;
}
