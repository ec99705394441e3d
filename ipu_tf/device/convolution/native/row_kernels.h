// Products of a few rows with a matrix, for one instruction set: NAME gives the names. Vectors are of 16 floats for all.
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

// Adds the products of `lines` lines of the matrix, of `columns` floats each, to the sums of `rows` rows.
INLINE void NAME(lines)(const float *x, int64_t x_step, const float *matrix, int64_t columns, float *sums,
                        const int rows, const int lines) {
  int64_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    RowV total[MOST_ROWS];
    UNROLL for (int r = 0; r < rows; r++) total[r] = (RowV){0};
    UNROLL for (int k = 0; k < lines; k++) {
      const RowV line = *(const RowV *)(matrix + k * columns + c);
      UNROLL for (int r = 0; r < rows; r++) total[r] += x[r * x_step + k] * line;
    }
    UNROLL for (int r = 0; r < rows; r++) *(RowV *)(sums + r * columns + c) += total[r];
  }
  for (; c < columns; c++)
    for (int r = 0; r < rows; r++) {
      float total = 0;
      for (int k = 0; k < lines; k++) total += x[r * x_step + k] * matrix[k * columns + c];
      sums[r * columns + c] += total;
    }
}

INLINE void NAME(stretch)(const RowWork *w, int64_t from, int64_t to, float *sums, const int rows) {
  const int64_t inner = w->shapes->inner, columns = w->shapes->columns;
  int64_t k = from;
  for (; k + LINES <= to; k += LINES)
    NAME(lines)(w->x + k, inner, w->matrix + k * columns, columns, sums, rows, LINES);
  for (; k < to; k++) NAME(lines)(w->x + k, inner, w->matrix + k * columns, columns, sums, rows, 1);
}

// Sums of many terms are those of stretches: a small term that is added to a large sum loses its last bits.
INLINE void NAME(slice)(const RowWork *w, int64_t from, int64_t to, float *sums, const int rows) {
  const int64_t all = rows * w->shapes->columns;
  memset(sums, 0, all * sizeof(float));
  if (all > FEW_SUMS) {
    NAME(stretch)(w, from, to, sums, rows);
    return;
  }
  float part[FEW_SUMS];
  for (int64_t k = from; k < to; k += STRETCH) {
    memset(part, 0, all * sizeof(float));
    NAME(stretch)(w, k, k + STRETCH < to ? k + STRETCH : to, part, rows);
    for (int64_t place = 0; place < all; place++) sums[place] += part[place];
  }
}

// Computes a column of `rows` rows, turned; in stretches, too.
INLINE void NAME(dots)(const RowWork *w, int64_t column, const int rows) {
  const int64_t inner = w->shapes->inner;
  const float *line = w->matrix + column * inner;
  RowV whole[MOST_ROWS];
  UNROLL for (int r = 0; r < rows; r++) whole[r] = (RowV){0};
  int64_t k = 0;
  while (k + 32 <= inner) {
    const int64_t end = k + 16 * STRETCH < inner ? k + 16 * STRETCH : inner;
    RowV total[MOST_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (RowV){0};
    for (; k + 32 <= end; k += 32)
      UNROLL for (int half = 0; half < 2; half++) {
        const RowV piece = *(const RowV *)(line + k + 16 * half);
        UNROLL for (int r = 0; r < rows; r++) total[r][half] += piece * *(const RowV *)(w->x + r * inner + k + 16 * half);
      }
    UNROLL for (int r = 0; r < rows; r++) whole[r] += total[r][0] + total[r][1];
  }
  UNROLL for (int r = 0; r < rows; r++) {
    float sum = 0;
    UNROLL for (int lane = 0; lane < 16; lane++) sum += whole[r][lane];
    for (int64_t left = k; left < inner; left++) sum += line[left] * w->x[r * inner + left];
    w->sums[r * w->shapes->columns + column] = sum;
  }
}

#define OF_ROWS(n)                                                                                      \
  static __attribute__((noinline)) void JOIN(NAME(part), n)(const RowWork *w, int64_t part) {           \
    const RowShapes *s = w->shapes;                                                                     \
    const int64_t all = s->turned ? s->columns : s->inner;                                              \
    const int64_t from = all * part / s->parts, to = all * (part + 1) / s->parts;                       \
    if (!s->turned) NAME(slice)(w, from, to, w->sums + part * n * s->columns, n);                       \
    else for (int64_t column = from; column < to; column++) NAME(dots)(w, column, n);                   \
  }
OF_ROWS(1)
OF_ROWS(2)
OF_ROWS(3)
OF_ROWS(4)
OF_ROWS(5)
OF_ROWS(6)
OF_ROWS(7)
OF_ROWS(8)
#undef OF_ROWS

static void NAME(row_part)(const void *data, long part) {
  static void (*const of_rows[MOST_ROWS])(const RowWork *, int64_t) = {
      JOIN(NAME(part), 1), JOIN(NAME(part), 2), JOIN(NAME(part), 3), JOIN(NAME(part), 4),
      JOIN(NAME(part), 5), JOIN(NAME(part), 6), JOIN(NAME(part), 7), JOIN(NAME(part), 8)};
  const RowWork *w = data;
  of_rows[w->shapes->rows - 1](w, part);
}

#undef INLINE
#undef UNROLL
