// The sums of one part, for one instruction set. Included once for each, which defines
//   LANES  floats of a vector          CHANNELS  features in whose sums are held in registers
//   NAME(x)  x with the set's suffix   MASK, mask_of(n), load_some(pointer, mask)   loads of the first n lanes only
// Vectors are those of GCC and Clang: `a += b * c` is a fused multiply-add where there is one.

typedef float NAME(V) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#define V NAME(V)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

// Adds to the bias's sums what a unit gives to features [from, to) of g.
static void NAME(bias)(const Geometry *s, const float *g, Unit u, int64_t from, int64_t to, float *sums) {
  for (int64_t f = from; f < to; f += LANES) {
    MASK mask = mask_of(least(to - f, LANES));
    V total[4] = {*(V *)(sums + f - from)};
    for (int64_t plane = u.plane; plane < u.plane_end; plane++)
      for (int64_t row = u.row; row < u.row_end; row++) {
        const float *at = g + ((plane * s->output[1] + row) * s->output[2] + u.column) * s->out + f;
        int64_t i = 0, count = u.column_end - u.column;
        for (; i + 4 <= count; i += 4)
          UNROLL for (int j = 0; j < 4; j++) total[j] += load_some(at + (i + j) * s->out, mask);
        for (; i < count; i++) total[0] += load_some(at + i * s->out, mask);
      }
    *(V *)(sums + f - from) = (total[0] + total[1]) + (total[2] + total[3]);
  }
}

// What a block of sums is of: taps (depth, row, column ... column + taps) of channels of x, and vectors of g.
typedef struct NAME(Block) {
  const float *x, *g;  // at the first channel, at the first feature
  float *sums;
  int64_t tap[3];
  MASK mask;           // of the last vector
  NextUnit *next;      // is fetched meanwhile, a portion for each row
} NAME(Block);

INLINE void NAME(dense_block)(const Geometry *s, const NAME(Block) *b, Unit u, const int taps, const int channels,
                              const int vectors) {
  const int64_t in = s->in, out = s->out, wide = s->input[2], width = sum_width(s);
  const int64_t step = s->step[2], reach = s->reach[2], first = b->tap[2] * reach - s->low[2];
  const int64_t line = in_of_group(s) * width;
  const MASK mask = b->mask;
  V total[3 * CHANNELS][2];
  UNROLL for (int t = 0; t < taps; t++)
    UNROLL for (int c = 0; c < channels; c++)
      UNROLL for (int v = 0; v < vectors; v++) total[t * channels + c][v] = *(V *)(b->sums + t * line + c * width + v * LANES);
  // Columns of the result for which every tap is inside of x: [from, to). Those beside them are looked at one by one.
  int64_t from = first < 0 ? ceiling(-first, step) : 0;
  int64_t room = wide - 1 - (taps - 1) * reach - first;
  int64_t to = room < 0 ? 0 : room / step + 1;
  from = least(most(from, u.column), u.column_end);
  to = most(least(to, u.column_end), from);
  for (int64_t plane = u.plane; plane < u.plane_end; plane++) {
    const int64_t z = plane % s->output[0] * s->step[0] + b->tap[0] * s->reach[0] - s->low[0];
    if (z < 0 || z >= s->input[0]) continue;
    for (int64_t row = u.row; row < u.row_end; row++) {
      prefetch(b->next);
      const int64_t y = row * s->step[1] + b->tap[1] * s->reach[1] - s->low[1];
      if (y < 0 || y >= s->input[1]) continue;
      const float *x = b->x + (((plane / s->output[0]) * s->input[0] + z) * s->input[1] + y) * wide * in + first * in;
      const float *g = b->g + (plane * s->output[1] + row) * s->output[2] * out;
      for (int64_t o = from; o < to; o++) {
        V upstream[2];
        UNROLL for (int v = 0; v < vectors; v++)
          upstream[v] = v == vectors - 1 ? load_some(g + o * out + v * LANES, mask) : *(V *)(g + o * out + v * LANES);
        UNROLL for (int t = 0; t < taps; t++)
          UNROLL for (int c = 0; c < channels; c++) {
            const float value = x[(o * step + t * reach) * in + c];
            UNROLL for (int v = 0; v < vectors; v++) total[t * channels + c][v] += value * upstream[v];
          }
      }
      for (int64_t o = u.column; o < u.column_end; o++) {
        if (o == from) o = to;
        if (o >= u.column_end) break;
        UNROLL for (int t = 0; t < taps; t++) {
          const int64_t at = o * step + t * reach;
          if (at + first < 0 || at + first >= wide) continue;
          UNROLL for (int c = 0; c < channels; c++) {
            const float value = x[at * in + c];
            UNROLL for (int v = 0; v < vectors; v++)
              total[t * channels + c][v] += value * (v == vectors - 1 ? load_some(g + o * out + v * LANES, mask)
                                                                      : *(V *)(g + o * out + v * LANES));
          }
        }
      }
    }
  }
  UNROLL for (int t = 0; t < taps; t++)
    UNROLL for (int c = 0; c < channels; c++)
      UNROLL for (int v = 0; v < vectors; v++) *(V *)(b->sums + t * line + c * width + v * LANES) = total[t * channels + c][v];
}

#define CASE(t, c, v) \
  case (t) * 1000 + (c) * 10 + (v): NAME(dense_block)(s, b, u, t, c, v); break;
#define CASES(t, v) CASE(t, 1, v) CASE(t, 2, v) CASES_OF_MORE(t, v)
#if CHANNELS == 4
#define CASES_OF_MORE(t, v) CASE(t, 3, v) CASE(t, 4, v)
#else
#define CASES_OF_MORE(t, v)
#endif
static __attribute__((noinline)) void NAME(dense_dispatch)(const Geometry *s, const NAME(Block) *b, Unit u, int taps,
                                                           int channels, int vectors) {
  switch (taps * 1000 + channels * 10 + vectors) {
    CASES(1, 1) CASES(2, 1) CASES(3, 1) CASES(1, 2) CASES(2, 2) CASES(3, 2)
    CASE(1, 2 * CHANNELS, 1) CASE(1, 2 * CHANNELS, 2) CASE(1, 3 * CHANNELS, 1) CASE(1, 3 * CHANNELS, 2)
  }
}
#undef CASES_OF_MORE

// Returns how many of the channels left a block takes: there is room for more of them if it has one tap only.
static int NAME(channels_of_block)(int64_t left, int taps) {
  if (taps > 1 || left <= CHANNELS) return least(left, CHANNELS);
  return least(left / CHANNELS, 3) * CHANNELS;
}

// Adds what a unit gives to channels [from, to) of a group.
static void NAME(dense_unit)(const Work *w, Unit u, float *sums, int64_t group, int64_t from, int64_t to,
                             NextUnit *next) {
  const Geometry *s = w->geometry;
  const int64_t features = sum_features(s), in = in_of_group(s), width = sum_width(s);
  for (int64_t f = 0, vectors; f < features; f += vectors * LANES) {
    vectors = features - f > LANES ? 2 : 1;
    NAME(Block) b = {.mask = mask_of(least(features - f - (vectors - 1) * LANES, LANES)),
                     .g = w->g + group * features + f,
                     .next = next};
    for (int64_t d = 0; d < s->window[0]; d++)
      for (int64_t y = 0; y < s->window[1]; y++)
        for (int64_t x = 0; x < s->window[2]; x += 3)
          for (int64_t c = from, channels; c < to; c += channels) {
            const int taps = least(s->window[2] - x, 3);
            channels = NAME(channels_of_block)(to - c, taps);
            const int64_t tap = (d * s->window[1] + y) * s->window[2] + x;
            b.tap[0] = d, b.tap[1] = y, b.tap[2] = x;
            b.x = w->x + group * in + c;
            b.sums = sums + (tap * in + c) * width + group * sum_stride(s) + f;
            NAME(dense_dispatch)(s, &b, u, taps, channels, vectors);
          }
  }
}

// Returns the number of a unit's blocks of sums, for so many times four channels.
static int64_t NAME(dense_blocks)(const Geometry *s, int64_t fours) {
  const int64_t features = ceiling(sum_features(s), 2 * LANES), taps = s->window[1] * ceiling(s->window[2], 3);
  return features * s->window[0] * taps * ceiling(fours * 4, s->window[2] > 1 ? CHANNELS : 3 * CHANNELS);
}

// Channels of all groups, four at a time, are dealt out to the bands.
static void NAME(dense_part)(const Work *w, int64_t slice, int64_t band) {
  const Geometry *s = w->geometry;
  const int64_t in = in_of_group(s), blocks = ceiling(in, 4), units = unit_count(s), width = sum_width(s);
  const int64_t first = s->groups * blocks * band / s->bands, last = s->groups * blocks * (band + 1) / s->bands;
  float *sums = w->sums + slice * sum_size(s);
  for (int64_t block = first; block < last; block++)
    for (int64_t tap = 0; tap < sum_lines(s); tap += in)
      for (int64_t c = block % blocks * 4; c < least(in, block % blocks * 4 + 4); c++)
        for (int64_t f = 0; f < sum_stride(s); f += LANES)
          *(V *)(sums + (tap + c) * width + block / blocks * sum_stride(s) + f) = (V){0};
  float *bias = sums + sum_lines(s) * width;
  const int64_t bias_first = s->groups * band / s->bands, bias_last = s->groups * (band + 1) / s->bands;
  if (w->bias)
    for (int64_t f = bias_first * sum_stride(s); f < bias_last * sum_stride(s); f += LANES) *(V *)(bias + f) = (V){0};
  for (int64_t unit = units * slice / s->slices; unit < units * (slice + 1) / s->slices; unit++) {
    const Unit u = unit_at(s, unit);
    if (w->bias)
      for (int64_t group = bias_first; group < bias_last; group++)
        NAME(bias)(s, w->g, u, group * sum_features(s), (group + 1) * sum_features(s), bias + group * sum_stride(s));
    NextUnit next = {0};
    const int64_t portions = NAME(dense_blocks)(s, last - first) * (u.plane_end - u.plane) * (u.row_end - u.row);
    if (band == 0 && unit + 1 < units) next = next_unit(w, unit_at(s, unit + 1), portions);
    for (int64_t block = first; block < last;) {
      const int64_t group = block / blocks, end = least(last, (group + 1) * blocks);
      NAME(dense_unit)(w, u, sums, group, block % blocks * 4, least(in, (end - group * blocks) * 4), &next);
      block = end;
    }
  }
}

// Writes the x of one plane that a unit's windows see, for features [f, f + LANES) out: [rows][columns][LANES].
static void NAME(pack)(const Geometry *s, const float *x, int64_t y0, int64_t rows, int64_t x0, int64_t columns,
                       int64_t f, int64_t feature, int64_t to_next, float *packed) {
  const int64_t in = in_of_group(s), out = s->out / s->groups, lanes = least(s->out - f, LANES);
  int64_t channel[LANES];
  for (int64_t lane = 0; lane < lanes; lane++) channel[lane] = (f + lane) / out * in + feature;
  const int contiguous = in == 1 && out == 1;
  const MASK mask = mask_of(lanes);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column++, packed += LANES) {
      const int64_t y = y0 + row, at = x0 + column;
      const float *from = x + (y * s->input[2] + at) * s->in;
      V value = {0};
      PREFETCH(from + f + to_next);
      if (y >= 0 && y < s->input[1] && at >= 0 && at < s->input[2]) {
        if (contiguous) value = load_some(from + f, mask);
        else
          for (int64_t lane = 0; lane < lanes; lane++) value[lane] = from[channel[lane]];
      }
      *(V *)packed = value;
    }
}

// Adds what rows of g and a packed x give to taps [rows][columns].
INLINE void NAME(by_feature_block)(const Geometry *s, const float *packed, int64_t packed_row, const float *g,
                                   int64_t rows, int64_t columns, int64_t to_next, float *sums, MASK mask,
                                   const int down, const int across) {
  const int64_t line = in_of_group(s) * sum_width(s), step = s->step[2] * LANES, reach = s->reach[2] * LANES;
  V total[3][5];
  UNROLL for (int t = 0; t < down; t++)
    UNROLL for (int c = 0; c < across; c++) total[t][c] = *(V *)(sums + (t * s->window[2] + c) * line);
  for (int64_t row = 0; row < rows; row++) {
    const float *x = packed + row * s->step[1] * packed_row, *at = g + row * s->output[2] * s->out;
    for (int64_t column = 0; column < columns; column++) {
      const V upstream = load_some(at + column * s->out, mask);
      PREFETCH(at + column * s->out + to_next);
      UNROLL for (int t = 0; t < down; t++)
        UNROLL for (int c = 0; c < across; c++)
          total[t][c] += *(V *)(x + t * s->reach[1] * packed_row + column * step + c * reach) * upstream;
    }
  }
  UNROLL for (int t = 0; t < down; t++)
    UNROLL for (int c = 0; c < across; c++) *(V *)(sums + (t * s->window[2] + c) * line) = total[t][c];
}

#undef CASE
#undef CASES
#define CASE(t, c) \
  case (t) * 10 + (c): NAME(by_feature_block)(s, packed, packed_row, g, rows, columns, to_next, sums, mask, t, c); break;
#define CASES(c) CASE(1, c) CASE(2, c) CASE(3, c)
static __attribute__((noinline)) void NAME(by_feature_dispatch)(const Geometry *s, const float *packed,
                                                                int64_t packed_row, const float *g, int64_t rows,
                                                                int64_t columns, int64_t to_next, float *sums,
                                                                MASK mask, int down, int across) {
  switch (down * 10 + across) { CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) }
}

static void NAME(by_feature_unit)(const Work *w, Unit u, float *sums, int64_t f, float *packed) {
  const Geometry *s = w->geometry;
  const int64_t rows = u.row_end - u.row, columns = u.column_end - u.column, in = in_of_group(s);
  const int64_t packed_rows = (rows - 1) * s->step[1] + (s->window[1] - 1) * s->reach[1] + 1;
  const int64_t packed_columns = (columns - 1) * s->step[2] + (s->window[2] - 1) * s->reach[2] + 1;
  const MASK mask = mask_of(least(s->out - f, LANES));
  for (int64_t plane = u.plane; plane < u.plane_end; plane++)
    for (int64_t d = 0; d < s->window[0]; d++) {
      const int64_t z = plane % s->output[0] * s->step[0] + d * s->reach[0] - s->low[0];
      if (z < 0 || z >= s->input[0]) continue;
      const float *x = w->x + (plane / s->output[0] * s->input[0] + z) * s->input[1] * s->input[2] * s->in;
      const float *g = w->g + ((plane * s->output[1] + u.row) * s->output[2] + u.column) * s->out + f;
      for (int64_t feature = 0; feature < in; feature++) {
        NAME(pack)(s, x, u.row * s->step[1] - s->low[1], packed_rows, u.column * s->step[2] - s->low[2],
                   packed_columns, f, feature, to_next_x(s, u), packed);
        for (int64_t y = 0; y < s->window[1]; y += 3)
          for (int64_t c = 0; c < s->window[2]; c += 5)
            NAME(by_feature_dispatch)(
                s, packed + (y * s->reach[1] * packed_columns + c * s->reach[2]) * LANES, packed_columns * LANES, g,
                rows, columns, to_next_g(s, u),
                sums + (((d * s->window[1] + y) * s->window[2] + c) * in + feature) * sum_width(s) + f, mask,
                least(s->window[1] - y, 3), least(s->window[2] - c, 5));
      }
    }
}

// Features out, sixteen at a time, are dealt out to the bands.
static void NAME(by_feature_part)(const Work *w, int64_t slice, int64_t band) {
  const Geometry *s = w->geometry;
  const int64_t blocks = sum_width(s) / PAD, units = unit_count(s), width = sum_width(s);
  const int64_t first = blocks * band / s->bands * PAD, last = blocks * (band + 1) / s->bands * PAD;
  float *sums = w->sums + slice * sum_size(s), *bias = sums + sum_lines(s) * width;
  float packed[PACKED] __attribute__((aligned(64)));
  for (int64_t line = 0; line <= sum_lines(s); line++)
    for (int64_t f = first; f < last; f += LANES) *(V *)(sums + line * width + f) = (V){0};
  for (int64_t unit = units * slice / s->slices; unit < units * (slice + 1) / s->slices; unit++) {
    const Unit u = unit_at(s, unit);
    if (w->bias) NAME(bias)(s, w->g, u, first, least(last, s->out), bias + first);
    for (int64_t f = first; f < least(last, s->out); f += LANES) NAME(by_feature_unit)(w, u, sums, f, packed);
  }
}

static void NAME(part)(const void *data, long part) {
  const Work *w = data;
  const int64_t slice = part / w->geometry->bands, band = part % w->geometry->bands;
  if (w->geometry->by_feature) NAME(by_feature_part)(w, slice, band);
  else NAME(dense_part)(w, slice, band);
}

#undef V
#undef CASE
#undef CASES
#undef INLINE
#undef UNROLL
#undef LANES
#undef CHANNELS
#undef NAME
#undef MASK
#undef mask_of
#undef load_some
