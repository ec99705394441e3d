// Sums and gathers arrays of the instances of one host in memory that they share, as a handler of XLA's FFI.
//
//   sum      result[i] = x_0[i] + x_1[i] + ... in the order of the instances: the same bits in all of them
//   gather   result[n] = x_n
//
// Arrays go through the memory in pieces. Each instance copies its piece in, adds up its own slice of it over all, and
// copies the others' slices out:
//
//   instance 0   [x_0 x_0 x_0]  meet  [sum  .   . ]  meet  [sum sum sum]
//   instance 1   [x_1 x_1 x_1]        [ .  sum  . ]        [sum sum sum]
//   instance 2   [x_2 x_2 x_2]        [ .   .  sum]        [sum sum sum]
//
// The second operand and result are a token: what depends on it comes later in every instance.
#include <pthread.h>
#include <stdio.h>

#include "handler.h"
#include "instance_memory.h"

enum { SUM_OF_INSTANCES = 0, GATHER_OF_INSTANCES = 1, ADDED_AT_A_TIME = 4096 };
static InstanceMemory shared;
static pthread_mutex_t shared_use = PTHREAD_MUTEX_INITIALIZER;

// Has the calls of this process meet in a memory. Bytes of a half are a multiple of a page.
EXPORT void ipu_tf_instances_open(void *memory, int64_t half, int64_t count, int64_t index, const int *processes,
                                  int spins, double seconds) {
  pthread_mutex_lock(&shared_use);
  memset(&shared, 0, sizeof shared);
  shared.head = memory;
  shared.regions = (char *)memory + sizeof(InstanceHead);
  shared.half = half;
  shared.count = count;
  shared.index = index;
  shared.spins = spins ? SPINS_OF_MEETING : 0;
  shared.seconds = seconds;
  for (int64_t other = 0; other < count; other++) shared.processes[other] = processes[other];
  pthread_mutex_unlock(&shared_use);
}

// Bytes before the regions.
EXPORT int64_t ipu_tf_instances_head(void) { return sizeof(InstanceHead); }

// How many calls the memory served.
EXPORT int64_t ipu_tf_instances_calls(void) { return atomic_load(&shared.calls); }

// The memory serves no call after those that run. Does not wait for them.
EXPORT void ipu_tf_instances_close(void) {
  if (!shared.head) return;
  atomic_store(&shared.head->of[shared.index].left, 1);
  if (pthread_mutex_trylock(&shared_use) == 0) {
    shared.head = NULL;
    pthread_mutex_unlock(&shared_use);
  }
}

#define ADD_UP(name, type, sum_type)                                                                    \
  static void name(const char *const *of, int64_t count, int64_t begin, int64_t end, char *result) {   \
    for (int64_t at = begin; at < end; at += ADDED_AT_A_TIME) {                                         \
      const int64_t size = end - at < ADDED_AT_A_TIME ? end - at : ADDED_AT_A_TIME;                     \
      sum_type *restrict total = (sum_type *)result + at;                                               \
      memcpy(total, (const type *)of[0] + at, (size_t)size * sizeof(type));                             \
      for (int64_t other = 1; other < count; other++) {                                                 \
        const sum_type *restrict term = (const sum_type *)of[other] + at;                               \
        for (int64_t i = 0; i < size; i++) total[i] += term[i];                                         \
      }                                                                                                 \
    }                                                                                                   \
  }

ADD_UP(add_up_floats, float, float)
ADD_UP(add_up_doubles, double, double)
ADD_UP(add_up_integers, int32_t, uint32_t)  // which wrap

typedef struct Exchange {
  int64_t mode, width, elements;  // of the operand
  void (*add)(const char *const *, int64_t, int64_t, int64_t, char *);
  const char *x;
  char *result;
} Exchange;

// Where the slice of an instance begins, of a piece of so many elements: at whole lines of the cache.
static int64_t slice_begin(const InstanceMemory *m, const Exchange *e, int64_t size, int64_t instance) {
  const int64_t line = INSTANCE_LINE / e->width, lines = (size + line - 1) / line;
  const int64_t begin = lines * instance / m->count * line;
  return begin < size ? begin : size;
}

// Sums a piece: elements from `at` on.
static int64_t sum_piece(InstanceMemory *m, const Exchange *e, int64_t at, int64_t size) {
  const char *own = e->x + at * e->width, *from[MOST_INSTANCES];
  char *result = e->result + at * e->width, *half = instance_half(m, m->index, m->pieces);
  const int64_t begin = slice_begin(m, e, size, m->index), end = slice_begin(m, e, size, m->index + 1);
  memcpy(half, own, (size_t)(begin * e->width));
  memcpy(half + end * e->width, own + end * e->width, (size_t)((size - end) * e->width));
  int64_t met = instances_meet(m);
  if (met != MEETING_HELD) return met;
  if (!instances_agree(m)) return MEETING_OTHER_CALL;
  for (int64_t other = 0; other < m->count; other++) {
    from[other] = other == m->index ? own : instance_half(m, other, m->pieces);
  }
  e->add(from, m->count, begin, end, half);
  met = instances_meet(m);
  for (int64_t other = 0; met == MEETING_HELD && other < m->count; other++) {
    const int64_t first = slice_begin(m, e, size, other) * e->width;
    const int64_t last = slice_begin(m, e, size, other + 1) * e->width;
    memcpy(result + first, instance_half(m, other, m->pieces) + first, (size_t)(last - first));
  }
  return met;
}

// Gathers a piece of each instance's array.
static int64_t gather_piece(InstanceMemory *m, const Exchange *e, int64_t at, int64_t size) {
  memcpy(instance_half(m, m->index, m->pieces), e->x + at * e->width, (size_t)(size * e->width));
  const int64_t met = instances_meet(m);
  if (met == MEETING_HELD && !instances_agree(m)) return MEETING_OTHER_CALL;
  for (int64_t other = 0; met == MEETING_HELD && other < m->count; other++) {
    char *row = e->result + (other * e->elements + at) * e->width;
    memcpy(row, instance_half(m, other, m->pieces), (size_t)(size * e->width));
  }
  return met;
}

// Computes a call, piece by piece. An instance fills the half of a piece only after the meeting of the next one, to
// which all come when they have read what was in it.
static int64_t exchanged(InstanceMemory *m, const Exchange *e) {
  const int64_t most = m->half / e->width;
  const int64_t call[4] = {e->mode, e->width, e->elements, m->calls};
  for (int64_t at = 0; at < e->elements; at += most) {
    const int64_t size = e->elements - at < most ? e->elements - at : most;
    memcpy(m->head->of[m->index].call[m->pieces & 1], call, sizeof call);
    const int64_t met = (e->mode == SUM_OF_INSTANCES ? sum_piece : gather_piece)(m, e, at, size);
    if (met != MEETING_HELD) return met;
    m->pieces++;
  }
  atomic_fetch_add(&m->calls, 1);
  return MEETING_HELD;
}

// Reads a call's buffers; returns what is wrong with them, NULL if nothing is.
static const char *read_call(const FfiCall *call, int64_t mode, Exchange *e) {
  FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
  if (call->arguments.size != 2 || call->results.size != 2) return "there are an array and a token, of both kinds";
  const int dtype = in[0]->dtype;
  e->mode = mode;
  e->x = in[0]->data;
  e->result = out[0]->data;
  e->elements = handler_elements(in[0], dtype);
  e->width = dtype == FFI_UINT8 ? 1 : dtype == FFI_FLOAT64 ? 8 : 4;
  e->add = dtype == FFI_FLOAT32 ? add_up_floats : dtype == FFI_FLOAT64 ? add_up_doubles : add_up_integers;
  const int summed = dtype == FFI_FLOAT32 || dtype == FFI_FLOAT64 || dtype == FFI_INT32;
  if (!(mode == SUM_OF_INSTANCES ? summed : dtype == FFI_UINT8)) return "the dtype is of another version";
  const int64_t rows = mode == SUM_OF_INSTANCES ? 1 : shared.count;
  if (handler_elements(out[0], dtype) != rows * e->elements) return "the result is not of the shape";
  if (handler_elements(in[1], FFI_INT32) != 1 || handler_elements(out[1], FFI_INT32) != 1) return "a token is one int32";
  return NULL;
}

static FfiError *refusal_of(const FfiCall *call, int64_t met) {
  char said[128] = "instances: one did not come in time";
  if (met > 0) snprintf(said, sizeof said, "instances: instance %lld has ended", (long long)met - 1);
  if (met == MEETING_OTHER_CALL) strcpy(said, "instances: they do not compute the same sums in the same order");
  return handler_refuses(call, said);
}

// The handler.
EXPORT FfiError *ipu_tf_instance_sum(FfiCall *call) {
  if (!handler_executes(call)) return NULL;
  const int64_t *mode = handler_words(call, 1);
  if (!mode || *mode < SUM_OF_INSTANCES || *mode > GATHER_OF_INSTANCES) {
    return handler_refuses(call, "what is exchanged is of another version");
  }
  pthread_mutex_lock(&shared_use);
  Exchange e;
  const char *message = shared.head ? read_call(call, *mode, &e) : "instances: their memory is not open";
  int64_t met = MEETING_HELD;
  if (!message) {
    met = shared.failed ? shared.failed : exchanged(&shared, &e);
    shared.failed = met;
    if (met == MEETING_TOO_LATE) atomic_store(&shared.head->of[shared.index].left, 1);
    FfiBuffer **in = (FfiBuffer **)call->arguments.each, **out = (FfiBuffer **)call->results.each;
    memcpy(out[1]->data, in[1]->data, sizeof(int32_t));
  }
  pthread_mutex_unlock(&shared_use);
  if (message) return handler_refuses(call, message);
  return met == MEETING_HELD ? NULL : refusal_of(call, met);
}
