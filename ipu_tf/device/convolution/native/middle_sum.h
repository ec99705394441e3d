// Shapes of sums over the middle axis of x[before, terms, after], and how a call is cut: into `slices` of the terms and
// `cuts` of what is before them, by the shapes alone, so that results do not depend on the number of cores.
#ifndef IPU_TF_MIDDLE_SUM_H
#define IPU_TF_MIDDLE_SUM_H

#include <stdint.h>

typedef struct SumShapes {
  int64_t level;  // the most capable instruction set to use: 0 plain, 1 AVX2, 2 AVX-512
  int64_t before, terms, after;
  int64_t slices, cuts;
} SumShapes;

enum { SUM_WORDS = sizeof(SumShapes) / sizeof(int64_t) };
enum { BLOCK = 64 };                      // terms that are added up in float32
enum { MOST_GROUPS = 4, MOST_ROWS = 8 };  // vectors of columns, and rows with sums of their own

static inline int sum_is_empty(const SumShapes *s) {
  return s->before < 1 || s->terms < 1 || s->after < 1 || s->slices < 1 || s->cuts < 1;
}

static inline int64_t slice_begin(const SumShapes *s, int64_t slice) { return s->terms * slice / s->slices; }
static inline int64_t cut_begin(const SumShapes *s, int64_t cut) { return s->before * cut / s->cuts; }

#endif
