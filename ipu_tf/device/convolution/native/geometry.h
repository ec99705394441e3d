// Geometry of a filter gradient, and its partition, as the call's attribute has them: `filter_gradient.py` writes it.
//
//   x         [images, depth, height, width, features in]        the convolution's input
//   g         [images, OD, OH, OW, features out]                 the gradient of its result
//   filters   [KD, KH, KW, features in of a group, features out]
//
//   filters[k, c, f] = sum over images n and positions o of x[n, o * step + k * reach - low, c'] * g[n, o, f],
//
// c' being the feature c of the group that f belongs to. Positions outside of x count as zero.
#ifndef IPU_TF_GEOMETRY_H
#define IPU_TF_GEOMETRY_H

#include "sizes.h"

typedef struct Geometry {
  int64_t level;         // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t by_feature;    // whether x is written out for each feature out: depthwise, and small groups
  int64_t images, groups, in, out;
  int64_t input[3], window[3], output[3], step[3], reach[3], low[3];
  int64_t slices;        // into which images and rows are cut, each with sums of its own
  int64_t bands;         // into which features are cut
  int64_t planes, rows, columns;  // of the result, that are worked on at a time and stay in the first cache
} Geometry;

enum { GEOMETRY_WORDS = sizeof(Geometry) / sizeof(int64_t) };
enum { PAD = 16 };       // the features out of a group are padded to a multiple of this in sums
enum { PACKED = 12288 }; // floats of x that are written out at a time

typedef struct Work {
  const Geometry *geometry;
  const float *x, *g;
  float *sums;           // of the first slice; those of the next follow
  float *filters, *bias; // bias may be missing
} Work;

static inline int64_t in_of_group(const Geometry *s) { return s->in / s->groups; }
// Groups and features of each, as the sums have them.
static inline int64_t sum_groups(const Geometry *s) { return s->by_feature ? 1 : s->groups; }
static inline int64_t sum_features(const Geometry *s) { return s->out / sum_groups(s); }
static inline int64_t sum_stride(const Geometry *s) { return ceiling(sum_features(s), PAD) * PAD; }
static inline int64_t sum_width(const Geometry *s) { return sum_groups(s) * sum_stride(s); }
static inline int64_t sum_lines(const Geometry *s) {
  return s->window[0] * s->window[1] * s->window[2] * in_of_group(s);
}
// Floats of a slice's sums: the filters', and one line of the bias's.
static inline int64_t sum_size(const Geometry *s) { return (sum_lines(s) + 1) * sum_width(s); }

// Some positions of the result: planes [plane, plane_end), of which rows and columns.
typedef struct Unit {
  int64_t plane, plane_end, row, row_end, column, column_end;
} Unit;

static inline int64_t unit_count(const Geometry *s) {
  return ceiling(s->images * s->output[0], s->planes) * ceiling(s->output[1], s->rows) *
         ceiling(s->output[2], s->columns);
}

static inline Unit unit_at(const Geometry *s, int64_t index) {
  int64_t across = ceiling(s->output[2], s->columns), down = ceiling(s->output[1], s->rows);
  int64_t column = index % across * s->columns, row = index / across % down * s->rows;
  int64_t plane = index / across / down * s->planes;
  return (Unit){plane, least(plane + s->planes, s->images * s->output[0]),
                row, least(row + s->rows, s->output[1]),
                column, least(column + s->columns, s->output[2])};
}

#endif
