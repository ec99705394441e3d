// Depthwise convolutions in float32, as a handler of XLA's FFI: each feature is convolved with a filter of its own. See
// convolution_lines.h for the formula.
//
// Lines of the result, of all images, are dealt out to the parts. Each result is one sum in the filters' order, so results
// depend neither on the number of cores nor on the parts.
#include "convolution_lines.h"
#include "handler.h"
#include "parts.h"
#include "prefetch.h"
#include "processor.h"

enum { FEWEST_FEATURES = 16 };  // as in forward_convolution.py

typedef struct DepthwiseWork {
  const ConvolutionShapes *shapes;
  const float *x, *filters;
  float *result;
} DepthwiseWork;

// The elements of the window that some columns of a line see: where each is in x for the first of them, and its filters.
typedef struct Taps {
  int64_t count;
  const float *x[MOST_TAPS], *filters[MOST_TAPS];
} Taps;

// Sets those that are inside of x for the column `at`.
static void taps_of(const DepthwiseWork *w, const Line *line, const Columns *c, int64_t at, Taps *taps) {
  const ConvolutionShapes *s = w->shapes;
  taps->count = 0;
  for (int64_t k = 0; k < c->taps; k++) {
    const int64_t x = c->x[k] + at * c->step;
    if (x < 0 || x >= s->input[2]) continue;
    for (int64_t i = 0; i < line->count; i++) {
      taps->x[taps->count] = w->x + (line->x[i] * s->input[2] + x) * s->out;
      taps->filters[taps->count++] = w->filters + (line->tap[i] * s->window[2] + c->tap[k]) * s->out;
    }
  }
}

#define KERNELS "depthwise_convolution_kernels.h"
#include "instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const ConvolutionShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size != 1) return "a convolution has two operands and a result";
  if (shapes_are_wrong(s) || s->in != s->out || s->out < FEWEST_FEATURES || volume(s->pool) > 1)
    return "wanted sizes of at least 1, 16 features, at most 128 taps, and steps or a spread";
  if (handler_elements(in[0], FFI_FLOAT32) != s->images * volume(s->input) * s->out) return "x is not of the shape";
  if (handler_elements(in[1], FFI_FLOAT32) != volume(s->window) * s->out) return "the filters are not of the shape";
  const int64_t results = s->images * volume(s->output) * s->out;
  if (handler_elements(out[0], FFI_FLOAT32) != results) return "the result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_depthwise_convolution(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const ConvolutionShapes *s = handler_words(call, CONVOLUTION_WORDS);
  if (!s) return handler_refuses(call, "a depthwise convolution's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const DepthwiseWork work = {s, in[0]->data, in[1]->data, out[0]->data};
  Span *const lines_of[] = OF_EACH_SET(depthwise_lines);
  spans_run(call, &work, s->images * s->output[0] * s->output[1], s->parts, lines_of[level_within(s->level)]);
  return NULL;
}
