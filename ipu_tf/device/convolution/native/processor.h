// Which instruction set a call uses: 0 plain vectors, 1 AVX2, 2 AVX-512. What is made for each has its name at the end.
#ifndef IPU_TF_PROCESSOR_H
#define IPU_TF_PROCESSOR_H

#include <stdint.h>

#if !defined(__GNUC__) || (!defined(__clang__) && __GNUC__ < 11)
#error "GCC 11 or newer, or Clang, is needed, for their vectors and attributes"
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#if defined(__x86_64__)
#define HAS_X86 1
#define OF_EACH_SET(name) {JOIN(name, plain), JOIN(name, avx2), JOIN(name, avx512)}
#else
#define OF_EACH_SET(name) {JOIN(name, plain)}
#endif

// Returns the most capable instruction set of this processor.
static inline int processor_level(void) {
#ifdef HAS_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return __builtin_cpu_supports("avx512f") ? 2 : 1;
#endif
  return 0;
}

// Returns the most capable one that is not above a level: an index of OF_EACH_SET.
static inline int level_within(int64_t most) {
  const int level = processor_level();
  return most >= level ? level : most > 0 ? (int)most : 0;
}

#endif
