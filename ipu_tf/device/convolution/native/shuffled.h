// SHUFFLED(a, b, ...): lanes of two vectors of floats, by their numbers; those of b follow those of a. GCC has Clang's
// builtin from 12 on, and before that one of its own.
#ifndef IPU_TF_SHUFFLED_H
#define IPU_TF_SHUFFLED_H

#include <stdint.h>

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...)                                       \
  __extension__({                                                 \
    typedef int32_t Lanes __attribute__((vector_size(sizeof(a)))); \
    __builtin_shuffle(a, b, (Lanes){__VA_ARGS__});                \
  })
#endif

#endif
