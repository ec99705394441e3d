// Prefetches memory that is read soon, in small portions while other things are computed.
//
// Short stretches of memory far from each other, such as rows of a block, are not guessed by the processor: what no cache
// holds takes up to five times as long without it. An address that is not of an operand does no harm.
#ifndef IPU_TF_PREFETCH_H
#define IPU_TF_PREFETCH_H

#include <stdint.h>

enum { LINE = 16 };  // floats of a cache's line

// Fetches a line to the second-level cache.
#define PREFETCH(pointer) __builtin_prefetch(pointer, 0, 2)

// Rows that are still to be fetched.
typedef struct Ahead {
  const float *row;
  int64_t rows, stride, floats;  // rows to come, from one to the next, and of a row
  int64_t at, portion;           // where in the row; lines of a portion
} Ahead;

static inline Ahead ahead_of(const float *row, int64_t rows, int64_t stride, int64_t floats, int64_t portions) {
  const int64_t lines = rows * ((floats + LINE - 1) / LINE);
  return (Ahead){row, rows, stride, floats, 0, (lines + portions - 1) / portions};
}

static inline void prefetch_portion(Ahead *a) {
  for (int64_t line = 0; line < a->portion && a->rows > 0; line++) {
    PREFETCH(a->row + a->at);
    a->at += LINE;
    if (a->at < a->floats) continue;
    a->at = 0, a->row += a->stride, a->rows--;
  }
}

#endif
