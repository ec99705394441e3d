// Layer normalisation of some rows, for one instruction set: NAME gives the names.
#include "row_moments.h"

// Writes a row times `gamma * inverse`, moved so that its mean is `beta`.
static void NAME(normalize)(const LayerWork *w, int64_t row, float mean, float inverse) {
  const int64_t columns = w->shapes->columns, whole = columns / 16 * 16;
  const float *x = w->x + row * columns;
  float *result = w->result + row * columns;
  for (int64_t c = 0; c < whole; c += 16) {
    const V scale = inverse * *(const V *)(w->gamma + c);
    *(V *)(result + c) = *(const V *)(x + c) * scale + (-mean * scale + *(const V *)(w->beta + c));
  }
  for (int64_t c = whole; c < columns; c++) {
    const float scale = inverse * w->gamma[c];
    result[c] = x[c] * scale + (-mean * scale + w->beta[c]);
  }
}

// Computes some rows. Each step is done for all of them before the next one: a step waits for its own results in the row.
static void NAME(few_rows)(const LayerWork *w, int64_t row, int64_t rows, float epsilon) {
  const float columns = (float)w->shapes->columns;
  float mean[LAYER_ROWS], inverse[LAYER_ROWS];
  for (int64_t r = 0; r < rows; r++) {
    double sum, square;
    NAME(of_row)(w->x + (row + r) * w->shapes->columns, w->shapes->columns, &sum, &square);
    w->sums[row + r] = (float)sum, w->squares[row + r] = (float)square;
  }
  for (int64_t r = 0; r < rows; r++) {
    mean[r] = w->sums[row + r] / columns;
    inverse[r] = 1.0f / sqrtf(w->squares[row + r] / columns + epsilon);
  }
  for (int64_t r = 0; r < rows; r++) NAME(normalize)(w, row + r, mean[r], inverse[r]);
}

static void NAME(layer_rows)(const void *data, long row, long end) {
  const LayerWork *w = data;
  const float epsilon = row_number(w->shapes);
  for (; row < end; row += LAYER_ROWS)
    NAME(few_rows)(w, row, end - row < LAYER_ROWS ? end - row : LAYER_ROWS, epsilon);
}

#undef V
#undef INLINE
