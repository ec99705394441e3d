// Arithmetic with sizes.
#ifndef IPU_TF_SIZES_H
#define IPU_TF_SIZES_H

#include <stdint.h>

static inline int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Returns the product of the sizes of three axes.
static inline int64_t volume(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

#endif
