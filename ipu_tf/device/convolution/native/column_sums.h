// Sums of a few rows, for one instruction set: NAME gives the names. Vectors are of 16 floats for all of them, so that
// each sum is added up in the same order and results do not depend on the instruction set.
#include "shuffled.h"

#define INLINE static inline __attribute__((always_inline))
#define V NAME(RowV)
typedef float V __attribute__((vector_size(64), aligned(4), may_alias));

// Sums `terms` rows of `groups` vectors, `line` floats apart; of each `rows` rows have sums of their own.
INLINE void NAME(sum)(const float *x, int64_t terms, int64_t line, V *total, const int groups, const int rows) {
  V each[MOST_ROWS][MOST_GROUPS];
  for (int row = 0; row < rows; row++)
    for (int group = 0; group < groups; group++) each[row][group] = (V){0};
  int64_t term = 0;
  for (; term + rows <= terms; term += rows)
    for (int row = 0; row < rows; row++)
      for (int group = 0; group < groups; group++) each[row][group] += *(const V *)(x + (term + row) * line + 16 * group);
  for (; term < terms; term++)
    for (int group = 0; group < groups; group++) each[0][group] += *(const V *)(x + term * line + 16 * group);
  for (int group = 0; group < groups; group++) {
    for (int row = 1; row < rows; row++) each[0][group] += each[row][group];
    total[group] = each[0][group];
  }
}

// Adds up 16 numbers: those that are 8 apart, then 4, 2, 1.
INLINE float NAME(lanes_sum)(V x) {
  x += SHUFFLED(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  x += SHUFFLED(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  x += SHUFFLED(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  x += SHUFFLED(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return x[0];
}
