// Shapes of a product with packed weights, as the call's attribute has them: `packed_product.py` writes it.
//
//   x         [rows, inner]                float32
//   weights   [inner, columns] or, turned, [columns, inner], of int8; of 4 bits each byte has two neighbours of the
//             last axis, the first in its lower half
//   result    [rows, columns]              x times weights: float32, or int32 where x and the result are whole numbers
//
// With groups, of `block` of the inner axis each, there are for each group and column a scale and a zero:
//
//   result[r, c] = sum over inner k of x[r, k] * (weights[k, c] - zero[k / block, c]) * scale[k / block, c]
//
// which takes sums[r, g], of x over the group, so that the inner loop is the same for all; where such a sum is not finite,
// zeros are subtracted from the weights instead. Scale and zero are [groups, columns], turned [columns, groups]. Turned,
// x is padded with zeros to a multiple of UNIT; of 4 bits, each row of it has the even places first and then the odd ones.
#ifndef IPU_TF_PACKED_SHAPES_H
#define IPU_TF_PACKED_SHAPES_H

#include <stdint.h>

typedef struct Shapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t rows, inner, columns;
  int64_t bits;    // of a weight: 4 or 8
  int64_t turned;  // whether a column's weights lie one after the other
  int64_t block;   // of the inner axis in a group; 0 without groups
  int64_t whole;   // whether the result is of int32
  int64_t parts;   // into which the columns are cut
} Shapes;

enum { SHAPE_WORDS = sizeof(Shapes) / sizeof(int64_t) };
enum { UNIT = 32 };     // columns, or turned, places of the inner axis, that are computed together
enum { TILE = 512 };    // columns whose sums stay in the first cache
enum { FEW = 64 };      // columns whose weights, turned, do
enum { DEEP = 16 };     // lines of the weights that are read beside each other
enum { AHEAD = 2 * DEEP, AHEAD_BYTES = 2048 };  // of lines, and along a line, that memory is asked for early
enum { MOST_ROWS = 8 }; // of x at a time
// Products of two int8 whose sum is exact in float32: 2**24 / 2**14.
enum { EXACT = 1024 };

typedef struct Packed {
  const Shapes *shapes;
  const float *x, *scale, *sums;
  const int8_t *weights, *zero;
  void *result;
} Packed;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t line_bytes(const Shapes *s) {
  const int64_t last = s->turned ? s->inner : s->columns;
  return s->bits == 4 ? ceiling(last, 2) : last;
}
static inline int64_t x_line(const Shapes *s) { return s->turned ? ceiling(s->inner, UNIT) * UNIT : s->inner; }
static inline int64_t groups_of(const Shapes *s) { return s->block ? ceiling(s->inner, s->block) : 1; }
// Places of the inner axis whose products are summed in float32 before they go into the result.
static inline int64_t stretch_of(const Shapes *s) { return s->block ? s->block : EXACT; }

#endif
