// Softmax of some rows, for one instruction set: NAME gives the names. Sixteen numbers are a vector, or some.
#include "shuffled.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define EACH for (int i = 0; i < 16 / LANES; i++)
#define V NAME(SoftmaxV)
#define W NAME(SoftmaxW)
typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t W __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef struct NAME(Sixteen) {
  V each[16 / LANES];
} NAME(Sixteen);

// x, begun at another place.
#if LANES == 16
#define TURNED(x, n) \
  SHUFFLED(x, x, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10, n + 11, n + 12, \
                          n + 13, n + 14, n + 15)
#elif LANES == 8
#define TURNED(x, n) SHUFFLED(x, x, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7)
#else
#define TURNED(x, n) SHUFFLED(x, x, n, n + 1, n + 2, n + 3)
#endif

// Sets numbers to the larger ones of two.
INLINE void NAME(set_larger)(V *most, V x) {
  const W first = x > *most;
  *most = (V)(((W)x & first) | ((W)*most & ~first));
}

// Returns the largest of 16 numbers.
INLINE float NAME(largest_lane)(NAME(Sixteen) x) {
  for (int half = 8 / LANES; half; half /= 2)
    for (int i = 0; i < half; i++) NAME(set_larger)(&x.each[i], x.each[i + half]);
  V lanes = x.each[0];
#if LANES > 8
  NAME(set_larger)(&lanes, TURNED(lanes, 8));
#endif
#if LANES > 4
  NAME(set_larger)(&lanes, TURNED(lanes, 4));
#endif
  NAME(set_larger)(&lanes, TURNED(lanes, 2));
  NAME(set_larger)(&lanes, TURNED(lanes, 1));
  return lanes[0];
}

// Adds up 16 numbers: those that are 8 apart, then 4, 2, 1.
INLINE float NAME(lanes_sum)(NAME(Sixteen) x) {
  for (int half = 8 / LANES; half; half /= 2)
    for (int i = 0; i < half; i++) x.each[i] += x.each[i + half];
  V lanes = x.each[0];
#if LANES > 8
  lanes += TURNED(lanes, 8);
#endif
#if LANES > 4
  lanes += TURNED(lanes, 4);
#endif
  lanes += TURNED(lanes, 2);
  lanes += TURNED(lanes, 1);
  return lanes[0];
}

// Sets numbers that are not positive to their exp, within a unit in the last place; to 0 where it is less than the least
// normal number. x = n ln 2 + r, |r| <= ln 2 / 2: ln 2 is taken away in two pieces, the first without rounding, and exp(r)
// is 1 + r + r^2 p(r), where p is fitted at Chebyshev's nodes.
INLINE void NAME(set_exponential)(NAME(Sixteen) *x) {
  const float to_integer = 12582912.0f;  // 1.5 * 2^23: added, it leaves an integer in the last bits
  EACH {
    const V given = x->each[i], shifted = given * 1.44269504f + to_integer, n = shifted - to_integer;
    V r = given - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    V p = r * 0.000198992871446535f + 0.0013933652080595493f;
    p = p * r + 0.0083332983776927f;
    p = p * r + 0.04166646674275398f;
    p = p * r + 0.1666666716337204f;
    p = p * r + 0.5f;
    const V power = (V)(((W)shifted << 23) + 0x3f800000);
    const V result = ((p * (r * r) + r) + 1.0f) * power;
    x->each[i] = (V)((W)result & ~(given < -87.336544f));
  }
}

// Returns 16 numbers of x, scaled.
INLINE NAME(Sixteen) NAME(scaled)(const float *x, float scale) {
  NAME(Sixteen) made;
  EACH made.each[i] = *(const V *)(x + i * LANES) * scale;
  return made;
}

// Returns `count` numbers of x, scaled; those after them are minus infinity.
INLINE NAME(Sixteen) NAME(scaled_last)(const float *x, int64_t count, float scale) {
  float each[16];
  for (int lane = 0; lane < 16; lane++) each[lane] = lane < count ? x[lane] * scale : -INFINITY;
  NAME(Sixteen) made;
  memcpy(&made, each, sizeof made);
  return made;
}

// Returns the largest of a row, or one of the others if there is a NaN: the sum will be NaN.
INLINE float NAME(largest)(const float *x, int64_t columns, float scale) {
  const int64_t whole = columns / 16 * 16;
  NAME(Sixteen) most;
  if (whole < columns) most = NAME(scaled_last)(x + whole, columns - whole, scale);
  else most = NAME(scaled)(x, scale);
  for (int64_t c = 0; c < whole; c += 16) {
    const NAME(Sixteen) each = NAME(scaled)(x + c, scale);
    EACH NAME(set_larger)(&most.each[i], each.each[i]);
  }
  return NAME(largest_lane)(most);
}

// Writes exp of a row's distances from the largest. Returns their sum.
INLINE float NAME(exponentials)(const float *x, int64_t columns, float scale, float largest, float *result) {
  const int64_t whole = columns / 16 * 16;
  double total = 0;
  for (int64_t c = 0; c < whole;) {
    NAME(Sixteen) sum = {{{0}}};
    for (const int64_t end = whole - c < SUMMED * 16 ? whole : c + SUMMED * 16; c < end; c += 16) {
      NAME(Sixteen) each = NAME(scaled)(x + c, scale);
      EACH each.each[i] -= largest;
      NAME(set_exponential)(&each);
      EACH *(V *)(result + c + i * LANES) = each.each[i];
      EACH sum.each[i] += each.each[i];
    }
    total += NAME(lanes_sum)(sum);
  }
  if (whole == columns) return (float)total;
  NAME(Sixteen) each = NAME(scaled_last)(x + whole, columns - whole, scale);
  EACH each.each[i] -= largest;
  NAME(set_exponential)(&each);
  memcpy(result + whole, &each, (columns - whole) * sizeof(float));
  return (float)(total + NAME(lanes_sum)(each));
}

// Computes some rows. Each step is done for all of them before the next one: a step waits for its own results in the row.
static void NAME(rows)(const float *x, int64_t rows, int64_t columns, float scale, float *result) {
  float of_row[ROWS];
  for (int64_t r = 0; r < rows; r++) of_row[r] = NAME(largest)(x + r * columns, columns, scale);
  for (int64_t r = 0; r < rows; r++)
    of_row[r] = NAME(exponentials)(x + r * columns, columns, scale, of_row[r], result + r * columns);
  for (int64_t r = 0; r < rows; r++) of_row[r] = 1.0f / of_row[r];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) result[r * columns + c] *= of_row[r];
}

static void NAME(softmax_rows)(const void *data, long row, long end) {
  const SoftmaxWork *w = data;
  const RowShapes *s = w->shapes;
  const float scale = row_number(s);
  const int64_t at_once = rows_at_once(s);
  for (; row < end; row += at_once)
    NAME(rows)(w->x + row * s->columns, end - row < at_once ? end - row : at_once, s->columns, scale,
               w->result + row * s->columns);
}

#undef V
#undef W
#undef TURNED
#undef EACH
#undef LANES
#undef INLINE
