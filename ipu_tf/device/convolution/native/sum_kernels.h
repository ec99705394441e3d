// Sums of a slice of terms, for one instruction set: NAME gives the names.
#include "column_sums.h"

// Adds the sums of `terms` rows of `groups` vectors of columns to `sums`.
INLINE void NAME(tile)(const float *x, int64_t terms, int64_t line, double *sums, const int groups, const int rows) {
  V total[MOST_GROUPS];
  NAME(sum)(x, terms, line, total, groups, rows);
  for (int group = 0; group < groups; group++)
    for (int lane = 0; lane < 16; lane++) sums[16 * group + lane] += total[group][lane];
}

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
    for (; c + 64 <= columns; c += 64) NAME(tile)(from + c, rows, line, sums + c, 4, 2);
    for (; c + 32 <= columns; c += 32) NAME(tile)(from + c, rows, line, sums + c, 2, 4);
    for (; c + 16 <= columns; c += 16) NAME(tile)(from + c, rows, line, sums + c, 1, 8);
    if (c < columns) NAME(narrow)(from + c, rows, columns - c, line, sums + c);
  }
  for (int64_t c = 0; c < columns; c++) out[c] = (float)sums[c];
}

// Sums floats that lie one after the other: BLOCK times four vectors at a time, then what is left, one by one.
static float NAME(row)(const float *x, int64_t terms) {
  double total = 0;
  const int64_t whole = terms / 64 * 64;
  for (int64_t i = 0; i < whole;) {
    V each[4] = {{0}};
    for (const int64_t end = whole - i < 64 * BLOCK ? whole : i + 64 * BLOCK; i < end; i += 64)
      for (int v = 0; v < 4; v++) each[v] += *(const V *)(x + i + 16 * v);
    total += NAME(lanes_sum)((each[0] + each[1]) + (each[2] + each[3]));
  }
  for (int64_t i = whole; i < terms; i++) total += x[i];
  return (float)total;
}

// Computes a part of a call: a slice of the terms, for some of what is before them.
static void NAME(sum_part)(const void *data, long part) {
  const SumWork *w = data;
  const SumShapes *s = w->shapes;
  const int64_t slice = part / s->cuts, cut = part % s->cuts;
  const int64_t first = slice_begin(s, slice), last = slice_begin(s, slice + 1);
  for (int64_t b = cut_begin(s, cut); b < cut_begin(s, cut + 1); b++) {
    const float *x = w->x + (b * s->terms + first) * s->after;
    float *out = w->sums + (slice * s->before + b) * s->after;
    if (s->after == 1) *out = NAME(row)(x, last - first);
    else
      for (int64_t c = 0; c < s->after; c += PANEL)
        NAME(panel)(x + c, last - first, s->after - c < PANEL ? s->after - c : PANEL, s->after, out + c);
  }
}

#undef V
#undef INLINE
