// Gradients of a convolution's filters and bias in float32, as a handler of XLA's FFI. See geometry.h for the formula.
//
// A call is cut into `slices` of the images, which have sums of their own that are added up in order at the end, and
// `bands` of the features. How depends on the shapes alone, so results do not depend on the number of cores.
#include <string.h>

#include "geometry.h"
#include "handler.h"
#include "next_unit.h"
#include "parts.h"
#include "processor.h"

#ifdef HAS_X86
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#endif
#define LANES 16
#define CHANNELS 4
#define NAME(x) JOIN(x, avx512)
#define MASK __mmask16
#define mask_of(n) ((__mmask16)((1u << (n)) - 1))
#define load_some(pointer, mask) ((V)_mm512_maskz_loadu_ps(mask, pointer))
#include "kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
static const int32_t avx2_masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
#define LANES 8
#define CHANNELS 2
#define NAME(x) JOIN(x, avx2)
#define MASK __m256i
#define mask_of(n) _mm256_loadu_si256((const __m256i *)(avx2_masks + 8 - (n)))
#define load_some(pointer, mask) ((V)_mm256_maskload_ps(pointer, mask))
#include "kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
static inline __attribute__((always_inline)) Four load_up_to_four(const float *pointer, int64_t count) {
  if (count == 4) return *(const Four *)pointer;
  Four some = {0};
  for (int64_t i = 0; i < count; i++) some[i] = pointer[i];
  return some;
}
#define LANES 4
#define CHANNELS 2
#define NAME(x) JOIN(x, plain)
#define MASK int64_t
#define mask_of(n) (n)
#define load_some(pointer, mask) ((V)load_up_to_four(pointer, mask))
#include "kernels.h"

// Returns the most capable instruction set of this processor: 0 plain, 1 AVX2, 2 AVX-512.
EXPORT int ipu_tf_level(void) { return processor_level(); }

// Adds up the slices' sums of some lines, without the padding.
static void add_up(const void *data, long part) {
  const Work *w = data;
  const Geometry *s = w->geometry;
  const int64_t features = sum_features(s), width = sum_width(s), lines = sum_lines(s) + (w->bias != NULL);
  const int64_t parts = s->slices * s->bands;
  for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; line++)
    for (int64_t group = 0; group < sum_groups(s); group++) {
      float *to = (line < sum_lines(s) ? w->filters + line * s->out : w->bias) + group * features;
      const float *from = w->sums + line * width + group * sum_stride(s);
      memcpy(to, from, features * sizeof(float));
      for (int64_t slice = 1; slice < s->slices; slice++)
        for (int64_t f = 0; f < features; f++) to[f] += from[slice * sum_size(s) + f];
    }
}

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const Geometry *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size < 2 || call->results.size > 3) return "wanted two operands";
  if (handler_elements(in[0], FFI_FLOAT32) != s->images * volume(s->input) * s->in) return "x is not of the geometry's shape";
  if (handler_elements(in[1], FFI_FLOAT32) != s->images * volume(s->output) * s->out) return "g is not of the geometry's shape";
  if (handler_elements(out[0], FFI_FLOAT32) != sum_lines(s) * s->out) return "the filters are not of the geometry's shape";
  if (handler_elements(out[1], FFI_FLOAT32) < s->slices * sum_size(s)) return "there is too little room for sums";
  if (call->results.size == 3 && handler_elements(out[2], FFI_FLOAT32) != s->out) return "the bias is not of the geometry's shape";
  const int64_t rows = (s->rows - 1) * s->step[1] + (s->window[1] - 1) * s->reach[1] + 1;
  const int64_t columns = (s->columns - 1) * s->step[2] + (s->window[2] - 1) * s->reach[2] + 1;
  if (s->by_feature && rows * columns * PAD > PACKED) return "a unit's windows see too much of x";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_filter_gradient(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const Geometry *s = handler_words(call, GEOMETRY_WORDS);
  if (!s) return handler_refuses(call, "a filter gradient's geometry is of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  Work work = {s, in[0]->data, in[1]->data, out[1]->data, out[0]->data, call->results.size == 3 ? out[2]->data : NULL};
  Part *const part_of[] = OF_EACH_SET(part);
  parts_run(call, &work, s->slices * s->bands, part_of[level_within(s->level)]);
  parts_run(call, &work, s->slices * s->bands, add_up);
  return NULL;
}
