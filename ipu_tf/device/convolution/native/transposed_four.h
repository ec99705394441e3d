// Transposes four rows of four floats, in registers.
#ifndef IPU_TF_TRANSPOSED_FOUR_H
#define IPU_TF_TRANSPOSED_FOUR_H

#include <stdint.h>

#include "shuffled.h"

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

// Writes four columns, of four numbers each that lie one after the other, as four rows.
static inline __attribute__((always_inline)) void transpose_four(const float *from, int64_t column, float *to,
                                                                 int64_t row) {
  const Four a = *(const Four *)from, b = *(const Four *)(from + column);
  const Four c = *(const Four *)(from + 2 * column), d = *(const Four *)(from + 3 * column);
  const Four ab_low = SHUFFLED(a, b, 0, 4, 1, 5), ab_high = SHUFFLED(a, b, 2, 6, 3, 7);
  const Four cd_low = SHUFFLED(c, d, 0, 4, 1, 5), cd_high = SHUFFLED(c, d, 2, 6, 3, 7);
  *(Four *)to = SHUFFLED(ab_low, cd_low, 0, 1, 4, 5);
  *(Four *)(to + row) = SHUFFLED(ab_low, cd_low, 2, 3, 6, 7);
  *(Four *)(to + 2 * row) = SHUFFLED(ab_high, cd_high, 0, 1, 4, 5);
  *(Four *)(to + 3 * row) = SHUFFLED(ab_high, cd_high, 2, 3, 6, 7);
}

#endif
