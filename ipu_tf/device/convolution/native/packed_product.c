// Products of a few rows with packed weights of 8 and 4 bits, as a handler of XLA's FFI. See packed_shapes.h for them.
//
// Weights are widened in registers, so that memory is read once, as it is. A call is cut into parts by its columns;
// each result is summed in one order, so results depend neither on the number of cores nor on the parts.
#include <string.h>

#include "handler.h"
#include "packed_shapes.h"
#include "parts.h"
#include "processor.h"
#include "shuffled.h"

#ifdef HAS_X86
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#endif
#define LANES 16
#define NAME(x) JOIN(x, avx512)
#define WIDEN(p) ((I)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#define BLEND_LOW(a, b) SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define BLEND_HIGH(a, b) SHUFFLED(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#include "packed_kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#define NAME(x) JOIN(x, avx2)
#define WIDEN(p) ((I)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define BLEND_LOW(a, b) SHUFFLED(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define BLEND_HIGH(a, b) SHUFFLED(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#include "packed_kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define LANES 4
#define NAME(x) JOIN(x, plain)
#define WIDEN(p) ((I){(p)[0], (p)[1], (p)[2], (p)[3]})
#define BLEND_LOW(a, b) SHUFFLED(a, b, 0, 4, 1, 5)
#define BLEND_HIGH(a, b) SHUFFLED(a, b, 2, 6, 3, 7)
#include "packed_kernels.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const Shapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != (s->block ? 5 : 2) || call->results.size != 1) return "wanted two operands, or five";
  if (s->rows < 0 || s->inner < 1 || s->columns < 1 || s->block < 0 || s->parts < 1) return "sizes are negative";
  if (s->bits != 4 && s->bits != 8) return "weights are of 4 or 8 bits";
  if (s->turned && s->block % UNIT && s->block < s->inner) return "turned, groups are of whole units";
  const int64_t groups = groups_of(s), lines = s->turned ? s->columns : s->inner;
  if (handler_elements(in[0], FFI_FLOAT32) != s->rows * x_line(s)) return "x is not of the shape";
  if (handler_elements(in[1], FFI_INT8) != lines * line_bytes(s)) return "the weights are not of the shape";
  if (handler_elements(out[0], s->whole ? FFI_INT32 : FFI_FLOAT32) != s->rows * s->columns) return "the result is not of the shape";
  if (!s->block) return NULL;
  if (handler_elements(in[2], FFI_FLOAT32) != groups * s->columns) return "the scales are not of the shape";
  if (handler_elements(in[3], FFI_INT8) != groups * s->columns) return "the zeros are not of the shape";
  if (handler_elements(in[4], FFI_FLOAT32) != s->rows * groups) return "the sums are not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_packed_product(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const Shapes *s = handler_words(call, SHAPE_WORDS);
  if (!s) return handler_refuses(call, "a product's shapes are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  Packed work = {.shapes = s, .x = in[0]->data, .weights = in[1]->data, .result = out[0]->data};
  if (s->block) work.scale = in[2]->data, work.zero = in[3]->data, work.sums = in[4]->data;
  Part *const part_of[] = OF_EACH_SET(packed_part);
  parts_run(call, &work, s->parts, part_of[level_within(s->level)]);
  return NULL;
}
