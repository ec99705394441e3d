// Dense convolutions for one instruction set: NAME gives the names.
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#if defined(__AVX512F__)
#define LANES 16
#define TILE_COLUMNS 12
#define STREAMS(tile) (tile)->streams
#define STREAM(to, value) WRITE_PAST_CACHES(to, value)
#else
#define LANES 8
#define TILE_COLUMNS 6
#define STREAMS(tile) 0
#define STREAM(to, value) (*(V *)(to) = value)
#endif
#define TILE (2 * LANES)
#define V NAME(DenseV)
#define I NAME(DenseI)
typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// Writes a line of the filters, from one feature on: TILE of them next to each other, 0 beyond the last.
INLINE void NAME(pack_line)(const float *filters, int64_t width, float *packed) {
  if (width < TILE) memset(packed, 0, TILE * sizeof(float));
  memcpy(packed, filters, width * sizeof(float));
}

// Writes `lines` lines of one tap of turned filters, from one feature on. A line is a column of them, `column` apart.
INLINE void NAME(pack_turned)(const float *filters, int64_t lines, int64_t width, int64_t column, float *packed) {
  if (width < TILE) memset(packed, 0, lines * TILE * sizeof(float));
  const int64_t fours = width / 4 * 4, whole = lines / 4 * 4;
  for (int64_t line = 0; line < whole; line += 4)
    for (int64_t f = 0; f < fours; f += 4)
      transpose_four(filters + f * column + line, column, packed + line * TILE + f, TILE);
  for (int64_t f = 0; f < width; f++)
    for (int64_t line = f < fours ? whole : 0; line < lines; line++)
      packed[line * TILE + f] = filters[f * column + line];
}

// Packs some lines of the filters.
static void NAME(dense_pack)(const void *data, long part) {
  const DenseWork *w = data;
  const ConvolutionShapes *s = w->shapes;
  const int64_t taps = volume(s->window), lines = taps * s->in;
  const int64_t from = lines * part / w->pack_parts, to = lines * (part + 1) / w->pack_parts;
  for (int64_t f = 0; f < s->out; f += TILE) {
    const int64_t width = least(s->out - f, TILE);
    float *packed = w->packed + f * lines;
    for (int64_t line = from, count = 1; line < to; line += count) {
      if (!s->turned) {
        NAME(pack_line)(w->filters + line * s->out + f, width, packed + line * TILE);
        continue;
      }
      const int64_t tap = line / s->in, first = line % s->in;
      count = least(s->in - first, to - line);
      NAME(pack_turned)(w->filters + ((taps - 1 - tap) * s->out + f) * s->in + first, count, width, s->in,
                        packed + line * TILE);
    }
  }
}

// Columns of a line of the result, by TILE features.
typedef struct NAME(Tile) {
  const Run *runs;
  int64_t count, from, x_step;  // runs; where the columns are in x, from the runs' begin, and their distance
  const float *packed, *bias;   // bias may be missing
  float *result;
  int64_t result_step, features;
  int streams;
} NAME(Tile);

// Computes `columns` columns. Three of them share a pointer: addresses are it, and once or twice the step more, so that
// all pointers stay in registers.
INLINE void NAME(tile)(const NAME(Tile) *t, const int columns, const int vectors) {
  V total[TILE_COLUMNS][2];
  UNROLL for (int c = 0; c < columns; c++)
    UNROLL for (int v = 0; v < vectors; v++) total[c][v] = (V){0};
  const int64_t step = t->x_step;
  for (const Run *run = t->runs; run < t->runs + t->count; run++) {
    const float *from[TILE_COLUMNS / 3], *filters = t->packed + run->filters * TILE;
    UNROLL for (int c = 0; c < columns; c += 3) from[c / 3] = run->x + t->from + c * step;
    for (int64_t k = run->length; k > 0; k--, filters += TILE) {
      V weights[2];
      UNROLL for (int v = 0; v < vectors; v++) weights[v] = *(const V *)(filters + v * LANES);
      UNROLL for (int c = 0; c < columns; c++) {
        const float value = from[c / 3][c % 3 * step];
        UNROLL for (int v = 0; v < vectors; v++) total[c][v] += value * weights[v];
      }
      UNROLL for (int c = 0; c < columns; c += 3) from[c / 3]++;
    }
  }
  if (t->bias) {
    UNROLL for (int c = 0; c < columns; c++)
      UNROLL for (int v = 0; v < vectors; v++) {
        const V sum = total[c][v] + *(const V *)(t->bias + v * LANES);
        total[c][v] = (V)((I)sum & ~(I)(sum < 0));  // what is no number stays so
      }
  }
  float *result = t->result;
  if (STREAMS(t)) {
    UNROLL for (int c = 0; c < columns; c++, result += t->result_step)
      UNROLL for (int v = 0; v < vectors; v++) STREAM(result + v * LANES, total[c][v]);
    return;
  }
  if (t->features >= vectors * LANES) {
    UNROLL for (int c = 0; c < columns; c++, result += t->result_step)
      UNROLL for (int v = 0; v < vectors; v++) *(V *)(result + v * LANES) = total[c][v];
    return;
  }
  for (int c = 0; c < columns; c++, result += t->result_step) memcpy(result, total[c], t->features * sizeof(float));
}

#define OF_COLUMNS(n)                                                                  \
  static __attribute__((noinline)) void JOIN(NAME(columns), n)(const NAME(Tile) *t) { \
    if (t->features > LANES) NAME(tile)(t, n, 2);                                      \
    else NAME(tile)(t, n, 1);                                                          \
  }
OF_COLUMNS(1)
OF_COLUMNS(2)
OF_COLUMNS(3)
OF_COLUMNS(4)
OF_COLUMNS(5)
OF_COLUMNS(6)
#if TILE_COLUMNS == 12
OF_COLUMNS(7)
OF_COLUMNS(8)
OF_COLUMNS(9)
OF_COLUMNS(10)
OF_COLUMNS(11)
OF_COLUMNS(12)
#endif
#undef OF_COLUMNS

// Computes all columns of a kind, as even blocks of at most TILE_COLUMNS.
static void NAME(columns)(NAME(Tile) *t, const Columns *c, float *result, Ahead *next) {
  typedef void OfColumns(const NAME(Tile) *);
  static OfColumns *const of_columns[TILE_COLUMNS] = {
      JOIN(NAME(columns), 1),  JOIN(NAME(columns), 2),  JOIN(NAME(columns), 3),
      JOIN(NAME(columns), 4),  JOIN(NAME(columns), 5),  JOIN(NAME(columns), 6),
#if TILE_COLUMNS == 12
      JOIN(NAME(columns), 7),  JOIN(NAME(columns), 8),  JOIN(NAME(columns), 9),
      JOIN(NAME(columns), 10), JOIN(NAME(columns), 11), JOIN(NAME(columns), 12),
#endif
  };
  const int64_t blocks = ceiling(c->count, TILE_COLUMNS);
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t at = c->count * block / blocks, end = c->count * (block + 1) / blocks;
    t->from = at * t->x_step;
    t->result = result + at * t->result_step;
    prefetch_portion(next);
    of_columns[end - at - 1](t);
  }
}

// The lines of x that a part holds.
typedef struct NAME(Held) {
  int64_t lines, width;       // of a line in floats, with its margins
  int64_t number[MOST_TAPS];  // which line of x is in each place
  float each[MOST_FLOATS] __attribute__((aligned(64)));
} NAME(Held);

// Sets where each line of x that a line of the result sees is in memory: x itself if it needs no margins, else a copy.
static void NAME(hold)(const DenseWork *w, const Line *line, Margins margins, NAME(Held) *held, const float **lines) {
  const int64_t row = w->shapes->input[2] * w->shapes->in;
  for (int64_t i = 0; i < line->count; i++) {
    const float *x = w->x + line->x[i] * row;
    lines[i] = x;
    if (margins.before + margins.after == 0) continue;
    const int64_t place = line->x[i] % held->lines;
    float *copy = held->each + place * held->width + margins.before * w->shapes->in;
    if (held->number[place] != line->x[i]) memcpy(copy, x, row * sizeof(float));
    held->number[place] = line->x[i];
    lines[i] = copy;
  }
}

// Computes a line before pooling, of features [f, to).
static void NAME(line)(const DenseWork *w, int64_t number, int64_t f, int64_t to, Margins margins, NAME(Held) *held,
                       Ahead *next, float *result) {
  const ConvolutionShapes *s = w->shapes;
  const int64_t weights = volume(s->window) * s->in;
  const float *lines[MOST_TAPS];
  Line line;
  Columns c;
  Run runs[MOST_TAPS];
  line_of(s, number, &line);
  NAME(hold)(w, &line, margins, held, lines);
  for (int64_t first = 0; first < kinds_of_columns(s); first++) {
    columns_of(s, first, &c);
    NAME(Tile) t = {.runs = runs, .x_step = c.step * s->in, .result_step = c.apart * s->out, .streams = w->streams};
    t.count = runs_of(s, &line, lines, &c, runs);
    for (int64_t at = f; at < to; at += TILE) {
      float bias[TILE] = {0};
      t.features = least(s->out - at, TILE);
      if (w->bias) memcpy(bias, w->bias + at, t.features * sizeof(float));
      t.bias = w->bias ? bias : NULL;
      t.packed = w->packed + at * weights;
      NAME(columns)(&t, &c, result + first * s->out + at, next);
    }
  }
}

// Sets numbers to the larger ones of two, or to NaN if there is one.
INLINE void NAME(set_larger)(V *most, V each) {
  const I is_larger = (I)(each > *most) | (I)(each != each);
  *most = (V)(((I)each & is_larger) | ((I)*most & ~is_larger));
}

// Sets the features of a pixel of the result to the largest of a window of lines before pooling.
INLINE void NAME(pool_pixel)(const ConvolutionShapes *s, const float *window, int64_t features, const int64_t rows,
                             const int64_t columns, float *result) {
  const int64_t width = s->output[2] * s->out, whole = features / LANES * LANES, rest = features - whole;
  for (int64_t f = 0; f < features; f += LANES) {
    V most = (V){0} - INFINITY, each = {0};
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) {
        const float *from = window + r * width + c * s->out + f;
        if (f < whole) each = *(const V *)from;
        else memcpy(&each, from, rest * sizeof(float));
        NAME(set_larger)(&most, each);
      }
    if (f < whole) *(V *)(result + f) = most;
    else memcpy(result + f, &most, rest * sizeof(float));
  }
}

// Sets the features of a line of the result.
static void NAME(pool_line)(const ConvolutionShapes *s, const float *lines, int64_t features, float *result) {
  const int64_t rows = s->pool[1], columns = s->pool[2], step = columns * s->out;
  for (int64_t c = 0; c < s->output[2] / columns; c++)
    if (rows == 2 && columns == 2) NAME(pool_pixel)(s, lines + c * step, features, 2, 2, result + c * s->out);
    else NAME(pool_pixel)(s, lines + c * step, features, rows, columns, result + c * s->out);
}

// Computes a line of the result, of features [f, to): pooled, of lines that are in `pooled` then.
static void NAME(result_line)(const DenseWork *w, int64_t number, int64_t f, int64_t to, Margins margins,
                              NAME(Held) *held, Ahead *next, float *pooled) {
  const ConvolutionShapes *s = w->shapes;
  const int64_t width = s->output[2] * s->out, first = last_line(s, number) - (s->pool[1] - 1);
  float *result = w->result + number * (s->output[2] / s->pool[2]) * s->out;
  float *lines = is_pooled(s) ? pooled : result;
  for (int64_t r = 0; r < s->pool[1]; r++)
    NAME(line)(w, first + r, f, to, margins, held, next, lines + r * width);
  if (is_pooled(s)) NAME(pool_line)(s, pooled + f, to - f, result + f);
}

// Computes lines of the result that follow each other; `pooled` has room for those before pooling.
static __attribute__((noinline)) void NAME(result_lines)(const DenseWork *w, long begin, long last, float *pooled) {
  const ConvolutionShapes *s = w->shapes;
  const Margins margins = margins_of(s);
  const int64_t row = s->input[2] * s->in, weights = volume(s->window) * s->in;
  const int64_t together = most(1, HELD / (weights * TILE)) * TILE;
  NAME(Held) held;
  held.lines = held_lines(s), held.width = (margins.before + s->input[2] + margins.after) * s->in;
  for (int64_t i = 0; i < held.lines; i++) held.number[i] = -1;
  if (margins.before + margins.after > 0) memset(held.each, 0, held.lines * held.width * sizeof(float));
  for (int64_t f = 0; f < s->out; f += together) {
    const int64_t to = least(s->out, f + together), tiles = ceiling(to - f, TILE);
    const int64_t portions = s->pool[1] * tiles * ceiling(s->output[2], TILE_COLUMNS);
    for (int64_t number = begin; number < last; number++) {
      Ahead next = {0};
      if (number + 1 < last && f == 0) {
        const int64_t from = seen_until(s, last_line(s, number)), end = seen_until(s, last_line(s, number + 1));
        if (end > from) next = ahead_of(w->x + from * row, 1, 0, (end - from) * row, portions);
      }
      NAME(result_line)(w, number, f, to, margins, &held, &next, pooled);
    }
  }
  if (w->streams) WRITES_ARE_SEEN();
}

static void NAME(dense_lines)(const void *data, long begin, long last) { NAME(result_lines)(data, begin, last, NULL); }

static void NAME(pooled_lines)(const void *data, long begin, long last) {
  float pooled[MOST_POOLED] __attribute__((aligned(64)));
  NAME(result_lines)(data, begin, last, pooled);
}

#undef V
#undef I
#undef TILE
#undef LANES
#undef STREAMS
#undef STREAM
#undef TILE_COLUMNS
#undef INLINE
#undef UNROLL
