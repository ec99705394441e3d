// Sums of a slice of terms, for one instruction set: NAME gives the names. Vectors are of 16 floats for all of them,
// so that each sum is added up in the same order and results do not depend on the instruction set.

// Adds the sums of `terms` rows of `GROUPS * 16` columns to `sums`; ROWS rows of them have sums of their own.
#define TILE(GROUPS, ROWS)                                                                                   \
  static void JOIN(NAME(tile), GROUPS)(const float *x, int64_t terms, int64_t line, double *sums) {          \
    SumV each[ROWS][GROUPS] = {{{0}}};                                                                       \
    int64_t term = 0;                                                                                        \
    for (; term + ROWS <= terms; term += ROWS)                                                               \
      for (int row = 0; row < ROWS; row++)                                                                   \
        for (int group = 0; group < GROUPS; group++)                                                         \
          each[row][group] += *(const SumV *)(x + (term + row) * line + 16 * group);                         \
    for (; term < terms; term++)                                                                             \
      for (int group = 0; group < GROUPS; group++) each[0][group] += *(const SumV *)(x + term * line + 16 * group); \
    for (int group = 0; group < GROUPS; group++)                                                             \
      for (int row = 1; row < ROWS; row++) each[0][group] += each[row][group];                               \
    for (int group = 0; group < GROUPS; group++)                                                             \
      for (int lane = 0; lane < 16; lane++) sums[16 * group + lane] += each[0][group][lane];                 \
  }
TILE(1, 8)
TILE(2, 4)
TILE(4, 2)
#undef TILE

// Adds the sums of `terms` rows of fewer than 16 columns to `sums`.
static void NAME(narrow)(const float *x, int64_t terms, int64_t columns, int64_t line, double *sums) {
  float each[16] = {0};
  for (int64_t term = 0; term < terms; term++)
    for (int64_t column = 0; column < columns; column++) each[column] += x[term * line + column];
  for (int64_t column = 0; column < columns; column++) sums[column] += each[column];
}

// Sums `terms` rows of at most PANEL columns, which are `line` floats apart.
static void NAME(panel)(const float *x, int64_t terms, int64_t columns, int64_t line, float *out) {
  double sums[PANEL] = {0};
  for (int64_t term = 0; term < terms; term += BLOCK) {
    const int64_t rows = terms - term < BLOCK ? terms - term : BLOCK;
    const float *from = x + term * line;
    int64_t c = 0;
    for (; c + 64 <= columns; c += 64) JOIN(NAME(tile), 4)(from + c, rows, line, sums + c);
    for (; c + 32 <= columns; c += 32) JOIN(NAME(tile), 2)(from + c, rows, line, sums + c);
    for (; c + 16 <= columns; c += 16) JOIN(NAME(tile), 1)(from + c, rows, line, sums + c);
    if (c < columns) NAME(narrow)(from + c, rows, columns - c, line, sums + c);
  }
  for (int64_t c = 0; c < columns; c++) out[c] = (float)sums[c];
}

// Sums floats that lie one after the other: BLOCK times four vectors at a time, then what is left, one by one.
static float NAME(row)(const float *x, int64_t terms) {
  double total = 0;
  const int64_t whole = terms / 64 * 64;
  for (int64_t i = 0; i < whole;) {
    SumV each[4] = {{0}};
    for (const int64_t end = whole - i < 64 * BLOCK ? whole : i + 64 * BLOCK; i < end; i += 64)
      for (int v = 0; v < 4; v++) each[v] += *(const SumV *)(x + i + 16 * v);
    SumV lanes = (each[0] + each[1]) + (each[2] + each[3]);
    for (int half = 8; half; half /= 2)
      for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    total += lanes[0];
  }
  for (int64_t i = whole; i < terms; i++) total += x[i];
  return (float)total;
}

// Computes a part of a call: a slice of the terms, for some of what is before them.
static void NAME(sum_part)(const void *data, long part) {
  const SumWork *w = data;
  const SumShapes *s = w->shapes;
  const int64_t slice = part / s->cuts, cut = part % s->cuts;
  const int64_t first = s->terms * slice / s->slices, last = s->terms * (slice + 1) / s->slices;
  for (int64_t b = s->before * cut / s->cuts; b < s->before * (cut + 1) / s->cuts; b++) {
    const float *x = w->x + (b * s->terms + first) * s->after;
    float *out = w->sums + (slice * s->before + b) * s->after;
    if (s->after == 1) *out = NAME(row)(x, last - first);
    else
      for (int64_t c = 0; c < s->after; c += PANEL)
        NAME(panel)(x + c, last - first, s->after - c < PANEL ? s->after - c : PANEL, s->after, out + c);
  }
}
