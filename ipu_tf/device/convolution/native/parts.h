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

typedef struct Parts {
  atomic_long claimed, done, holders;
  long count;
  Part *run;
  const void *work;  // is the caller's: read only by threads that have claimed a part, for which the caller waits
} Parts;

static void parts_release(Parts *parts) {
  if (atomic_fetch_sub(&parts->holders, 1) == 1) free(parts);
}

static void parts_claim(Parts *parts) {
  for (long part; (part = atomic_fetch_add(&parts->claimed, 1)) < parts->count;) {
    parts->run(parts->work, part);
    atomic_fetch_add(&parts->done, 1);
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
  return count - 1 < threads ? count - 1 : threads;
}

static void parts_run(const FfiCall *call, const void *work, long count, Part *run) {
  long helpers = parts_helpers(call, count);
  Parts *parts = helpers > 0 ? malloc(sizeof *parts) : NULL;
  if (!parts) {
    for (long part = 0; part < count; part++) run(work, part);
    return;
  }
  atomic_init(&parts->claimed, 0);
  atomic_init(&parts->done, 0);
  atomic_init(&parts->holders, helpers + 1);
  parts->count = count;
  parts->run = run;
  parts->work = work;
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
  for (long spins = 0; atomic_load(&parts->done) < count; spins++) {
    if (spins < SPINS) SPIN_PAUSE();
    else sched_yield();
  }
  parts_release(parts);
}

#endif
