// Products of matrices for one instruction set: NAME gives the names.
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#if defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 12
#else
#define LANES 8
#define TILE_ROWS 6
#endif
#define TILE (2 * LANES)
#define V NAME(MatrixV)
typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// Writes `columns` columns of the right operand, at most TILE of them, next to each other: [inner, TILE], the rest 0.
static void NAME(pack_columns)(const MatrixShapes *s, const float *right, int64_t columns, float *packed) {
  if (columns < TILE) memset(packed, 0, s->inner * TILE * sizeof(float));
  if (s->right_column == 1) {
    for (int64_t k = 0; k < s->inner; k++)
      memcpy(packed + k * TILE, right + k * s->right_inner, (columns < TILE ? columns : TILE) * sizeof(float));
    return;
  }
  const int64_t fours = s->right_inner == 1 ? columns / 4 * 4 : 0, whole = s->inner / 4 * 4;
  for (int64_t c = 0; c < fours; c += 4)
    for (int64_t k = 0; k < whole; k += 4)
      transpose_four(right + c * s->right_column + k, s->right_column, packed + k * TILE + c, TILE);
  for (int64_t c = 0; c < columns; c++)
    for (int64_t k = c < fours ? whole : 0; k < s->inner; k++)
      packed[k * TILE + c] = right[c * s->right_column + k * s->right_inner];
}

// Computes `rows` rows of a tile. Three rows share a pointer: addresses are it, and once or twice the step more, so that
// all pointers stay in registers.
INLINE void NAME(tile)(const float *left, int64_t row_step, int64_t inner_step, int64_t inner, const float *right,
                       int64_t right_step, float *result, int64_t result_step, int64_t columns, const int rows) {
  V total[TILE_ROWS][2];
  const float *from[TILE_ROWS / 3];
  UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (V){0};
  UNROLL for (int r = 0; r < rows; r += 3) from[r / 3] = left + r * row_step;
  for (int64_t k = 0; k < inner; k++, right += right_step) {
    const V low = *(const V *)right, high = *(const V *)(right + LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      const float value = from[r / 3][r % 3 * row_step];
      total[r][0] += value * low;
      total[r][1] += value * high;
    }
    UNROLL for (int r = 0; r < rows; r += 3) from[r / 3] += inner_step;
  }
  if (columns == TILE) {
    UNROLL for (int r = 0; r < rows; r++) {
      *(V *)(result + r * result_step) = total[r][0];
      *(V *)(result + r * result_step + LANES) = total[r][1];
    }
    return;
  }
  UNROLL for (int r = 0; r < rows; r++) memcpy(result + r * result_step, total[r], columns * sizeof(float));
}

#define OF_ROWS(n)                                                                                                   \
  static __attribute__((noinline)) void JOIN(NAME(tile), n)(const MatrixShapes *s, const float *left,                \
                                                            const float *right, int64_t right_step, float *result,   \
                                                            int64_t columns) {                                       \
    const int64_t step = s->columns;                                                                                 \
    if (s->left_row == 1) NAME(tile)(left, 1, s->left_inner, s->inner, right, right_step, result, step, columns, n); \
    else NAME(tile)(left, s->left_row, s->left_inner, s->inner, right, right_step, result, step, columns, n);        \
  }
OF_ROWS(1)
OF_ROWS(2)
OF_ROWS(3)
OF_ROWS(4)
OF_ROWS(5)
OF_ROWS(6)
#if TILE_ROWS == 12
OF_ROWS(7)
OF_ROWS(8)
OF_ROWS(9)
OF_ROWS(10)
OF_ROWS(11)
OF_ROWS(12)
#endif
#undef OF_ROWS

typedef void NAME(Tile)(const MatrixShapes *, const float *, const float *, int64_t, float *, int64_t);

// Computes TILE columns of a matrix. Those that few rows are multiplied with are read where they lie.
static void NAME(matrix_unit)(const MatrixWork *w, int64_t batch, int64_t column, float *packed) {
  static NAME(Tile) *const of_rows[TILE_ROWS] = {
      JOIN(NAME(tile), 1),  JOIN(NAME(tile), 2),  JOIN(NAME(tile), 3),  JOIN(NAME(tile), 4),
      JOIN(NAME(tile), 5),  JOIN(NAME(tile), 6),
#if TILE_ROWS == 12
      JOIN(NAME(tile), 7),  JOIN(NAME(tile), 8),  JOIN(NAME(tile), 9),
      JOIN(NAME(tile), 10), JOIN(NAME(tile), 11), JOIN(NAME(tile), 12),
#endif
  };
  const MatrixShapes *s = w->shapes;
  const int64_t columns = s->columns - column < TILE ? s->columns - column : TILE;
  const float *left = w->left + batch_offset(s, s->left_batch, batch);
  const float *right = w->right + batch_offset(s, s->right_batch, batch) + column * s->right_column;
  int64_t right_step = s->right_inner;
  if (s->right_column != 1 || columns < TILE || s->rows > TILE_ROWS) {
    NAME(pack_columns)(s, right, columns, packed);
    right = packed, right_step = TILE;
  }
  float *result = w->result + batch * s->rows * s->columns + column;
  for (int64_t row = 0; row < s->rows; row += TILE_ROWS) {
    const int64_t rows = s->rows - row < TILE_ROWS ? s->rows - row : TILE_ROWS;
    of_rows[rows - 1](s, left + row * s->left_row, right, right_step, result + row * s->columns, columns);
  }
}

static void NAME(matrix_part)(const void *data, long part) {
  const MatrixWork *w = data;
  const MatrixShapes *s = w->shapes;
  const int64_t tiles = (s->columns + TILE - 1) / TILE, units = batches_of(s) * tiles;
  float packed[MOST_INNER * TILE] __attribute__((aligned(64)));
  for (int64_t unit = units * part / s->parts; unit < units * (part + 1) / s->parts; unit++)
    NAME(matrix_unit)(w, unit / tiles, unit % tiles * TILE, packed);
}

#undef INLINE
#undef UNROLL
#undef LANES
#undef TILE_ROWS
#undef TILE
#undef V
