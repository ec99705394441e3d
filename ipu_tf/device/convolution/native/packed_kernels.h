// Products with packed weights, for one instruction set. Included once for each, which defines
//   LANES    floats of a vector            WIDEN(p)   LANES bytes as int32
//   NAME(x)  x with the set's suffix       BLEND_LOW(a, b), BLEND_HIGH(a, b)   lanes of two vectors in turns

typedef float NAME(V) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t NAME(I) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#define V NAME(V)
#define I NAME(I)
#define FLOATS(integers) __builtin_convertvector(integers, V)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
enum { NAME(PIECES) = UNIT / (2 * LANES) };  // of a unit: each is of two vectors

// Reads two vectors of weights: neighbours, or of 4 bits, those of the lower and those of the upper halves.
INLINE void NAME(read)(const int8_t *at, V pair[2], const int bits) {
  const I first = WIDEN(at);
  if (bits == 4) {
    pair[0] = FLOATS((first << 28) >> 28);
    pair[1] = FLOATS(first >> 4);
  } else {
    const I second = WIDEN(at + LANES);
    pair[0] = FLOATS(first);
    pair[1] = FLOATS(second);
  }
}

// Adds `deep` lines' products to the sums of `rows` rows for one piece of columns: sums [rows][TILE]. Shifted, zeros
// are subtracted from the weights.
INLINE void NAME(lines)(const float *x, int64_t x_step, const int8_t *w, int64_t w_step, int64_t deep, float *sums,
                        const float *zeros, const int rows, const int bits, const int shifted) {
  V total[MOST_ROWS][2];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2; v++) total[r][v] = *(V *)(sums + r * TILE + v * LANES);
  for (int64_t k = 0; k < deep; k++) {
    V pair[2];
    __builtin_prefetch(w + (k + AHEAD) * w_step);
    NAME(read)(w + k * w_step, pair, bits);
    if (shifted) pair[0] -= *(V *)zeros, pair[1] -= *(V *)(zeros + LANES);
    UNROLL for (int r = 0; r < rows; r++)
      UNROLL for (int v = 0; v < 2; v++) total[r][v] += x[r * x_step + k] * pair[v];
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2; v++) *(V *)(sums + r * TILE + v * LANES) = total[r][v];
}

// Adds the products of lines [from, to) to sums; w is at the first column, of which there are `columns`.
INLINE void NAME(stretch)(const Packed *p, const float *x, const int8_t *w, int64_t from, int64_t to, int64_t columns,
                          float *sums, const float *zeros, const int rows, const int bits, const int shifted) {
  const int64_t step = line_bytes(p->shapes), bytes = ceiling(columns * bits, 8);
  enum { PIECE = 2 * LANES };
  for (int64_t k = from; k < to; k += DEEP) {
    const int64_t deep = least(DEEP, to - k), some = 2 * LANES * bits / 8;
    const int8_t *line = w + k * step;
    int64_t at = 0, c = 0;
    for (; at + some <= bytes; at += some, c += PIECE)
      NAME(lines)(x + k, p->shapes->inner, line + at, step, deep, sums + c, shifted ? zeros + c : NULL,
                  rows, bits, shifted);
    if (at == bytes) continue;
    int8_t edge[DEEP * PIECE];
    for (int64_t i = 0; i < deep; i++) {
      memset(edge + i * PIECE, 0, PIECE);
      memcpy(edge + i * PIECE, line + i * step + at, bytes - at);
    }
    NAME(lines)(x + k, p->shapes->inner, edge, PIECE, deep, sums + c, shifted ? zeros + c : NULL, rows, bits, shifted);
  }
}

// Brings a piece's sums into the order of columns.
INLINE void NAME(ordered)(const float *sums, V pair[2], const int bits) {
  const V first = *(V *)sums, second = *(V *)(sums + LANES);
  pair[0] = bits == 4 ? (V)BLEND_LOW(first, second) : first;
  pair[1] = bits == 4 ? (V)BLEND_HIGH(first, second) : second;
}

// Adds a stretch's sums to the result, or begins it with them, less the zeros times `sum`, that of x.
INLINE void NAME(flush)(const Packed *p, int64_t row, int64_t stretch, int64_t column, int64_t columns,
                        const float *sums, float sum, const int bits) {
  const Shapes *s = p->shapes;
  const int64_t group = s->block ? stretch * s->columns + column : 0;
  const float *scale = s->block ? p->scale + group : NULL;
  const int8_t *zero = s->block ? p->zero + group : NULL;
  const int64_t to = row * s->columns + column;
  for (int64_t c = 0; c < columns; c += 2 * LANES) {
    V pair[2];
    NAME(ordered)(sums + c, pair, bits);
    const float *each = (const float *)pair;
    const int64_t count = least(2 * LANES, columns - c);
    for (int64_t i = 0; i < count; i++) {
      const float value = s->block ? (each[i] - zero[c + i] * sum) * scale[c + i] : each[i];
      if (s->whole) {
        int32_t *whole = (int32_t *)p->result + to + c + i;
        *whole = (stretch ? *whole : 0) + (int32_t)value;
      } else {
        float *result = (float *)p->result + to + c + i;
        *result = (stretch ? *result : 0) + value;
      }
    }
  }
}

// Returns the sum of x over a group; 0 without groups.
INLINE float NAME(sum_of)(const Packed *p, int64_t row, int64_t stretch) {
  return p->shapes->block ? p->sums[row * groups_of(p->shapes) + stretch] : 0;
}

// Computes the sums of a row over a group with the zeros subtracted from each weight: where x is infinite, or too large
// to be summed, the sum times a zero is no number.
static __attribute__((noinline)) void NAME(shifted_row)(const Packed *p, int64_t row, int64_t stretch, int64_t column,
                                                        int64_t columns, float *sums) {
  const Shapes *s = p->shapes;
  const int64_t from = stretch * s->block, to = least(from + s->block, s->inner), wide = ceiling(columns, UNIT) * UNIT;
  const int8_t *zero = p->zero + stretch * s->columns + column, *w = p->weights + column * s->bits / 8;
  const float *x = p->x + row * s->inner;
  float zeros[TILE];  // in the order in which weights are read: of 4 bits, the even ones of a piece first
  for (int64_t c = 0; c < wide; c++) {
    const int64_t in_piece = c % (2 * LANES), odd = in_piece / LANES;
    const int64_t at = s->bits == 4 ? c - in_piece + 2 * (in_piece - odd * LANES) + odd : c;
    zeros[c] = at < columns ? zero[at] : 0;
  }
  memset(sums, 0, wide * sizeof(float));
  if (s->bits == 4) NAME(stretch)(p, x, w, from, to, columns, sums, zeros, 1, 4, 1);
  else NAME(stretch)(p, x, w, from, to, columns, sums, zeros, 1, 8, 1);
}

// Computes `rows` rows of up to TILE columns.
INLINE void NAME(tile)(const Packed *p, int64_t row, int64_t column, int64_t columns, const int rows, const int bits) {
  const Shapes *s = p->shapes;
  const int64_t every = stretch_of(s), wide = ceiling(columns, UNIT) * UNIT;
  const int8_t *w = p->weights + column * bits / 8;
  float sums[MOST_ROWS * TILE] __attribute__((aligned(64)));
  for (int64_t from = 0, stretch = 0; from < s->inner; from += every, stretch++) {
    for (int r = 0; r < rows; r++) memset(sums + r * TILE, 0, wide * sizeof(float));
    NAME(stretch)(p, p->x + row * s->inner, w, from, least(from + every, s->inner), columns, sums, NULL, rows, bits, 0);
    for (int r = 0; r < rows; r++) {
      float sum = NAME(sum_of)(p, row + r, stretch);
      if (sum - sum != 0) NAME(shifted_row)(p, row + r, stretch, column, columns, sums + r * TILE), sum = 0;
      NAME(flush)(p, row + r, stretch, column, columns, sums + r * TILE, sum, bits);
    }
  }
}

// Computes one result, turned, as `shifted_row` does.
static __attribute__((noinline)) float NAME(shifted_dot)(const Packed *p, int64_t row, int64_t column) {
  const Shapes *s = p->shapes;
  const int64_t x_step = x_line(s), groups = groups_of(s), half = s->bits == 4 ? x_step / 2 : LANES;
  const int64_t bytes = line_bytes(s), piece = s->bits == 4 ? LANES : 2 * LANES;
  const int8_t *w = p->weights + column * bytes;
  const float *x = p->x + row * x_step;
  float result = 0;
  for (int64_t group = 0; group < groups; group++) {
    const int64_t from = group * s->block * s->bits / 8, end = least(bytes, from + s->block * s->bits / 8);
    const float zero = p->zero[column * groups + group];
    V total = {0};
    for (int64_t at = from; at < end; at += piece) {
      V pair[2];
      int8_t edge[2 * LANES] = {0};
      memcpy(edge, w + at, least(piece, end - at));
      if (s->bits == 4) NAME(read)(edge, pair, 4);
      else NAME(read)(edge, pair, 8);
      total += *(V *)(x + at) * (pair[0] - zero) + *(V *)(x + at + half) * (pair[1] - zero);
    }
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += total[lane];
    result += p->scale[column * groups + group] * sum;
  }
  return result;
}

// Computes a column of `rows` rows, turned: each column's weights are a line.
INLINE void NAME(dots)(const Packed *p, int64_t row, int64_t column, const int rows, const int bits) {
  const Shapes *s = p->shapes;
  const int64_t bytes = line_bytes(s), x_step = x_line(s), every = stretch_of(s), half = bits == 4 ? x_step / 2 : LANES;
  const int64_t groups = groups_of(s), places = bits == 4 ? 1 : 2;  // bytes of a piece are LANES * places
  const int8_t *w = p->weights + column * bytes;
  V totals[MOST_ROWS];  // over the groups; lanes are added up at the end
  I whole[MOST_ROWS];
  float offset[MOST_ROWS] = {0};
  UNROLL for (int r = 0; r < rows; r++) totals[r] = (V){0}, whole[r] = (I){0};
  for (int64_t from = 0, stretch = 0; from < s->inner; from += every, stretch++) {
    const int64_t begin = from * bits / 8, end = least(bytes, (from + every) * bits / 8);
    V total[MOST_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (V){0};
    for (int64_t at = begin; at < end; at += LANES * places) {
      V pair[2];
      __builtin_prefetch(w + at + AHEAD_BYTES);
      if (at + LANES * places <= end) NAME(read)(w + at, pair, bits);
      else {
        int8_t edge[2 * LANES] = {0};
        memcpy(edge, w + at, end - at);
        NAME(read)(edge, pair, bits);
      }
      const float *x = p->x + row * x_step + at;
      UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < 2; v++) total[r][v] += *(V *)(x + r * x_step + v * half) * pair[v];
    }
    const float scale = s->block ? p->scale[column * groups + stretch] : 1;
    const float zero = s->block ? scale * p->zero[column * groups + stretch] : 0;
    UNROLL for (int r = 0; r < rows; r++) {
      const V both = total[r][0] + total[r][1];
      if (s->whole) whole[r] += __builtin_convertvector(both, I);
      else totals[r] += scale * both;
      if (s->block) offset[r] += zero * p->sums[(row + r) * groups + stretch];
    }
  }
  for (int r = 0; r < rows; r++) {
    const int64_t to = (row + r) * s->columns + column;
    if (s->whole) {
      int32_t sum = 0;
      UNROLL for (int lane = 0; lane < LANES; lane++) sum += whole[r][lane];
      ((int32_t *)p->result)[to] = sum;
    } else {
      float sum = 0;
      UNROLL for (int lane = 0; lane < LANES; lane++) sum += totals[r][lane];
      ((float *)p->result)[to] = sum - offset[r];
    }
  }
}

INLINE void NAME(each)(const Packed *p, int64_t row, int64_t column, int64_t columns, const int rows, const int bits) {
  const Shapes *s = p->shapes;
  for (int64_t c = column; c < column + columns; c++) NAME(dots)(p, row, c, rows, bits);
  for (int64_t c = column; s->block && c < column + columns; c++)
    for (int r = 0; r < rows; r++) {
      float *result = (float *)p->result + (row + r) * s->columns + c;
      if (*result - *result != 0) *result = NAME(shifted_dot)(p, row + r, c);
    }
}

#define CASE(n)                                                    \
  if (s->turned) {                                                 \
    if (s->bits == 4) NAME(each)(p, row, column, columns, n, 4);   \
    else NAME(each)(p, row, column, columns, n, 8);                \
  } else if (s->bits == 4) NAME(tile)(p, row, column, columns, n, 4); \
  else NAME(tile)(p, row, column, columns, n, 8);
static __attribute__((noinline)) void NAME(block8)(const Packed *p, int64_t row, int64_t column, int64_t columns) {
  const Shapes *s = p->shapes;
  CASE(8)
}
static __attribute__((noinline)) void NAME(block4)(const Packed *p, int64_t row, int64_t column, int64_t columns) {
  const Shapes *s = p->shapes;
  CASE(4)
}
static __attribute__((noinline)) void NAME(block1)(const Packed *p, int64_t row, int64_t column, int64_t columns) {
  const Shapes *s = p->shapes;
  CASE(1)
}
#undef CASE

static void NAME(columns_of_rows)(const Packed *p, int64_t column, int64_t columns) {
  const int64_t rows = p->shapes->rows;
  for (int64_t row = 0; row < rows;) {
    const int64_t left = rows - row;
    if (left >= 8 && LANES == 16) NAME(block8)(p, row, column, columns), row += 8;
    else if (left >= 4) NAME(block4)(p, row, column, columns), row += 4;
    else NAME(block1)(p, row, column, columns), row += 1;
  }
}

// Units of columns are dealt out to the parts.
static void NAME(packed_part)(const void *data, long part) {
  const Packed *p = data;
  const Shapes *s = p->shapes;
  const int64_t units = ceiling(s->columns, UNIT), step = s->turned ? FEW : TILE;
  const int64_t first = units * part / s->parts * UNIT, last = least(s->columns, units * (part + 1) / s->parts * UNIT);
  for (int64_t column = first; column < last; column += step)
    NAME(columns_of_rows)(p, column, least(step, last - column));
}

#undef V
#undef I
#undef FLOATS
#undef INLINE
#undef UNROLL
#undef LANES
#undef NAME
#undef WIDEN
#undef BLEND_LOW
#undef BLEND_HIGH
