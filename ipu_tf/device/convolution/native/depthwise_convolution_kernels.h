// Depthwise convolutions for one instruction set: NAME gives the names. Vectors are of 16 floats for all.
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#if defined(__AVX512F__)
#define COLUMNS 8
#define WIDE 2
#else
#define COLUMNS 4
#define WIDE 1
#endif
#define V NAME(DepthwiseV)
typedef float V __attribute__((vector_size(64), aligned(4), may_alias));

// Computes `columns` columns of a line, of `vectors` vectors of features from f on.
INLINE void NAME(sums)(const Taps *taps, int64_t f, int64_t x_step, float *result, int64_t result_step,
                       const int columns, const int vectors) {
  V total[COLUMNS][4];
  UNROLL for (int c = 0; c < columns; c++)
    UNROLL for (int v = 0; v < vectors; v++) total[c][v] = (V){0};
  const int64_t count = taps->count;
  for (int64_t tap = 0; tap < count; tap++) {
    const float *x = taps->x[tap] + f, *filters = taps->filters[tap] + f;
    // What follows is not to be rewritten as a pointer for each column: so many spill.
    __asm__("" : "+r"(x));
    V weight[4];
    UNROLL for (int v = 0; v < vectors; v++) weight[v] = *(const V *)(filters + v * 16);
    UNROLL for (int c = 0; c < columns; c++)
      UNROLL for (int v = 0; v < vectors; v++) total[c][v] += *(const V *)(x + c * x_step + v * 16) * weight[v];
  }
  result += f;
  UNROLL for (int c = 0; c < columns; c++, result += result_step)
    UNROLL for (int v = 0; v < vectors; v++) *(V *)(result + v * 16) = total[c][v];
}

// Computes all features of some columns. The last vector lies partly on the one before it, if need be.
INLINE void NAME(features)(const Taps *taps, int64_t features, int64_t x_step, float *result, int64_t result_step,
                           Ahead *next, const int columns, const int vectors) {
  int64_t f = 0;
  for (; f + vectors * 16 <= features; f += vectors * 16) {
    prefetch_portion(next);
    NAME(sums)(taps, f, x_step, result, result_step, columns, vectors);
  }
  for (; f < features; f += 16)
    NAME(sums)(taps, least(f, features - 16), x_step, result, result_step, columns, 1);
}

#define OF_COLUMNS(n, wide)                                                                                   \
  static __attribute__((noinline)) void JOIN(NAME(columns), n)(const Taps *taps, int64_t features,            \
                                                               int64_t x_step, float *result,                 \
                                                               int64_t result_step, Ahead *next) {            \
    NAME(features)(taps, features, x_step, result, result_step, next, n, wide);                               \
  }
OF_COLUMNS(1, 4)
OF_COLUMNS(2, 2)
OF_COLUMNS(4, WIDE)
#if COLUMNS == 8
OF_COLUMNS(8, WIDE)
#endif
#undef OF_COLUMNS

// Computes `count` columns of a line that see the same elements of the window, from `at` on.
static void NAME(columns)(const DepthwiseWork *w, float *line_of_result, const Line *line, const Columns *c, int64_t at,
                          int64_t count, Ahead *next) {
  Taps taps;
  const int64_t features = w->shapes->out, x_step = c->step * features, result_step = c->apart * features;
  for (int64_t done; count > 0; count -= done, at += done) {
    taps_of(w, line, c, at, &taps);
    float *result = line_of_result + (c->first + at * c->apart) * features;
#if COLUMNS == 8
    if (count >= 8) {
      done = 8, JOIN(NAME(columns), 8)(&taps, features, x_step, result, result_step, next);
      continue;
    }
#endif
    done = count >= 4 ? 4 : count >= 2 ? 2 : 1;
    if (done == 4) JOIN(NAME(columns), 4)(&taps, features, x_step, result, result_step, next);
    else if (done == 2) JOIN(NAME(columns), 2)(&taps, features, x_step, result, result_step, next);
    else JOIN(NAME(columns), 1)(&taps, features, x_step, result, result_step, next);
  }
}

static void NAME(line)(const DepthwiseWork *w, int64_t number, Ahead *next) {
  const ConvolutionShapes *s = w->shapes;
  float *result = w->result + number * s->output[2] * s->out;
  Line line;
  Columns c;
  line_of(s, number, &line);
  for (int64_t first = 0; first < kinds_of_columns(s); first++) {
    columns_of(s, first, &c);
    for (int64_t at = 0; at < c.inner; at++) NAME(columns)(w, result, &line, &c, at, 1, next);
    NAME(columns)(w, result, &line, &c, c.inner, c.inner_end - c.inner, next);
    for (int64_t at = c.inner_end; at < c.count; at++) NAME(columns)(w, result, &line, &c, at, 1, next);
  }
}

// Computes lines of the result that follow each other.
static void NAME(depthwise_lines)(const void *data, long number, long last) {
  const DepthwiseWork *w = data;
  const ConvolutionShapes *s = w->shapes;
  const int64_t row = s->input[2] * s->out, portions = 1 + s->output[2] * s->out / (16 * COLUMNS * WIDE);
  for (; number < last; number++) {
    Ahead next = {0};
    if (number + 1 < last) {
      const int64_t from = seen_until(s, number), to = seen_until(s, number + 1);
      if (to > from) next = ahead_of(w->x + from * row, 1, 0, (to - from) * row, portions);
    }
    NAME(line)(w, number, &next);
  }
}

#undef V
#undef COLUMNS
#undef WIDE
#undef INLINE
#undef UNROLL
