// Dense convolutions of one or two spatial axes in float32, as a handler of XLA's FFI, with bias and ReLU, and then max
// pooling, if wanted. See convolution_lines.h for the formula.
//
//   filters [taps, features in, features out]  ─►  packed: [tile of features, taps, features in, tile's width]
//
//   lines of x, with zeros beside them  ─►  columns x tile's width sums in registers, over a run of
//   (copied, one after the other)           elements of x that lie one after the other: a line of the window
//
// Lines of the result, of all images, are dealt out to threads: pooled, with the lines before pooling, which stay in the
// caches. Each result is one sum in the filters' order, so results do not depend on the number of cores.
#include <math.h>
#include <string.h>

#include "convolution_lines.h"
#include "handler.h"
#include "parts.h"
#include "past_caches.h"
#include "prefetch.h"
#include "processor.h"
#include "transposed_four.h"

enum { MOST_FLOATS = 65536 };  // of the lines of x that a part holds, as in forward_convolution.py
enum { HELD = 131072 };        // floats of packed filters that are used together, and stay in the second cache
enum { SHARED = 65536 };       // numbers of filters from which on parts share their packing
enum { MOST_POOLED = 32768 };  // floats of the lines before pooling, as in forward_convolution.py
enum { STREAMED = 1 << 20 };   // numbers of a result from which on it is written past the caches

typedef struct DenseWork {
  const ConvolutionShapes *shapes;
  const float *x, *filters, *bias;  // bias may be missing
  float *packed, *result;
  long pack_parts;
  int streams;  // whether whole lines of the cache are written past the caches
} DenseWork;

// Elements of x that lie one after the other, for the first of some columns, and the packed filters of one tile for them.
typedef struct Run {
  const float *x;
  int64_t filters, length;  // from the tile's begin, in lines of its width
} Run;

// How lines of x are copied: with zeros for columns before and after it that windows see. Without such, they are not.
typedef struct Margins {
  int64_t before, after;
} Margins;

static Margins margins_of(const ConvolutionShapes *s) {
  Margins margins = {0, 0};
  Columns c;
  for (int64_t first = 0; first < kinds_of_columns(s); first++) {
    columns_of(s, first, &c);
    for (int64_t k = 0; k < c.taps; k++) {
      margins.before = most(margins.before, -c.x[k]);
      margins.after = most(margins.after, c.x[k] + (c.count - 1) * c.step - (s->input[2] - 1));
    }
  }
  return margins;
}

static int is_pooled(const ConvolutionShapes *s) { return volume(s->pool) > 1; }

// Returns the last line before pooling, counted through all images, that a line of the result is of.
static int64_t last_line(const ConvolutionShapes *s, int64_t number) {
  const int64_t rows = s->output[1] / s->pool[1];
  return number / rows * s->output[1] + (number % rows + 1) * s->pool[1] - 1;
}

// Returns how many lines of x are held: those that a line of the result sees are in places of their own.
static int64_t held_lines(const ConvolutionShapes *s) { return (s->window[1] - 1) * s->reach[1] + 1; }

// The runs of some columns, from elements of the window that follow each other in x and in the filters.
static int64_t runs_of(const ConvolutionShapes *s, const Line *line, const float *const *lines, const Columns *c,
                       Run *runs) {
  int64_t count = 0;
  for (int64_t i = 0; i < line->count; i++)
    for (int64_t k = 0, next; k < c->taps; k = next) {
      for (next = k + 1; next < c->taps; next++)
        if (c->tap[next] != c->tap[next - 1] + 1 || c->x[next] != c->x[next - 1] + 1) break;
      const int64_t tap = line->tap[i] * s->window[2] + c->tap[k];
      runs[count++] = (Run){lines[i] + c->x[k] * s->in, tap * s->in, (next - k) * s->in};
    }
  return count;
}

#define KERNELS "dense_convolution_kernels.h"
#include "instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const ConvolutionShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int64_t operands = call->arguments.size;
  if (operands < 2 || operands > 3 || call->results.size != 2) return "a convolution has two operands or three";
  if (shapes_are_wrong(s)) return "wanted sizes of at least 1, at most 128 taps, and steps or a spread";
  const Margins margins = margins_of(s);
  const int64_t held = held_lines(s) * (margins.before + s->input[2] + margins.after) * s->in;
  if (s->input[0] * s->window[0] * s->output[0] != 1 || held > MOST_FLOATS || held_lines(s) > MOST_TAPS)
    return "wanted short lines of two axes";
  if (is_pooled(s) && (s->pool[0] > 1 || s->pool[1] * s->output[2] * s->out > MOST_POOLED))
    return "wanted short lines before pooling";
  const int64_t weights = volume(s->window) * s->in;
  if (handler_elements(in[0], FFI_FLOAT32) != s->images * volume(s->input) * s->in) return "x is not of the shape";
  if (handler_elements(in[1], FFI_FLOAT32) != weights * s->out) return "the filters are not of the shape";
  if (operands == 3 && handler_elements(in[2], FFI_FLOAT32) != s->out) return "the bias is not of the shape";
  const int64_t pooled = s->images * (s->output[1] / s->pool[1]) * (s->output[2] / s->pool[2]) * s->out;
  if (handler_elements(out[0], FFI_FLOAT32) != pooled) return "the result is not of the shape";
  if (handler_elements(out[1], FFI_FLOAT32) < weights * ceiling(s->out, 32) * 32) return "there is too little room";
  return NULL;
}

// The handler. With a bias it is added, and what is negative then is 0. Then windows that the result has whole are pooled.
EXPORT FfiError *ipu_tf_dense_convolution(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const ConvolutionShapes *s = handler_words(call, CONVOLUTION_WORDS);
  if (!s) return handler_refuses(call, "a convolution's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const float *bias = call->arguments.size == 3 ? in[2]->data : NULL;
  const long pack_parts = volume(s->window) * s->in * s->out >= SHARED ? least(s->parts, 8) : 1;
  // A large result has left the caches before it is read; without this its lines are read in order to be overwritten.
  const int64_t results = s->images * volume(s->output) * s->out;
  const int streams = results >= STREAMED && !is_pooled(s) && s->out % LINE == 0 && (uintptr_t)out[0]->data % 64 == 0;
  const DenseWork work = {s, in[0]->data, in[1]->data, bias, out[1]->data, out[0]->data, pack_parts, streams};
  Part *const pack_of[] = OF_EACH_SET(dense_pack);
  Span *const lines_of[] = OF_EACH_SET(dense_lines), *const pooled_of[] = OF_EACH_SET(pooled_lines);
  const int level = level_within(s->level);
  parts_run(call, &work, pack_parts, pack_of[level]);
  spans_run(call, &work, s->images * (s->output[1] / s->pool[1]), s->parts,
            (is_pooled(s) ? pooled_of : lines_of)[level]);
  return NULL;
}
