// Stochastic rounding of float32 to the numbers that float16 has, as a handler of XLA's FFI.
//
//   result[k, i] = the float16 number below x[k, i], or the one above it, by a hash of key[k] and i
//
// Numbers are those of `ipu_tf/device/numerics/half.py`, bit for bit, and depend on their places alone.
#include <string.h>

#include "handler.h"
#include "parts.h"
#include "processor.h"

typedef struct RoundingShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t elements, slices;  // of each key
} RoundingShapes;

typedef struct RoundingWork {
  const RoundingShapes *shapes;
  const uint32_t *keys;  // [keys, 2]
  const float *x;        // [keys, elements]
  float *result;
} RoundingWork;

enum { ROUNDING_WORDS = sizeof(RoundingShapes) / sizeof(int64_t) };

// Hashes 32 bits.
static inline uint32_t mixed(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}

#define KERNELS "rounding_kernels.h"
#include "instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const RoundingShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size != 1) return "rounding has two operands and one result";
  if (s->elements < 1 || s->slices < 1) return "sizes are not positive";
  const int64_t words = handler_elements(in[1], FFI_UINT32);
  if (words < 0 || words % 2) return "the keys are not of the shape";
  if (handler_elements(in[0], FFI_FLOAT32) != words / 2 * s->elements) return "x is not of the shape";
  if (handler_elements(out[0], FFI_FLOAT32) != words / 2 * s->elements) return "the result is not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_stochastic_rounding(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const RoundingShapes *s = handler_words(call, ROUNDING_WORDS);
  if (!s) return handler_refuses(call, "the shapes of rounding are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int64_t keys = handler_elements(in[1], FFI_UINT32) / 2;
  const RoundingWork work = {s, in[1]->data, in[0]->data, out[0]->data};
  Part *const part_of[] = OF_EACH_SET(rounding_part);
  parts_run(call, &work, keys * s->slices, part_of[level_within(s->level)]);
  return NULL;
}
