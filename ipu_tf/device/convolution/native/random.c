// Random bits, as a handler of XLA's FFI: those of JAX's Threefry2x32, and of XLA's and TensorFlow's Philox4x32-10.
//
//   threefry  bits[k, i] = both words of threefry(key[k], counter i), by exclusive or
//   philox    bits[k, i] = word i % 4 of philox(key[k], counter[k] + i / 4)
//
// An element depends on its place alone, so results do not depend on the number of cores.
#include <string.h>

#include "handler.h"
#include "parts.h"
#include "processor.h"

typedef struct RandomShapes {
  int64_t level;      // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t algorithm;  // THREEFRY or PHILOX
  int64_t elements, slices;  // of each key
} RandomShapes;

typedef struct RandomWork {
  const RandomShapes *shapes;
  const uint32_t *states;  // [keys, words of a state]
  uint32_t *bits;          // [keys, elements]
} RandomWork;

enum { RANDOM_WORDS = sizeof(RandomShapes) / sizeof(int64_t) };
enum { THREEFRY = 0, PHILOX = 1, LANES = 16 };
#define STATE_WORDS(shapes) ((shapes)->algorithm == THREEFRY ? 2 : 6)
typedef uint32_t RandomV __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define KERNELS "random_kernels.h"
#include "instruction_sets.h"

// Returns what is wrong with a call's buffers; NULL if nothing is.
static const char *fault(const FfiCall *call, const RandomShapes *s) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 1 || call->results.size != 1) return "random bits have one operand and one result";
  if (s->algorithm != THREEFRY && s->algorithm != PHILOX) return "the algorithm is of another version";
  if (s->elements < 1 || s->slices < 1) return "sizes are not positive";
  const int64_t words = handler_elements(in[0], FFI_UINT32);
  if (words < 0 || words % STATE_WORDS(s)) return "the states are not of the shape";
  if (handler_elements(out[0], FFI_UINT32) != words / STATE_WORDS(s) * s->elements) return "the bits are not of the shape";
  return NULL;
}

// The handler.
EXPORT FfiError *ipu_tf_random_bits(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const RandomShapes *s = handler_words(call, RANDOM_WORDS);
  if (!s) return handler_refuses(call, "the shapes of random bits are of another version");
  const char *message = fault(call, s);
  if (message) return handler_refuses(call, message);
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  const int64_t keys = handler_elements(in[0], FFI_UINT32) / STATE_WORDS(s);
  const RandomWork work = {s, in[0]->data, out[0]->data};
  Part *const part_of[] = OF_EACH_SET(random_part);
  parts_run(call, &work, keys * s->slices, part_of[level_within(s->level)]);
  return NULL;
}
