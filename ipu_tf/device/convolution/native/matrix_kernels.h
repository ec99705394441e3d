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
#define HEIGHT (TILES * TILE_ROWS)
#define V NAME(MatrixV)
#define I NAME(MatrixI)
typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// Of a block, as much as is multiplied at a time: tiles of the right operand, and rows of the left one.
typedef struct NAME(Packed) {
  float right[DEPTH * TILES * TILE] __attribute__((aligned(64)));
  float left[DEPTH * HEIGHT] __attribute__((aligned(64)));
} NAME(Packed);

// Writes `columns` columns of the right operand, at most TILE of them, `depth` numbers of each, next to each other:
// [depth, TILE], the rest 0.
static void NAME(pack_tile)(const MatrixShapes *s, const float *right, int64_t depth, int64_t columns, float *packed) {
  if (columns < TILE) memset(packed, 0, depth * TILE * sizeof(float));
  if (s->right_column == 1 && columns == TILE) {
    for (int64_t k = 0; k < depth; k++) memcpy(packed + k * TILE, right + k * s->right_inner, TILE * sizeof(float));
    return;
  }
  const int64_t fours = s->right_inner == 1 ? columns / 4 * 4 : 0, whole = depth / 4 * 4;
  for (int64_t c = 0; c < fours; c += 4)
    for (int64_t k = 0; k < whole; k += 4)
      transpose_four(right + c * s->right_column + k, s->right_column, packed + k * TILE + c, TILE);
  for (int64_t c = 0; c < columns; c++)
    for (int64_t k = c < fours ? whole : 0; k < depth; k++)
      packed[k * TILE + c] = right[c * s->right_column + k * s->right_inner];
}

// Writes columns of the right operand, `depth` numbers of each, as tiles one after the other: [tile, depth, TILE], the
// rest 0.
static void NAME(pack_right)(const MatrixShapes *s, const float *right, int64_t depth, int64_t columns, float *packed) {
  for (int64_t c = 0; c < columns; c += TILE) {
    const int64_t width = columns - c < TILE ? columns - c : TILE;
    NAME(pack_tile)(s, right + c * s->right_column, depth, width, packed + c * depth);
  }
}

// Writes `rows` rows of the left operand, which lie next to each other, `depth` numbers of each, as tiles one after the
// other: [tile, depth, TILE_ROWS].
static void NAME(pack_left)(const MatrixShapes *s, const float *left, int64_t depth, int64_t rows, float *packed) {
  const int64_t whole = rows / TILE_ROWS * TILE_ROWS;
  for (int64_t k = 0; k < depth; k++) {
    const float *from = left + k * s->left_inner;
    float *to = packed + k * TILE_ROWS;
    for (int64_t r = 0; r < whole; r += TILE_ROWS) memcpy(to + r * depth, from + r, TILE_ROWS * sizeof(float));
    for (int64_t r = whole; r < rows; r++) to[whole * depth + r - whole] = from[r];
  }
}

// Operands and result of a tile: strides in floats. The product is added to the result if `adds`. Then a bias and an
// addend, which lies as the result does, are added, if there are any, and what is negative is 0 if `least_zero`.
typedef struct NAME(Tile) {
  const float *left, *right, *bias, *addend;
  float *result;
  int64_t left_row, left_inner, depth, right_inner, result_row;
  int adds, least_zero;
} NAME(Tile);

// Computes `rows` rows of a tile. Three rows share a pointer: addresses are it, and once or twice the step more, so that
// all pointers stay in registers.
INLINE void NAME(tile)(const NAME(Tile) *t, int64_t row_step, const int rows) {
  V total[TILE_ROWS][2];
  const float *from[TILE_ROWS / 3], *right = t->right;
  UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (V){0};
  UNROLL for (int r = 0; r < rows; r += 3) from[r / 3] = t->left + r * row_step;
  if (t->addend) {
    UNROLL for (int r = 0; r < rows; r++) {
      PREFETCH(t->addend + r * t->result_row);
      PREFETCH(t->addend + r * t->result_row + LANES);
    }
  }
  const int64_t inner_step = t->left_inner, right_step = t->right_inner;
  for (int64_t k = 0; k < t->depth; k++, right += right_step) {
    const V low = *(const V *)right, high = *(const V *)(right + LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      const float value = from[r / 3][r % 3 * row_step];
      total[r][0] += value * low;
      total[r][1] += value * high;
    }
    UNROLL for (int r = 0; r < rows; r += 3) from[r / 3] += inner_step;
  }
  float *result = t->result;
  if (t->adds) {
    UNROLL for (int r = 0; r < rows; r++) {
      total[r][0] += *(const V *)(result + r * t->result_row);
      total[r][1] += *(const V *)(result + r * t->result_row + LANES);
    }
  }
  if (t->bias) {
    const V low = *(const V *)t->bias, high = *(const V *)(t->bias + LANES);
    UNROLL for (int r = 0; r < rows; r++) total[r][0] += low, total[r][1] += high;
  }
  if (t->addend) {
    UNROLL for (int r = 0; r < rows; r++) {
      total[r][0] += *(const V *)(t->addend + r * t->result_row);
      total[r][1] += *(const V *)(t->addend + r * t->result_row + LANES);
    }
  }
  if (t->least_zero) {  // what is no number stays so
    UNROLL for (int r = 0; r < rows; r++)
      for (int v = 0; v < 2; v++) total[r][v] = (V)((I)total[r][v] & ~(I)(total[r][v] < 0));
  }
  UNROLL for (int r = 0; r < rows; r++) {
    *(V *)(result + r * t->result_row) = total[r][0];
    *(V *)(result + r * t->result_row + LANES) = total[r][1];
  }
}

#define OF_ROWS(n)                                                                 \
  static __attribute__((noinline)) void JOIN(NAME(tile), n)(const NAME(Tile) *t) { \
    if (t->left_row == 1) NAME(tile)(t, 1, n);                                     \
    else NAME(tile)(t, t->left_row, n);                                            \
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

// Computes a tile of at most TILE_ROWS rows.
static void NAME(whole_tile)(const NAME(Tile) *t, int64_t rows) {
  typedef void OfRows(const NAME(Tile) *);
  static OfRows *const of_rows[TILE_ROWS] = {
      JOIN(NAME(tile), 1),  JOIN(NAME(tile), 2),  JOIN(NAME(tile), 3),  JOIN(NAME(tile), 4),
      JOIN(NAME(tile), 5),  JOIN(NAME(tile), 6),
#if TILE_ROWS == 12
      JOIN(NAME(tile), 7),  JOIN(NAME(tile), 8),  JOIN(NAME(tile), 9),
      JOIN(NAME(tile), 10), JOIN(NAME(tile), 11), JOIN(NAME(tile), 12),
#endif
  };
  of_rows[rows - 1](t);
}

// Computes a tile of any number of columns.
static void NAME(any_tile)(const NAME(Tile) *t, int64_t rows, int64_t columns) {
  if (columns >= TILE) {
    NAME(whole_tile)(t, rows);
    return;
  }
  float whole[TILE_ROWS * TILE] __attribute__((aligned(64))) = {0}, addend[TILE_ROWS * TILE];
  NAME(Tile) apart = *t;
  apart.result = whole, apart.result_row = TILE;
  if (t->addend) memset(addend, 0, sizeof addend), apart.addend = addend;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t from = r * t->result_row;
    if (t->adds) memcpy(whole + r * TILE, t->result + from, columns * sizeof(float));
    if (t->addend) memcpy(addend + r * TILE, t->addend + from, columns * sizeof(float));
  }
  NAME(whole_tile)(&apart, rows);
  for (int64_t r = 0; r < rows; r++) memcpy(t->result + r * t->result_row, whole + r * TILE, columns * sizeof(float));
}

// Computes a block of a matrix from DEPTH numbers of the inner axis, or the last ones.
static void NAME(slice)(const MatrixShapes *s, const MatrixBlock *b, int64_t first, NAME(Packed) *packed) {
  // Columns that few rows are multiplied with are read where they lie.
  const int in_place = s->right_column == 1 && b->columns % TILE == 0 && b->rows <= 3 * TILE_ROWS;
  const int packs_left = s->left_row == 1 && b->columns > 2 * TILE;
  const float *left = b->left + first * s->left_inner, *right = b->right + first * s->right_inner;
  NAME(Tile) t = {.depth = s->inner - first < DEPTH ? s->inner - first : DEPTH, .adds = first > 0};
  t.left_row = s->left_row, t.left_inner = packs_left ? TILE_ROWS : s->left_inner;
  t.right_inner = in_place ? s->right_inner : TILE, t.result_row = s->result_row;
  const int is_last = first + t.depth == s->inner, has_bias = is_last && b->bias;
  float bias[TILES * TILE] __attribute__((aligned(64)));
  t.least_zero = is_last && s->least_zero;
  for (int64_t c = 0; has_bias && c < TILES * TILE; c++) bias[c] = c < b->columns ? b->bias[c] : 0;
  if (!in_place) NAME(pack_right)(s, right, t.depth, b->columns, packed->right);
  // What is packed next: lines of the inner axis, which lie apart.
  const int64_t later = first + DEPTH, coming = s->inner - later < DEPTH ? s->inner - later : DEPTH;
  const int64_t calls = (b->rows + TILE_ROWS - 1) / TILE_ROWS * ((b->columns + TILE - 1) / TILE);
  Ahead next_left = {0}, next_right = {0};
  if (coming > 0 && packs_left) next_left = ahead_of(b->left + later * s->left_inner, coming, s->left_inner, b->rows, calls);
  if (coming > 0 && !in_place && s->right_column == 1)
    next_right = ahead_of(b->right + later * s->right_inner, coming, s->right_inner, b->columns, calls);
  // Rows that are read where they lie are multiplied with a tile while it is in the first cache, but for those of images,
  // which are read once: for all tiles.
  const int is_tall = s->left_inner == 1 && s->rows >= TALL;
  const int64_t some = is_tall || packs_left ? TILE_ROWS : 2 * HEIGHT;
  for (int64_t from = 0; from < b->rows; from += some) {
    const int64_t end = b->rows - from < some ? b->rows : from + some, rest = b->rows - end, at = from % HEIGHT;
    if (packs_left && at == 0)
      NAME(pack_left)(s, left + from, t.depth, b->rows - from < HEIGHT ? b->rows - from : HEIGHT, packed->left);
    Ahead next = {0};
    if (is_tall && rest > 0)
      next = ahead_of(left + end * s->left_row, rest < TILE_ROWS ? rest : TILE_ROWS, s->left_row, t.depth,
                      (b->columns + TILE - 1) / TILE);
    for (int64_t c = 0; c < b->columns; c += TILE) {
      t.right = in_place ? right + c : packed->right + c * t.depth;
      t.bias = has_bias ? bias + c : NULL;
      for (int64_t row = from; row < end; row += TILE_ROWS) {
        prefetch_portion(&next);
        prefetch_portion(&next_left);
        prefetch_portion(&next_right);
        t.left = packs_left ? packed->left + at * t.depth : left + row * s->left_row;
        t.result = b->result + row * s->result_row + c;
        t.addend = is_last && b->addend ? b->addend + row * s->result_row + c : NULL;
        NAME(any_tile)(&t, end - row < TILE_ROWS ? end - row : TILE_ROWS, b->columns - c);
      }
    }
  }
}

// Computes units of work that follow each other.
static void NAME(matrix_units)(const void *data, long unit, long end) {
  const MatrixWork *w = data;
  const MatrixShapes *s = w->shapes;
  const int64_t tiles = tiles_of(s, TILE), rows = block_rows(s, tiles, TILE_ROWS), blocks = (s->rows + rows - 1) / rows;
  NAME(Packed) packed;
  for (int64_t count; unit < end; unit += count) {
    const int64_t tile = unit % tiles, place = unit / tiles;
    count = tiles - tile < end - unit ? tiles - tile : end - unit;
    if (count > TILES) count = TILES;
    const MatrixBlock block = block_of(w, place / blocks, place % blocks * rows, rows, tile * TILE, count * TILE);
    for (int64_t first = 0; first < s->inner; first += DEPTH) NAME(slice)(s, &block, first, &packed);
  }
}

static int64_t NAME(unit_count)(const MatrixShapes *s) {
  const int64_t tiles = tiles_of(s, TILE), rows = block_rows(s, tiles, TILE_ROWS);
  return batches_of(s) * ((s->rows + rows - 1) / rows) * tiles;
}

#undef INLINE
#undef UNROLL
#undef LANES
#undef TILE_ROWS
#undef TILE
#undef HEIGHT
#undef V
#undef I
