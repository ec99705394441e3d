// Memory that the instances of one host share, and how they meet in it.
//
//   head     at[i]: how many meetings instance i has come to; what each computes; who is lost
//   region   of each instance, in two halves: one is filled while others still read the other one
//
// An instance that ended is found by its process: a wait for one that did not come looks every tenth of a second.
#ifndef IPU_TF_INSTANCE_MEMORY_H
#define IPU_TF_INSTANCE_MEMORY_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "parts.h"

enum { MOST_INSTANCES = 64, INSTANCE_LINE = 64, LOOK_NS = 100000000, SPINS_OF_MEETING = 2000 };
enum { MEETING_HELD = 0, MEETING_TOO_LATE = -1, MEETING_OTHER_CALL = -2 };  // above 0: 1 + the instance that is lost

typedef struct InstanceLine {
  _Atomic uint32_t at;    // meetings that it has come to
  _Atomic uint32_t left;  // it meets nobody any more
  int64_t call[2][4];     // what it computes, of a piece in each half
} __attribute__((aligned(64))) InstanceLine;

typedef struct InstanceHead {
  _Atomic uint32_t turn;  // changes when a meeting is held
  _Atomic uint32_t lost;  // 1 + an instance that ended
  InstanceLine of[MOST_INSTANCES];
} __attribute__((aligned(64))) InstanceHead;

typedef struct InstanceMemory {
  InstanceHead *head;
  char *regions;
  int64_t half;  // bytes
  int64_t count, index;
  int spins;
  double seconds;               // of a wait, at most
  int processes[MOST_INSTANCES];  // descriptors of the instances' processes
  uint32_t met;
  uint64_t pieces;  // that have gone through, of all calls
  int64_t failed;   // why a meeting was not held: none is any more
  _Atomic int64_t calls;
} InstanceMemory;

static inline char *instance_half(const InstanceMemory *m, int64_t instance, uint64_t piece) {
  return m->regions + (2 * instance + (int64_t)(piece & 1)) * m->half;
}

#ifdef __linux__
static inline void instance_wait(_Atomic uint32_t *word, uint32_t seen) {
  const struct timespec most = {0, LOOK_NS};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

static inline void instance_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

static inline int instance_ended(const InstanceMemory *m, int64_t other) {
  struct pollfd process = {m->processes[other], POLLIN, 0};
  return atomic_load(&m->head->of[other].left) || (poll(&process, 1, 0) == 1 && process.revents);
}
#else
static inline void instance_wait(_Atomic uint32_t *word, uint32_t seen) { (void)word, (void)seen; }
static inline void instance_wake(_Atomic uint32_t *word) { (void)word; }
static inline int instance_ended(const InstanceMemory *m, int64_t other) { return (void)m, (void)other, 0; }
#endif

// Returns whether all instances compute the same piece; this one's is written before they meet.
static inline int instances_agree(const InstanceMemory *m) {
  const int64_t *own = m->head->of[m->index].call[m->pieces & 1];
  for (int64_t other = 0; other < m->count; other++) {
    if (memcmp(m->head->of[other].call[m->pieces & 1], own, sizeof(int64_t[4]))) return 0;
  }
  return 1;
}

// Returns the first instance that has not come to this meeting, -1 if all have.
static inline int64_t instance_missing(const InstanceMemory *m, uint32_t meeting) {
  for (int64_t other = 0; other < m->count; other++) {
    if ((int32_t)(atomic_load(&m->head->of[other].at) - meeting) < 0) return other;
  }
  return -1;
}

// Returns the first instance that has ended before it came, -1 if there is none.
static inline int64_t instance_lost(const InstanceMemory *m, uint32_t meeting) {
  for (int64_t other = 0; other < m->count; other++) {
    if ((int32_t)(atomic_load(&m->head->of[other].at) - meeting) < 0 && instance_ended(m, other) &&
        (int32_t)(atomic_load(&m->head->of[other].at) - meeting) < 0) {  // it may have come before it ended
      return other;
    }
  }
  return -1;
}

static inline double instance_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Comes to the next meeting and waits until all have. Returns MEETING_HELD, or why it will not be held.
static inline int64_t instances_meet(InstanceMemory *m) {
  InstanceHead *head = m->head;
  const uint32_t meeting = ++m->met;
  atomic_store(&head->of[m->index].at, meeting);
  if (instance_missing(m, meeting) < 0) {
    atomic_fetch_add(&head->turn, 1);
    instance_wake(&head->turn);
    return MEETING_HELD;
  }
  for (int spins = 0; spins < m->spins; spins++) {
    if (instance_missing(m, meeting) < 0) return MEETING_HELD;
    SPIN_PAUSE();
  }
  for (double until = instance_clock() + m->seconds; instance_clock() < until;) {
    const uint32_t turn = atomic_load(&head->turn);
    if (instance_missing(m, meeting) < 0) return MEETING_HELD;
    instance_wait(&head->turn, turn);
    if (atomic_load(&head->turn) != turn) continue;
    const int64_t lost = instance_lost(m, meeting);
    if (lost >= 0) atomic_store(&head->lost, (uint32_t)lost + 1);
    if (atomic_load(&head->lost)) return atomic_load(&head->lost);
  }
  return MEETING_TOO_LATE;
}

#endif
