// Includes the file KERNELS for each instruction set; in it NAME gives the names. With ALL_OF_AVX512 it may use more of
// AVX-512 than its foundation, for which the caller has to ask the processor.
#include "processor.h"

#ifdef HAS_X86
#ifdef __clang__
#ifdef ALL_OF_AVX512
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#endif
#else
#pragma GCC push_options
#ifdef ALL_OF_AVX512
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")
#else
#pragma GCC target("avx512f,avx2,fma")
#endif
#endif
#define NAME(x) JOIN(x, avx512)
#include KERNELS
#undef NAME
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(x) JOIN(x, avx2)
#include KERNELS
#undef NAME
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define NAME(x) JOIN(x, plain)
#include KERNELS
#undef NAME
