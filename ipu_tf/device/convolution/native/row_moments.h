// Moments of terms that lie one after the other, for one instruction set: NAME gives the names.
#include "distances.h"

// Sets the moments of `terms` terms that lie one after the other: sixteen of them beside each other, then the rest.
INLINE void NAME(line)(const float *x, int64_t terms, double *sum, double *square) {
  const int64_t lines = terms / 16, whole = 16 * lines;
  V sums, aparts, squareds;
  NAME(sum)(x, lines, 16, &sums, 1, 8);
  float mean = NAME(lanes_sum)(sums);
  for (int64_t i = whole; i < terms; i++) mean += x[i];
  mean /= (float)terms;
  const V means = (V){0} + mean;
  NAME(sum_distances)(x, lines, 16, &means, &aparts, &squareds, 1, 8);
  float apart = NAME(lanes_sum)(aparts), squared = NAME(lanes_sum)(squareds);
  for (int64_t i = whole; i < terms; i++) {
    const float distance = x[i] - mean;
    apart += distance;
    squared += distance * distance;
  }
  NAME(exact)(&mean, &apart, &squared, terms, 1, sum, square);
}

// Computes the moments of terms that lie one after the other.
static void NAME(of_row)(const float *x, int64_t terms, double *sums, double *squares) {
  *sums = *squares = 0;
  for (int64_t term = 0; term < terms; term += 16 * BLOCK) {
    const int64_t count = terms - term < 16 * BLOCK ? terms - term : 16 * BLOCK;
    double sum, square;
    NAME(line)(x + term, count, &sum, &square);
    Moments to = {sums, squares, term};
    put_together(&to, &sum, &square, count, 1);
  }
}
