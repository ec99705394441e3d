// Writes a line of the cache, of AVX-512's width, to memory without reading it first; what was written so is seen by
// other threads from WRITES_ARE_SEEN on.
#ifndef IPU_TF_PAST_CACHES_H
#define IPU_TF_PAST_CACHES_H

#if defined(__x86_64__)
typedef float WholeLine __attribute__((vector_size(64)));
#ifdef __clang__
#define WRITE_PAST_CACHES(to, line) __builtin_nontemporal_store((WholeLine)(line), (WholeLine *)(to))
#else
#define WRITE_PAST_CACHES(to, line) __builtin_ia32_movntps512(to, (WholeLine)(line))
#endif
#define WRITES_ARE_SEEN() __builtin_ia32_sfence()
#else
#define WRITES_ARE_SEEN() ((void)0)
#endif

#endif
