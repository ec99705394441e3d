// Moments of a slice of terms, for one instruction set: NAME gives the names.
#include "row_moments.h"

// Sets the moments of a block of `groups` vectors of columns.
INLINE void NAME(block)(const float *x, int64_t terms, int64_t line, double *sums, double *squares, const int groups,
                        const int rows) {
  V means[MOST_GROUPS], aparts[MOST_GROUPS], squareds[MOST_GROUPS];
  NAME(sum)(x, terms, line, means, groups, rows);
  for (int group = 0; group < groups; group++) means[group] /= (float)terms;
  NAME(sum_distances)(x, terms, line, means, aparts, squareds, groups, rows);
  NAME(exact)((float *)means, (float *)aparts, (float *)squareds, terms, 16 * groups, sums, squares);
}

// The same of fewer than 16 columns.
static void NAME(narrow)(const float *x, int64_t terms, int64_t columns, int64_t line, double *sums, double *squares) {
  float means[16] = {0}, aparts[16] = {0}, squareds[16] = {0};
  for (int64_t term = 0; term < terms; term++)
    for (int64_t c = 0; c < columns; c++) means[c] += x[term * line + c];
  for (int64_t c = 0; c < columns; c++) means[c] /= (float)terms;
  for (int64_t term = 0; term < terms; term++)
    for (int64_t c = 0; c < columns; c++) {
      const float distance = x[term * line + c] - means[c];
      aparts[c] += distance;
      squareds[c] += distance * distance;
    }
  NAME(exact)(means, aparts, squareds, terms, columns, sums, squares);
}

// Adds a block of columns to moments. Returns how many columns.
static int64_t NAME(add_block)(const float *x, int64_t terms, int64_t columns, int64_t line, Moments *to) {
  double sums[16 * MOST_GROUPS], squares[16 * MOST_GROUPS];
  int64_t width = columns;
  if (columns >= 64) width = 64, NAME(block)(x, terms, line, sums, squares, 4, 2);
  else if (columns >= 32) width = 32, NAME(block)(x, terms, line, sums, squares, 2, 4);
  else if (columns >= 16) width = 16, NAME(block)(x, terms, line, sums, squares, 1, 8);
  else NAME(narrow)(x, terms, columns, line, sums, squares);
  put_together(to, sums, squares, terms, width);
  return width;
}

// Computes the moments of `terms` rows of all columns.
static void NAME(moments)(const float *x, int64_t terms, int64_t columns, double *sums, double *squares) {
  for (int64_t c = 0; c < columns; c++) sums[c] = squares[c] = 0;
  for (int64_t term = 0; term < terms; term += BLOCK) {
    const int64_t rows = terms - term < BLOCK ? terms - term : BLOCK;
    for (int64_t c = 0; c < columns;) {
      Moments to = {sums + c, squares + c, term};
      c += NAME(add_block)(x + term * columns + c, rows, columns - c, columns, &to);
    }
  }
}

// Computes a part of a call: a slice of the terms, for some of what is before them.
static void NAME(moments_part)(const void *data, long part) {
  const MomentsWork *w = data;
  const SumShapes *s = w->shapes;
  const int64_t slice = part / s->cuts, cut = part % s->cuts;
  const int64_t first = slice_begin(s, slice), last = slice_begin(s, slice + 1);
  for (int64_t b = cut_begin(s, cut); b < cut_begin(s, cut + 1); b++) {
    const int64_t at = (slice * s->before + b) * s->after, count = last - first;
    const float *x = w->x + (b * s->terms + first) * s->after;
    if (s->after == 1) NAME(of_row)(x, count, w->sums + at, w->squares + at);
    else NAME(moments)(x, count, s->after, w->sums + at, w->squares + at);
  }
}

#undef V
#undef INLINE
