// Runs the parts of a call on XLA's threads: each part by the thread that claims it first, the caller's included.
// Nobody waits for a part that no thread has begun, so a pool of any size will do.
#ifndef IPU_TF_PARTS_H
#define IPU_TF_PARTS_H

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "xla_ffi.h"

#if defined(__x86_64__) || defined(__i386__)
#define SPIN_PAUSE() __builtin_ia32_pause()
#else
#define SPIN_PAUSE() ((void)0)
#endif
enum { SPINS = 200 };  // before other threads of the machine are let in

typedef void Part(const void *work, long part);
typedef void Span(const void *work, long from, long to);

typedef struct Parts {
  atomic_long claimed, done, holders;
  long count, least;
  long threads;
  Part *run;    // parts one by one, or
  Span *spans;  // some that follow each other
  const void *work;  // is the caller's: read only by threads that have claimed a part, for which the caller waits
} Parts;

static void parts_release(Parts *parts) {
  if (atomic_fetch_sub(&parts->holders, 1) == 1) free(parts);
}

// Claims what follows what is claimed, up to a place: one part, or a share of the rest, so that all threads end together.
// Returns where it begins, `count` if nothing is left.
static long parts_begin(Parts *parts, long *to) {
  long from = atomic_load(&parts->claimed);
  do {
    const long rest = parts->count - from, share = rest / (2 * parts->threads);
    if (rest <= 0) return parts->count;
    *to = from + (!parts->spans ? 1 : share > parts->least ? share : parts->least < rest ? parts->least : rest);
  } while (!atomic_compare_exchange_weak(&parts->claimed, &from, *to));
  return from;
}

static void parts_claim(Parts *parts) {
  for (long from, to; (from = parts_begin(parts, &to)) < parts->count;) {
    if (parts->spans) parts->spans(parts->work, from, to);
    else parts->run(parts->work, from);
    atomic_fetch_add(&parts->done, to - from);
  }
}

static void parts_task(void *data) {
  parts_claim(data);
  parts_release(data);
}

// Returns how many threads beside the caller's may help.
static long parts_helpers(const FfiCall *call, long count) {
  int64_t threads = 1;
  FfiThreads asked = {sizeof asked, NULL, call->context, &threads};
  FfiError *error = call->api->threads(&asked);
  if (error) {  // there is no pool: the caller does everything
    FfiErrorDestroy destroyed = {sizeof destroyed, NULL, error};
    call->api->error_destroy(&destroyed);
    return 0;
  }
  return count < threads ? count - 1 : threads - 1;
}

// Runs parts that have been described, with at most so many threads beside the caller's.
static void parts_run_all(const FfiCall *call, const Parts *given, long helpers) {
  Parts alone, *shared = malloc(sizeof *shared), *parts = shared ? shared : &alone;
  if (!shared) helpers = 0;
  parts->count = given->count, parts->least = given->least, parts->threads = helpers + 1;
  parts->run = given->run, parts->spans = given->spans, parts->work = given->work;
  atomic_init(&parts->claimed, 0);
  atomic_init(&parts->done, 0);
  atomic_init(&parts->holders, helpers + 1);
  FfiSchedule task = {sizeof task, NULL, call->context, parts_task, parts};
  for (long helper = 0; helper < helpers; helper++) {
    FfiError *error = call->api->schedule(&task);
    if (error) {
      FfiErrorDestroy destroyed = {sizeof destroyed, NULL, error};
      call->api->error_destroy(&destroyed);
      parts_release(parts);
    }
  }
  parts_claim(parts);
  for (long spins = 0; atomic_load(&parts->done) < parts->count; spins++) {
    if (spins < SPINS) SPIN_PAUSE();
    else sched_yield();
  }
  if (shared) parts_release(shared);
}

// Runs `count` parts, one by one.
static inline void parts_run(const FfiCall *call, const void *work, long count, Part *run) {
  const long helpers = parts_helpers(call, count);
  if (helpers > 0) {
    const Parts parts = {.count = count, .run = run, .work = work};
    parts_run_all(call, &parts, helpers);
    return;
  }
  for (long part = 0; part < count; part++) run(work, part);
}

// Runs `count` units of work, neighbouring ones together. It is worth `parts` threads at most.
static inline void spans_run(const FfiCall *call, const void *work, long count, long parts, Span *run) {
  const long helpers = parts_helpers(call, parts < count ? parts : count);
  if (helpers > 0) {
    const Parts all = {.count = count, .least = 1 + count / (4 * parts), .spans = run, .work = work};
    parts_run_all(call, &all, helpers);
    return;
  }
  run(work, 0, count);
}

#endif
