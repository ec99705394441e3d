// Sums of distances from a mean, and of their squares, for one instruction set: NAME gives the names.
#include "column_sums.h"

// Sums distances of `terms` rows from `mean`, and their squares, in the order of `sum`. Meanwhile the next block is fetched.
INLINE void NAME(sum_distances)(const float *x, int64_t terms, int64_t line, const V *mean, V *apart, V *squares,
                                const int groups, const int rows) {
  V each[MOST_ROWS][MOST_GROUPS], squared[MOST_ROWS][MOST_GROUPS];
  for (int row = 0; row < rows; row++)
    for (int group = 0; group < groups; group++) each[row][group] = squared[row][group] = (V){0};
  int64_t term = 0;
  for (; term + rows <= terms; term += rows)
    for (int row = 0; row < rows; row++)
      for (int group = 0; group < groups; group++) {
        const V distance = *(const V *)(x + (term + row) * line + 16 * group) - mean[group];
        PREFETCH(x + (BLOCK + term + row) * line + 16 * group);
        each[row][group] += distance;
        squared[row][group] += distance * distance;
      }
  for (; term < terms; term++)
    for (int group = 0; group < groups; group++) {
      const V distance = *(const V *)(x + term * line + 16 * group) - mean[group];
      each[0][group] += distance;
      squared[0][group] += distance * distance;
    }
  for (int group = 0; group < groups; group++) {
    for (int row = 1; row < rows; row++) {
      each[0][group] += each[row][group];
      squared[0][group] += squared[row][group];
    }
    apart[group] = each[0][group], squares[group] = squared[0][group];
  }
}

// Sets sums and squared distances from the mean of `terms` terms, of their distances from what is about their mean.
INLINE void NAME(exact)(const float *means, const float *aparts, const float *squareds, int64_t terms, int64_t columns,
                        double *sums, double *squares) {
  const double inverse = 1.0 / terms, count = (double)terms;
  for (int64_t c = 0; c < columns; c++) {
    const double apart = aparts[c];
    sums[c] = means[c] * count + (means[c] - means[c] == 0 ? apart : 0);  // infinite means stay
    const double about = squareds[c] - apart * apart * inverse;
    squares[c] = about < 0 ? 0 : about;  // round-off of equal terms; NaN stays
  }
}
