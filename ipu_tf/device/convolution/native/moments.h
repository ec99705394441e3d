// Sums of terms and of their squared distances from the mean, which are put together in float64.
#ifndef IPU_TF_MOMENTS_H
#define IPU_TF_MOMENTS_H

#include "middle_sum.h"
#include "prefetch.h"

// Sum of some terms, and of their squared distances from their mean.
typedef struct Moments {
  double *sums, *squares;  // of each column
  int64_t count;           // terms
} Moments;

// Adds `count` terms: of each column their sum, and their squared distances from their mean.
static inline __attribute__((always_inline)) void put_together(Moments *m, const double *sums, const double *squares,
                                                               int64_t count, int64_t columns) {
  const double inverse = 1.0 / count, inverse_before = m->count ? 1.0 / m->count : 0;
  const double weight = (double)m->count * count / (m->count + count);
  for (int64_t c = 0; c < columns; c++) {
    const double apart = sums[c] * inverse - m->sums[c] * inverse_before;
    m->sums[c] += sums[c];
    m->squares[c] += squares[c] + apart * apart * weight;
  }
}

#endif
