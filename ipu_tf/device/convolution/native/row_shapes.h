// Shapes of a call that computes something of each row of x[rows, columns]; `row_shapes.py` writes them.
#ifndef IPU_TF_ROW_SHAPES_H
#define IPU_TF_ROW_SHAPES_H

#include <stdint.h>
#include <string.h>

typedef struct RowShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t rows, columns;
  int64_t number;  // the bits of a float
  int64_t parts;
} RowShapes;

enum { ROW_WORDS = sizeof(RowShapes) / sizeof(int64_t) };

static inline float row_number(const RowShapes *s) {
  const uint32_t bits = (uint32_t)s->number;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static inline int rows_are_wrong(const RowShapes *s) {
  return s->rows < 1 || s->columns < 1 || s->parts < 1 || s->rows > INT64_MAX / s->columns;
}

#endif
