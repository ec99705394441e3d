// Products of matrices in float32, one or a batch of them, as a handler of XLA's FFI.
//
//   result[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]        + bias[n] + addend[b, m, n], at least 0 if wanted
//
// Operands are read and the result is written where they lie, by strides: attention's heads need no transposition.
//
//                    TILES tiles of right, DEPTH numbers of a column: packed, stay in the second-level cache
//                    [ tile ][ tile ] ...
//   TILE_ROWS rows   result  result        one call of the innermost loop each: its sums stay in registers
//   of left
//
// A unit of work is a tile's columns by a block's rows; those of a thread that lie beside each other are computed
// together. Each result is a sum over DEPTH numbers at a time, in order, so results do not depend on the number of cores.
#include <string.h>

#include "handler.h"
#include "parts.h"
#include "prefetch.h"
#include "processor.h"
#include "transposed_four.h"

enum { BATCH_AXES = 3 };  // as in matrix_product.py
enum { DEPTH = 256, TILES = 8 };  // of each operand that are packed at a time: numbers of the inner axis, and tiles
enum { FEWEST_ROWS = 24 };  // of a block
enum { TALL = 2048 };       // rows of an operand that caches do not hold, about: those of images

typedef struct MatrixShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t rows, inner, columns;
  int64_t batch[BATCH_AXES], left_batch[BATCH_AXES], right_batch[BATCH_AXES];  // sizes, and strides in floats
  int64_t left_row, left_inner, right_inner, right_column;                     // strides in floats
  int64_t result_batch[BATCH_AXES], result_row;  // the same; a row's columns lie one after the other
  int64_t has_bias, has_addend;                  // whether they are operands; the addend lies as the result does
  int64_t least_zero;                            // whether negative results are 0
  int64_t parts;
} MatrixShapes;

typedef struct MatrixWork {
  const MatrixShapes *shapes;
  const float *left, *right, *bias, *addend;  // the last two may be missing
  float *result;
} MatrixWork;

enum { MATRIX_WORDS = sizeof(MatrixShapes) / sizeof(int64_t) };

static int64_t batches_of(const MatrixShapes *s) { return s->batch[0] * s->batch[1] * s->batch[2]; }

// Returns where a batch begins in an operand with these strides.
static int64_t batch_offset(const MatrixShapes *s, const int64_t *strides, int64_t batch) {
  int64_t offset = 0;
  for (int axis = BATCH_AXES - 1; axis >= 0; axis--) {
    offset += batch % s->batch[axis] * strides[axis];
    batch /= s->batch[axis];
  }
  return offset;
}

// A part of a matrix: where its operands and its result begin.
typedef struct MatrixBlock {
  const float *left, *right, *bias, *addend;
  float *result;
  int64_t rows, columns;
} MatrixBlock;

static MatrixBlock block_of(const MatrixWork *w, int64_t batch, int64_t row, int64_t rows, int64_t column,
                            int64_t columns) {
  const MatrixShapes *s = w->shapes;
  const int64_t result = batch_offset(s, s->result_batch, batch) + row * s->result_row + column;
  return (MatrixBlock){
      .left = w->left + batch_offset(s, s->left_batch, batch) + row * s->left_row,
      .right = w->right + batch_offset(s, s->right_batch, batch) + column * s->right_column,
      .bias = w->bias ? w->bias + column : NULL,
      .addend = w->addend ? w->addend + result : NULL,
      .result = w->result + result,
      .rows = s->rows - row < rows ? s->rows - row : rows,
      .columns = s->columns - column < columns ? s->columns - column : columns,
  };
}

static int64_t tiles_of(const MatrixShapes *s, int64_t tile) { return (s->columns + tile - 1) / tile; }

// Returns the rows of a block, a multiple of `tile`. A matrix is cut by rows too if it has fewer tiles than parts.
static int64_t block_rows(const MatrixShapes *s, int64_t tiles, int64_t tile) {
  const int64_t units = batches_of(s) * tiles;
  int64_t blocks = (s->parts + units - 1) / units;
  if (blocks > s->rows / FEWEST_ROWS) blocks = s->rows / FEWEST_ROWS;
  if (blocks < 1) blocks = 1;
  return ((s->rows + blocks - 1) / blocks + tile - 1) / tile * tile;
}

#define KERNELS "matrix_kernels.h"
#include "instruction_sets.h"

// Returns how many floats an operand has at least, by its strides.
static int64_t reach(const MatrixShapes *s, const int64_t *strides, int64_t a, int64_t a_stride, int64_t b,
                     int64_t b_stride) {
  int64_t last = (a - 1) * a_stride + (b - 1) * b_stride;
  for (int axis = 0; axis < BATCH_AXES; axis++) last += (s->batch[axis] - 1) * strides[axis];
  return last + 1;
}

static int sizes_are_wrong(const MatrixShapes *s) {
  int64_t least = s->rows < s->columns ? s->rows : s->columns;
  for (int axis = 0; axis < BATCH_AXES; axis++) {
    if (s->batch[axis] < least) least = s->batch[axis];
    if (s->left_batch[axis] < 0 || s->right_batch[axis] < 0 || s->result_batch[axis] < 0) return 1;
  }
  if (s->result_row < 0 || s->left_row < 0 || s->left_inner < 0 || s->right_inner < 0 || s->right_column < 0) return 1;
  return least < 1 || s->inner < 1 || s->parts < 1;
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const MatrixShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int64_t biases = s->has_bias != 0, addends = s->has_addend != 0;
  if (call->arguments.size != 2 + biases + addends || call->results.size != 1) return "a product has other operands";
  if (sizes_are_wrong(s)) return "wanted sizes of at least 1, and no negative strides";
  if (handler_elements(in[0], FFI_FLOAT32) < reach(s, s->left_batch, s->rows, s->left_row, s->inner, s->left_inner))
    return "the left operand is not of the shape";
  const int64_t right = reach(s, s->right_batch, s->inner, s->right_inner, s->columns, s->right_column);
  if (handler_elements(in[1], FFI_FLOAT32) < right) return "the right operand is not of the shape";
  if (biases && handler_elements(in[2], FFI_FLOAT32) != s->columns) return "the bias is not of the shape";
  const int64_t results = batches_of(s) * s->rows * s->columns;
  if (addends && handler_elements(in[2 + biases], FFI_FLOAT32) != results) return "the addend is not of the shape";
  const int64_t written = reach(s, s->result_batch, s->rows, s->result_row, s->columns, 1);
  if (handler_elements(out[0], FFI_FLOAT32) != results || written != results) return "the result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_matrix_product(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const MatrixShapes *s = handler_words(call, MATRIX_WORDS);
  if (!s) return handler_refuses(call, "a product's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const float *bias = s->has_bias ? in[2]->data : NULL, *addend = s->has_addend ? in[s->has_bias ? 3 : 2]->data : NULL;
  const MatrixWork work = {s, in[0]->data, in[1]->data, bias, addend, out[0]->data};
  Span *const units_of[] = OF_EACH_SET(matrix_units);
  int64_t (*const count_of[])(const MatrixShapes *) = OF_EACH_SET(unit_count);
  const int level = level_within(s->level);
  spans_run(call, &work, count_of[level](s), s->parts, units_of[level]);
  return NULL;
}
