// Depthwise convolutions in float32, as a handler of XLA's FFI: each feature is convolved with a filter of its own.
//
//   x         [images, depth, height, width, features]
//   filters   [KD, KH, KW, features]
//   result    [images, OD, OH, OW, features]
//
//   result[n, o, f] = sum over k of x[n, (o * step + k * reach - low) / spread, f] * filters[k, f]
//
// over those k for which the position is a whole number and inside of x. With a spread, the distance of x's elements in
// the gradient of a strided convolution's input, the zeros between them are not multiplied.
//
// Lines of the result, of all images, are dealt out to the parts. Each result is one sum in the filters' order, so results
// depend neither on the number of cores nor on the parts.
#include "handler.h"
#include "parts.h"
#include "prefetch.h"
#include "processor.h"

typedef struct DepthwiseShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t images, features;
  int64_t input[3], window[3], output[3], step[3], spread[3], reach[3], low[3];
  int64_t parts;
} DepthwiseShapes;

enum { DEPTHWISE_WORDS = sizeof(DepthwiseShapes) / sizeof(int64_t) };
enum { MOST_TAPS = 128, FEWEST_FEATURES = 16 };  // as in depthwise.py

typedef struct DepthwiseWork {
  const DepthwiseShapes *shapes;
  const float *x, *filters;
  float *result;
} DepthwiseWork;

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

// Sets the position in x that an element of the window has for a result, along an axis. Returns whether there is one,
// inside of x or not.
static inline int position_of(const DepthwiseShapes *s, int axis, int64_t result, int64_t tap, int64_t *position) {
  const int64_t at = result * s->step[axis] + tap * s->reach[axis] - s->low[axis], spread = s->spread[axis];
  *position = spread == 1 ? at : at >= 0 ? at / spread : -((-at + spread - 1) / spread);
  return *position * spread == at;
}

// A line of the result: where it is, and what it sees of x, line by line, with the filters for it.
typedef struct Line {
  float *result;
  int64_t count;
  const float *x[MOST_TAPS], *filters[MOST_TAPS];
} Line;

static void line_of(const DepthwiseWork *w, int64_t number, Line *line) {
  const DepthwiseShapes *s = w->shapes;
  const int64_t row = number % s->output[1], plane = number / s->output[1] % s->output[0];
  const int64_t image = number / s->output[1] / s->output[0];
  line->result = w->result + number * s->output[2] * s->features;
  line->count = 0;
  for (int64_t d = 0; d < s->window[0]; d++)
    for (int64_t k = 0; k < s->window[1]; k++) {
      int64_t z, y;
      if (!position_of(s, 0, plane, d, &z) || z < 0 || z >= s->input[0]) continue;
      if (!position_of(s, 1, row, k, &y) || y < 0 || y >= s->input[1]) continue;
      line->x[line->count] = w->x + ((image * s->input[0] + z) * s->input[1] + y) * s->input[2] * s->features;
      line->filters[line->count++] = w->filters + (d * s->window[1] + k) * s->window[2] * s->features;
    }
}

// Columns of the result that see the same elements of the window: first, first + apart, ... of a line.
typedef struct Columns {
  int64_t first, count, apart;
  int64_t step;                 // from one to the next in x
  int64_t inner, inner_end;     // those for which all of these elements are inside of x: [inner, inner_end)
  int64_t taps;                 // how many elements: which of the window, and where in x for the first column
  int64_t tap[MOST_TAPS], x[MOST_TAPS];
} Columns;

static void columns_of(const DepthwiseShapes *s, int64_t first, Columns *c) {
  c->first = first, c->apart = s->spread[2], c->step = s->step[2], c->taps = 0;
  c->count = (s->output[2] - first + c->apart - 1) / c->apart;
  int64_t from = 0, to = c->count;
  for (int64_t k = 0, x; k < s->window[2]; k++) {
    if (!position_of(s, 2, first, k, &x)) continue;
    c->tap[c->taps] = k, c->x[c->taps++] = x;
    if (x < 0) from = greater(from, (-x + c->step - 1) / c->step);
    to = x >= s->input[2] ? 0 : lesser(to, (s->input[2] - 1 - x) / c->step + 1);
  }
  c->inner = lesser(from, c->count), c->inner_end = greater(to, c->inner);
}

// The elements of the window that some columns of a line see: where each is in x for the first of them, and its filters.
typedef struct Taps {
  int64_t count;
  const float *x[MOST_TAPS], *filters[MOST_TAPS];
} Taps;

// Sets those that are inside of x for the column `at`.
static void taps_of(const DepthwiseShapes *s, const Line *line, const Columns *c, int64_t at, Taps *taps) {
  taps->count = 0;
  for (int64_t k = 0; k < c->taps; k++) {
    const int64_t x = c->x[k] + at * c->step;
    if (x < 0 || x >= s->input[2]) continue;
    for (int64_t i = 0; i < line->count; i++) {
      taps->x[taps->count] = line->x[i] + x * s->features;
      taps->filters[taps->count++] = line->filters[i] + c->tap[k] * s->features;
    }
  }
}

// Returns the line of x after the last that a line of the result sees, counted through all images.
static int64_t seen_until(const DepthwiseShapes *s, int64_t number) {
  const int64_t row = number % s->output[1], plane = number / s->output[1];
  const int64_t image = plane / s->output[0], reach = (s->window[1] - 1) * s->reach[1] - s->low[1];
  const int64_t depth = (s->window[0] - 1) * s->reach[0] - s->low[0];
  const int64_t y = (row * s->step[1] + reach) / s->spread[1] + 1;
  const int64_t z = (plane % s->output[0] * s->step[0] + depth) / s->spread[0];
  return (image * s->input[0] + greater(0, lesser(z, s->input[0] - 1))) * s->input[1] +
         greater(0, lesser(y, s->input[1]));
}

#define KERNELS "depthwise_kernels.h"
#include "instruction_sets.h"

static int64_t volume_of(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

static int shapes_are_wrong(const DepthwiseShapes *s) {
  for (int axis = 0; axis < 3; axis++) {
    if (s->input[axis] < 1 || s->window[axis] < 1 || s->output[axis] < 1) return 1;
    if (s->step[axis] < 1 || s->spread[axis] < 1 || s->reach[axis] < 1) return 1;
    if (s->step[axis] > 1 && s->spread[axis] > 1) return 1;
  }
  return s->images < 1 || s->features < FEWEST_FEATURES || s->parts < 1 || volume_of(s->window) > MOST_TAPS;
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const DepthwiseShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size != 1) return "a convolution has two operands and a result";
  if (shapes_are_wrong(s)) return "wanted sizes of at least 1, 16 features, at most 128 taps, and steps or a spread";
  if (handler_elements(in[0], FFI_FLOAT32) != s->images * volume_of(s->input) * s->features) return "x is not of the shape";
  if (handler_elements(in[1], FFI_FLOAT32) != volume_of(s->window) * s->features) return "the filters are not of the shape";
  const int64_t results = s->images * volume_of(s->output) * s->features;
  if (handler_elements(out[0], FFI_FLOAT32) != results) return "the result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_depthwise(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const DepthwiseShapes *s = handler_words(call, DEPTHWISE_WORDS);
  if (!s) return handler_refuses(call, "a depthwise convolution's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const DepthwiseWork work = {s, in[0]->data, in[1]->data, out[0]->data};
  Part *const part_of[] = OF_EACH_SET(depthwise_part);
  parts_run(call, &work, s->parts, part_of[level_within(s->level)]);
  return NULL;
}
