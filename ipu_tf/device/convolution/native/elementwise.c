// Evaluates elementwise functions block by block, as a handler of XLA's FFI.
//
//   block 0: r0 = x - m;  r1 = r0 * s;  y = max(r1, 0)        each instruction over all elements of a block,
//   block 1: ...                                              whose intermediate results stay in the first cache
//
// An instruction rounds its result as IEEE 754 says: results do not depend on the block, the instruction set, or the
// number of cores. Sums over all axes but the last are added up on the way: TERMS of them in float32, and these sums in
// float64, each part of a call by itself.
#include <string.h>

#include "elementwise.h"
#include "handler.h"
#include "parts.h"
#include "processor.h"

typedef struct ElementwiseCall {
  const ElementwiseHead *head;
  const ElementwiseInput *inputs;
  const int64_t *outputs;  // kinds
  const int64_t *columns;  // of each sum
  const int64_t *constants;
  double *totals;  // of each part, the columns of all sums
  float *rooms;    // of each part, room_of floats
  const ElementwiseInstruction *instructions;
  FfiBuffer **in, **out;
} ElementwiseCall;

typedef void Kernel(float *to, const float *a, const float *b, const float *c, int64_t n);

// A loop may write over what it reads, at the same place.
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define KERNELS "elementwise_kernels.h"
#define ALL_OF_AVX512
#include "rounded_instruction_sets.h"
enum { KERNEL_COUNT = sizeof kernels_plain / sizeof *kernels_plain, SUM = KERNEL_COUNT - 2 };  // the last two add to sums

static Kernel *const *kernels_of(int64_t most) {
  Kernel *const *const each[] = OF_EACH_SET(kernels);
  int level = level_within(most);
#ifdef HAS_X86
  const int all = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (level == 2 && !all) level = 1;
#endif
  return each[level];
}

// Writes elements `first` to `first + n` of a broadcast operand, of `size` bytes each.
static void expand(const ElementwiseInput *input, const char *x, int64_t first, int64_t n, char *to, size_t size) {
  int64_t at[AXES], from = 0, rest = first;
  for (int axis = AXES - 1; axis >= 0; axis--) {
    at[axis] = rest % input->sizes[axis];
    rest /= input->sizes[axis];
    from += at[axis] * input->strides[axis];
  }
  const int last = AXES - 1;
  while (n > 0) {
    int64_t run = input->sizes[last] - at[last];
    if (run > n) run = n;
    if (input->strides[last]) {
      memcpy(to, x + from * size, run * size);
    } else if (size == 1) {
      memset(to, x[from], run);
    } else {
      const float value = ((const float *)x)[from];
      for (int64_t i = 0; i < run; i++) ((float *)to)[i] = value;
    }
    to += run * size;
    n -= run;
    from += run * input->strides[last];
    at[last] += run;
    for (int axis = last; axis > 0 && at[axis] == input->sizes[axis]; axis--) {
      from += input->strides[axis - 1] - at[axis] * input->strides[axis];
      at[axis] = 0;
      at[axis - 1]++;
    }
  }
}

// Returns the elements after which a broadcast operand repeats, if that is all there is to it; else 0.
static int64_t period(const ElementwiseInput *input) {
  return input->strides[AXES - 1] == 1 && !input->strides[AXES - 2] && !input->strides[AXES - 3] &&
                 !input->strides[AXES - 4] ? input->sizes[AXES - 1] : 0;
}

// Points the slot of an input to its elements of a block; broadcast ones are written to `room` if they must be.
static const float *block_of(const ElementwiseInput *input, const char *x, int64_t first, int64_t n, float *room, int64_t *written) {
  switch (input->kind) {
    case WHOLE: return (const float *)x + first;
    case WHOLE_BOOL: return (const float *)(x + first);
    case SCALAR: return (const float *)x;
  }
  const size_t size = input->kind == BROADCAST ? sizeof(float) : 1;
  const int64_t repeats = period(input);
  if (repeats) {
    const int64_t at = first % repeats;
    if (at + n <= repeats) return (const float *)(x + at * size);
    if (at == 0 && *written >= n) return room;
    *written = at == 0 ? n : 0;
  }
  expand(input, x, first, n, (char *)room, size);
  return room;
}

enum { TERMS = 64 };  // that are added up in float32

// What a part of a call has added up of one sum.
typedef struct Sum {
  int64_t columns, terms;
  float *some;
  double *total;
} Sum;

static void add_up_some(Sum *sum) {
  for (int64_t c = 0; c < sum->columns; c++) sum->total[c] += sum->some[c];
  memset(sum->some, 0, sum->columns * sizeof(float));
  sum->terms = 0;
}

// Adds the elements of a block to a sum, or their products with others: `add` is the kernel.
static void add_block(Sum *sum, Kernel *add, const float *x, const float *by, int64_t first, int64_t n) {
  for (int64_t at = first % sum->columns; n > 0; at = 0) {
    const int64_t run = sum->columns - at < n ? sum->columns - at : n;
    add(sum->some + at, x, by, by, run);
    x += run;
    by += run;
    n -= run;
    if (at + run == sum->columns && ++sum->terms == TERMS) add_up_some(sum);
  }
}

static int64_t all_columns(const ElementwiseCall *call) {
  int64_t columns = 0;
  for (int64_t i = 0; i < call->head->sums; i++) columns += call->columns[i];
  return columns;
}

// Returns how many floats a part needs: registers, broadcast operands and sums, from one cache line to another.
static int64_t room_of(const ElementwiseCall *call) {
  const ElementwiseHead *head = call->head;
  return ((head->registers + head->inputs) * head->block + all_columns(call) + 15) / 16 * 16;
}

// Computes a part of a call.
static void elementwise_part(const void *data, long part) {
  const ElementwiseCall *call = data;
  const ElementwiseHead *head = call->head;
  Kernel *const *kernels = kernels_of(head->level);
  const int64_t blocks = (head->elements + head->block - 1) / head->block;
  const int64_t begin = blocks * part / head->parts, end = blocks * (part + 1) / head->parts;
  const int64_t slots = head->registers + head->inputs + head->outputs + head->constants;
  float *pointers[slots], constants[head->constants + 1];
  int64_t written[head->inputs + 1];
  const int64_t rooms = head->registers + head->inputs, columns = all_columns(call);
  float *aligned = call->rooms + part * room_of(call);
  for (int64_t i = 0; i < head->registers; i++) pointers[i] = aligned + i * head->block;
  for (int64_t i = 0; i < head->inputs; i++) written[i] = 0;
  Sum sums[head->sums + 1];
  float *some = memset(aligned + rooms * head->block, 0, columns * sizeof(float));
  double *total = call->totals + part * columns;
  for (int64_t i = 0; i < head->sums; some += sums[i].columns, total += sums[i].columns, i++)
    sums[i] = (Sum){call->columns[i], 0, some, total};
  for (int64_t i = 0; i < head->constants; i++) {
    const uint32_t bits = (uint32_t)call->constants[i];
    memcpy(&constants[i], &bits, sizeof bits);
    pointers[head->registers + head->inputs + head->outputs + i] = &constants[i];
  }
  for (int64_t block = begin; block < end; block++) {
    const int64_t first = block * head->block;
    const int64_t n = head->elements - first < head->block ? head->elements - first : head->block;
    float **slot = pointers + head->registers;
    for (int64_t i = 0; i < head->inputs; i++) {
      float *own = aligned + (head->registers + i) * head->block;
      *slot++ = (float *)block_of(&call->inputs[i], call->in[i]->data, first, n, own, &written[i]);
    }
    for (int64_t i = 0; i < head->outputs; i++) {
      char *base = call->out[i]->data;
      *slot++ = (float *)(base + first * (call->outputs[i] == WHOLE ? sizeof(float) : 1));
    }
    for (int64_t i = 0; i < head->instructions; i++) {
      const ElementwiseInstruction *each = &call->instructions[i];
      const float *a = pointers[each->a], *b = pointers[each->b];
      Kernel *kernel = kernels[each->code];
      if (each->code >= SUM) add_block(&sums[each->to], kernel, a, b, first, n);
      else kernel(pointers[each->to], a, b, pointers[each->c], n);
    }
  }
  for (int64_t i = 0; i < head->sums; i++) add_up_some(&sums[i]);
}

// Adds up the parts' sums, in order.
static void finish_sums(const ElementwiseCall *call) {
  const int64_t columns = all_columns(call);
  const double *totals = call->totals;
  for (int64_t i = 0; i < call->head->sums; totals += call->columns[i], i++) {
    float *result = call->out[call->head->outputs + i]->data;
    for (int64_t c = 0; c < call->columns[i]; c++) {
      double total = 0;
      for (int64_t part = 0; part < call->head->parts; part++) total += totals[part * columns + c];
      result[c] = (float)total;
    }
  }
}

static int64_t elements_of(const FfiBuffer *buffer, int64_t kind) {
  return handler_elements(buffer, kind == WHOLE || kind == BROADCAST || kind == SCALAR ? FFI_FLOAT32 : FFI_BOOL);
}

// Returns how many elements of an operand a call reads.
static int64_t reach(const ElementwiseInput *input) {
  int64_t last = 0;
  for (int axis = 0; axis < AXES; axis++) {
    if (input->sizes[axis] < 1 || input->strides[axis] < 0) return INT64_MAX;
    last += (input->sizes[axis] - 1) * input->strides[axis];
  }
  return last + 1;
}

static const char *input_fault(const ElementwiseCall *call, int64_t i) {
  const ElementwiseInput *input = &call->inputs[i];
  if (input->kind < WHOLE || input->kind > SCALAR) return "an operand is of an unknown kind";
  const int64_t given = elements_of(call->in[i], input->kind);
  const int whole = input->kind == WHOLE || input->kind == WHOLE_BOOL;
  if (given != input->elements || (whole && given != call->head->elements)) return "an operand has another shape or dtype";
  if (given < 1) return "an operand has no elements";
  if ((input->kind == BROADCAST || input->kind == BROADCAST_BOOL) && reach(input) > given) return "an operand is too short";
  int64_t count = 1;
  for (int axis = 0; axis < AXES; axis++) count *= input->sizes[axis];
  if (!whole && input->kind != SCALAR && count != call->head->elements) return "a broadcast operand has other sizes";
  return NULL;
}

// Returns what is wrong with a call; NULL if nothing is.
static const char *fault(const ElementwiseCall *call) {
  const ElementwiseHead *head = call->head;
  const int64_t first_output = head->registers + head->inputs, first_constant = first_output + head->outputs;
  const int64_t slots = first_constant + head->constants;
  for (int64_t i = 0; i < head->inputs; i++) {
    const char *message = input_fault(call, i);
    if (message) return message;
  }
  for (int64_t i = 0; i < head->outputs; i++) {
    if (call->outputs[i] != WHOLE && call->outputs[i] != WHOLE_BOOL) return "a result is of an unknown kind";
    if (elements_of(call->out[i], call->outputs[i]) != head->elements) return "a result has another shape or dtype";
  }
  for (int64_t i = 0; i < head->sums; i++) {
    if (call->columns[i] < 1 || head->elements % call->columns[i]) return "a sum's columns do not divide the elements";
    if (handler_elements(call->out[head->outputs + i], FFI_FLOAT32) != call->columns[i]) return "a sum has another shape or dtype";
  }
  for (int64_t i = 0; i < head->instructions; i++) {
    const ElementwiseInstruction *each = &call->instructions[i];
    const int64_t read[] = {each->a, each->b, each->c};
    for (int operand = 0; operand < 3; operand++)
      if (read[operand] < 0 || read[operand] >= slots) return "an instruction reads what is not there";
    if (each->code >= SUM && each->code < KERNEL_COUNT) {
      if (each->to < 0 || each->to >= head->sums) return "an instruction adds to what is not there";
      continue;
    }
    const int to_register = each->to >= 0 && each->to < head->registers;
    if (!to_register && (each->to < first_output || each->to >= first_constant)) return "an instruction writes what is not there";
    if (each->code < 0 || each->code >= KERNEL_COUNT) return "an instruction is unknown";
  }
  return NULL;
}

enum { HEAD_WORDS = sizeof(ElementwiseHead) / 8, INPUT_WORDS = sizeof(ElementwiseInput) / 8 };
enum { INSTRUCTION_WORDS = sizeof(ElementwiseInstruction) / 8, MOST_SLOTS = 4096, MOST_PARTS = 64 };

// Reads a call's words; returns what is wrong with them, NULL if nothing is.
static const char *read_words(FfiCall *ffi, ElementwiseCall *call) {
  if (ffi->attributes.size != 1) return "an elementwise call has one attribute";
  const FfiArray *words = ffi->attributes.each[0];
  if (words->dtype != FFI_INT64 || words->size < HEAD_WORDS) return "an elementwise call is of another version";
  const int64_t *next = words->data;
  const ElementwiseHead *head = (const ElementwiseHead *)next;
  const int64_t counts[] = {head->inputs, head->outputs, head->sums, head->registers, head->constants, head->instructions};
  for (int i = 0; i < 6; i++)
    if (counts[i] < 0 || counts[i] > MOST_SLOTS) return "an elementwise call is too large";
  if (head->elements < 1 || head->block < 1 || head->block > REGISTER || head->parts < 1 || head->parts > MOST_PARTS) return "sizes are not positive";
  const int64_t wanted = HEAD_WORDS + INPUT_WORDS * head->inputs + head->outputs + head->sums + head->constants +
                         INSTRUCTION_WORDS * head->instructions;
  if ((int64_t)words->size != wanted) return "an elementwise call is of another version";
  if (ffi->arguments.size != head->inputs || ffi->results.size != head->outputs + head->sums) return "an elementwise call has other operands";
  call->head = head;
  call->inputs = (const ElementwiseInput *)(next + HEAD_WORDS);
  call->outputs = (const int64_t *)(call->inputs + head->inputs);
  call->columns = call->outputs + head->outputs;
  call->constants = call->columns + head->sums;
  call->instructions = (const ElementwiseInstruction *)(call->constants + head->constants);
  call->in = (FfiBuffer **)ffi->arguments.each;
  call->out = (FfiBuffer **)ffi->results.each;
  return fault(call);
}

// The handler.
EXPORT FfiError *ipu_tf_elementwise(FfiCall *ffi) {
  if (!handler_executes(ffi)) return NULL;
  ElementwiseCall call;
  const char *message = read_words(ffi, &call);
  if (message) return handler_refuses(ffi, message);
  const int64_t parts = call.head->parts;
  call.totals = calloc(parts * all_columns(&call) + 1, sizeof(double));
  float *rooms = malloc(sizeof(float) * (parts * room_of(&call) + 16));
  call.rooms = (float *)(((uintptr_t)rooms + 63) & ~(uintptr_t)63);
  if (call.totals && rooms) {
    parts_run(ffi, &call, parts, elementwise_part);
    finish_sums(&call);
  }
  const int computed = call.totals && rooms;
  free(rooms);
  free(call.totals);
  if (!computed) return handler_refuses(ffi, "there is no memory for an elementwise call");
  return NULL;
}
