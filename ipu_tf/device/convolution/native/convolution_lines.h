// Shapes of a convolution, and what a line of its result sees of its input.
//
//   x         [images, depth, height, width, features in]
//   filters   [KD, KH, KW, features in, features out], of a depthwise convolution [KD, KH, KW, features]
//             turned: the filters of the layer whose gradient this is, [-KD, -KH, -KW, features out, features in]
//   result    [images, OD, OH, OW, features out]; pooled, the largest of windows of it that lie beside each other
//
//   result[n, o] = sum over k of x[n, (o * step + k * reach - low) / spread] * filters[k]
//
// over those k for which the position is a whole number and inside of x. With a spread, the distance of x's elements in
// the gradient of a strided convolution's input, the zeros between them are not multiplied.
#ifndef IPU_TF_CONVOLUTION_LINES_H
#define IPU_TF_CONVOLUTION_LINES_H

#include "sizes.h"

typedef struct ConvolutionShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t images, in, out;
  int64_t input[3], window[3], output[3], step[3], spread[3], reach[3], low[3];
  int64_t turned;  // whether the filters are, of a dense convolution
  int64_t pool[3];  // sizes of the windows that the result is pooled by, of a dense convolution; 1 for none
  int64_t parts;
} ConvolutionShapes;

enum { CONVOLUTION_WORDS = sizeof(ConvolutionShapes) / sizeof(int64_t) };
enum { MOST_TAPS = 128 };  // elements of a window, as in forward_convolution.py

static inline int shapes_are_wrong(const ConvolutionShapes *s) {
  for (int axis = 0; axis < 3; axis++) {
    if (s->input[axis] < 1 || s->window[axis] < 1 || s->pool[axis] < 1 || s->output[axis] < s->pool[axis]) return 1;
    if (s->step[axis] < 1 || s->spread[axis] < 1 || s->reach[axis] < 1) return 1;
    if (s->step[axis] > 1 && s->spread[axis] > 1) return 1;
  }
  return s->images < 1 || s->in < 1 || s->out < 1 || s->parts < 1 || volume(s->window) > MOST_TAPS;
}

// Sets the position in x that an element of the window has for a result, along an axis. Returns whether there is one,
// inside of x or not.
static inline int position_of(const ConvolutionShapes *s, int axis, int64_t result, int64_t tap, int64_t *position) {
  const int64_t at = result * s->step[axis] + tap * s->reach[axis] - s->low[axis], spread = s->spread[axis];
  *position = spread == 1 ? at : at >= 0 ? at / spread : -ceiling(-at, spread);
  return *position * spread == at;
}

// What a line of the result sees: lines of x, counted through all images, each with a line of the window.
typedef struct Line {
  int64_t count, x[MOST_TAPS], tap[MOST_TAPS];
} Line;

static inline void line_of(const ConvolutionShapes *s, int64_t number, Line *line) {
  const int64_t row = number % s->output[1], plane = number / s->output[1] % s->output[0];
  const int64_t image = number / s->output[1] / s->output[0];
  line->count = 0;
  for (int64_t d = 0; d < s->window[0]; d++)
    for (int64_t k = 0; k < s->window[1]; k++) {
      int64_t z, y;
      if (!position_of(s, 0, plane, d, &z) || z < 0 || z >= s->input[0]) continue;
      if (!position_of(s, 1, row, k, &y) || y < 0 || y >= s->input[1]) continue;
      line->x[line->count] = (image * s->input[0] + z) * s->input[1] + y;
      line->tap[line->count++] = d * s->window[1] + k;
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

// Returns how many kinds of columns there are: column `first` of each is less.
static inline int64_t kinds_of_columns(const ConvolutionShapes *s) { return least(s->spread[2], s->output[2]); }

static inline void columns_of(const ConvolutionShapes *s, int64_t first, Columns *c) {
  c->first = first, c->apart = s->spread[2], c->step = s->step[2], c->taps = 0;
  c->count = ceiling(s->output[2] - first, c->apart);
  int64_t from = 0, to = c->count;
  for (int64_t k = 0, x; k < s->window[2]; k++) {
    if (!position_of(s, 2, first, k, &x)) continue;
    c->tap[c->taps] = k, c->x[c->taps++] = x;
    if (x < 0) from = most(from, ceiling(-x, c->step));
    to = x >= s->input[2] ? 0 : least(to, (s->input[2] - 1 - x) / c->step + 1);
  }
  c->inner = least(from, c->count), c->inner_end = most(to, c->inner);
}

// Returns the line of x after the last that a line of the result sees, counted through all images.
static inline int64_t seen_until(const ConvolutionShapes *s, int64_t number) {
  const int64_t row = number % s->output[1], plane = number / s->output[1];
  const int64_t image = plane / s->output[0], reach = (s->window[1] - 1) * s->reach[1] - s->low[1];
  const int64_t depth = (s->window[0] - 1) * s->reach[0] - s->low[0];
  const int64_t y = (row * s->step[1] + reach) / s->spread[1] + 1;
  const int64_t z = (plane % s->output[0] * s->step[0] + depth) / s->spread[0];
  return (image * s->input[0] + most(0, least(z, s->input[0] - 1))) * s->input[1] +
         most(0, least(y, s->input[1]));
}

#endif
