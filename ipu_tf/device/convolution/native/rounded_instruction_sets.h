// As instruction_sets.h; each operation is rounded: no multiplication is joined with an addition, so that results are the
// same for all of them.
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#include "instruction_sets.h"
#ifndef __clang__
#pragma GCC pop_options
#endif
