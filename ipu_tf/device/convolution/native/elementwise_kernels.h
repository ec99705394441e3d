// Instructions over the elements of a block, for one instruction set: NAME gives the names. The compiler makes vectors
// of these loops. Truth values are 0 and -1 in 32 bits, in registers; bytes 0 and 1 in memory.
//
// The order is that of `INSTRUCTIONS` in ipu_tf/device/elementwise/instructions.py.

#define KERNEL(name) \
  static void NAME(name)(float *to, const float *a, const float *b, const float *c, int64_t n)
#define EACH INDEPENDENT for (int64_t i = 0; i < n; i++)

// Instructions of two operands: both of the block's elements, or one of them a scalar.
#define BINARY(name, result)                                                           \
  KERNEL(name##_vv) { (void)c; EACH { const float x = a[i], y = b[i]; to[i] = result; } } \
  KERNEL(name##_vs) { (void)c; const float y = *b; EACH { const float x = a[i]; to[i] = result; } } \
  KERNEL(name##_sv) { (void)c; const float x = *a; EACH { const float y = b[i]; to[i] = result; } }
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(max, x > y || x != x ? x : y)  // NaN if x or y is
BINARY(min, x < y || x != x ? x : y)
#undef BINARY

#define COMPARE(name, operation)                                                                                \
  KERNEL(name##_vv) { (void)c; int32_t *mask = (int32_t *)to; EACH mask[i] = -(a[i] operation b[i]); }           \
  KERNEL(name##_vs) { (void)c; int32_t *mask = (int32_t *)to; const float y = *b; EACH mask[i] = -(a[i] operation y); }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)
#undef COMPARE

#define UNARY(name, result) \
  KERNEL(name) { (void)b; (void)c; EACH { const float x = a[i]; to[i] = result; } }
UNARY(copy, x)
UNARY(neg, -x)
UNARY(abs, __builtin_fabsf(x))
UNARY(square, x *x)
UNARY(sqrt, __builtin_sqrtf(x))
UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
#undef UNARY

#define BITS(name, result)                                                                                \
  KERNEL(name) {                                                                                          \
    (void)b; (void)c;                                                                                     \
    const int32_t *l = (const int32_t *)a, *r = (const int32_t *)b; int32_t *mask = (int32_t *)to;        \
    (void)r; EACH mask[i] = result;                                                                       \
  }
BITS(and, l[i] & r[i])
BITS(or, l[i] | r[i])
BITS(xor, l[i] ^ r[i])
BITS(not, ~l[i])
#undef BITS

// Chooses b where a is true, else c.
#define SELECT(name, x, y)                                                                                \
  KERNEL(name) {                                                                                          \
    const int32_t *mask = (const int32_t *)a;                                                             \
    const float first = *b, second = *c; (void)first; (void)second;                                       \
    EACH { const float p = x, q = y; to[i] = mask[i] ? p : q; }                                           \
  }
SELECT(select_vv, b[i], c[i])
SELECT(select_vs, b[i], second)
SELECT(select_sv, first, c[i])
SELECT(select_ss, first, second)
#undef SELECT

// Truth values from bytes, to bytes, and as numbers.
KERNEL(load) { (void)b; (void)c; const int8_t *x = (const int8_t *)a; int32_t *mask = (int32_t *)to; EACH mask[i] = -(x[i] != 0); }
KERNEL(store) { (void)b; (void)c; const int32_t *mask = (const int32_t *)a; int8_t *y = (int8_t *)to; EACH y[i] = mask[i] != 0; }
KERNEL(number) { (void)b; (void)c; const int32_t *mask = (const int32_t *)a; EACH to[i] = mask[i] ? 1.0f : 0.0f; }

// Two operations at once, where the first one's result is read by the second alone: a load and a store less.
#define SECOND(name, first, x, y)                                                                         \
  KERNEL(name##_add_v) { const float p = *a, q = *b; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t + c[i]; } } \
  KERNEL(name##_add_s) { const float p = *a, q = *b, r = *c; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t + r; } } \
  KERNEL(name##_sub_v) { const float p = *a, q = *b; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t - c[i]; } } \
  KERNEL(name##_sub_s) { const float p = *a, q = *b, r = *c; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t - r; } } \
  KERNEL(name##_from_v) { const float p = *a, q = *b; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = c[i] - t; } } \
  KERNEL(name##_from_s) { const float p = *a, q = *b, r = *c; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = r - t; } } \
  KERNEL(name##_mul_v) { const float p = *a, q = *b; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t * c[i]; } } \
  KERNEL(name##_mul_s) { const float p = *a, q = *b, r = *c; (void)p; (void)q; EACH { const float t = first(x, y); to[i] = t * r; } }
#define PLUS(x, y) ((x) + (y))
#define MINUS(x, y) ((x) - (y))
#define TIMES(x, y) ((x) * (y))
SECOND(add_vv, PLUS, a[i], b[i])
SECOND(add_vs, PLUS, a[i], q)
SECOND(sub_vv, MINUS, a[i], b[i])
SECOND(sub_vs, MINUS, a[i], q)
SECOND(sub_sv, MINUS, p, b[i])
SECOND(mul_vv, TIMES, a[i], b[i])
SECOND(mul_vs, TIMES, a[i], q)
#undef SECOND
#undef PLUS
#undef MINUS
#undef TIMES

KERNEL(mul_vs_div_v) { const float y = *b; EACH to[i] = a[i] * y / c[i]; }
KERNEL(sqrt_add_s) { (void)c; const float y = *b; EACH to[i] = __builtin_sqrtf(a[i]) + y; }
KERNEL(bounded) {  // between two scalars; NaN stays, and is the result if one of them is
  const float low = *b, high = *c;
  if (low != low || high != high) { EACH to[i] = low + high; return; }
  EACH { const float x = a[i], t = x <= low ? low : x; to[i] = t >= high ? high : t; }
}

// Comparisons whose truth values go to memory at once.
#define COMPARE_STORED(name, operation)                                                                        \
  KERNEL(name##_vv_store) { (void)c; int8_t *y = (int8_t *)to; EACH y[i] = a[i] operation b[i]; }                \
  KERNEL(name##_vs_store) { (void)c; const float s = *b; int8_t *y = (int8_t *)to; EACH y[i] = a[i] operation s; }
COMPARE_STORED(eq, ==)
COMPARE_STORED(ne, !=)
COMPARE_STORED(lt, <)
COMPARE_STORED(le, <=)
COMPARE_STORED(gt, >)
COMPARE_STORED(ge, >=)
#undef COMPARE_STORED
KERNEL(inside_store) { const float low = *b, high = *c; int8_t *y = (int8_t *)to; EACH { const float x = a[i]; y[i] = (x > low) & (x < high); } }

// Chooses b where a byte of a is not 0, else c.
#define SELECT_BYTES(name, x, y)                                                                          \
  KERNEL(name) {                                                                                          \
    const int8_t *mask = (const int8_t *)a;                                                               \
    const float first = *b, second = *c; (void)first; (void)second;                                       \
    EACH { const float p = x, q = y; to[i] = mask[i] ? p : q; }                                           \
  }
SELECT_BYTES(load_select_vv, b[i], c[i])
SELECT_BYTES(load_select_vs, b[i], second)
SELECT_BYTES(load_select_sv, first, c[i])
SELECT_BYTES(load_select_ss, first, second)
#undef SELECT_BYTES

// Adds to sums.
KERNEL(sum) { (void)b; (void)c; EACH to[i] += a[i]; }
KERNEL(sum_products) { (void)c; EACH to[i] += a[i] * b[i]; }

#undef EACH
#undef KERNEL

#define FORMS(name) NAME(name##_vv), NAME(name##_vs), NAME(name##_sv)
#define SECONDS(name)                                                                        \
  NAME(name##_add_v), NAME(name##_add_s), NAME(name##_sub_v), NAME(name##_sub_s),            \
  NAME(name##_from_v), NAME(name##_from_s), NAME(name##_mul_v), NAME(name##_mul_s)
#define STORED(name) NAME(name##_vv_store), NAME(name##_vs_store)
#define COMPARISONS(name) NAME(name##_vv), NAME(name##_vs)
static Kernel *const NAME(kernels)[] = {
  FORMS(add), FORMS(sub), FORMS(mul), FORMS(div), FORMS(max), FORMS(min),
  COMPARISONS(eq), COMPARISONS(ne), COMPARISONS(lt), COMPARISONS(le), COMPARISONS(gt), COMPARISONS(ge),
  NAME(copy), NAME(neg), NAME(abs), NAME(square), NAME(sqrt), NAME(rsqrt),
  NAME(and), NAME(or), NAME(xor), NAME(not),
  NAME(select_vv), NAME(select_vs), NAME(select_sv), NAME(select_ss),
  NAME(load), NAME(store), NAME(number),
  SECONDS(add_vv), SECONDS(add_vs), SECONDS(sub_vv), SECONDS(sub_vs), SECONDS(sub_sv), SECONDS(mul_vv), SECONDS(mul_vs),
  NAME(mul_vs_div_v), NAME(sqrt_add_s), NAME(bounded),
  STORED(eq), STORED(ne), STORED(lt), STORED(le), STORED(gt), STORED(ge), NAME(inside_store),
  NAME(load_select_vv), NAME(load_select_vs), NAME(load_select_sv), NAME(load_select_ss),
  NAME(sum), NAME(sum_products),
};
#undef SECONDS
#undef STORED
#undef FORMS
#undef COMPARISONS
