// Stochastic rounding of a run of elements, for one instruction set: NAME gives the names. The loop is of a kind that
// compilers make vectors of.

static void NAME(rounding_part)(const void *given, long part) {
  const RoundingWork *work = given;
  const RoundingShapes *s = work->shapes;
  const int64_t slice = (s->elements + s->slices - 1) / s->slices;
  const int64_t k = part / s->slices, first = part % s->slices * slice;
  const int64_t count = s->elements - first < slice ? s->elements - first : slice;
  const float *restrict x = work->x + k * s->elements + first;
  float *restrict result = work->result + k * s->elements + first;
  const uint32_t one = mixed(work->keys[2 * k]), two = mixed(work->keys[2 * k + 1] ^ one);
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits, power, inverse;
    float spacing, reciprocal;
    memcpy(&bits, x + i, 4);
    const uint32_t exponent = bits & 0x7F800000u, least = (127u - 14u) << 23;
    power = (exponent > least ? exponent : least) - (10u << 23);
    inverse = (254u << 23) - power;
    memcpy(&spacing, &power, 4);
    memcpy(&reciprocal, &inverse, 4);
    const int finite = exponent != 0x7F800000u;
    const float scaled = finite ? x[i] * reciprocal : 0;  // below 2048, but for infinities and NaN
    const float toward_zero = (float)(int32_t)scaled;
    const float below = toward_zero - (toward_zero > scaled ? 1.0f : 0.0f);
    const uint32_t hash = mixed(mixed((uint32_t)(first + i) ^ one) + two);
    const float uniform = (float)(int32_t)(hash >> 8) * 0x1p-24f;
    const float rounded = (below + (uniform < scaled - below ? 1.0f : 0.0f)) * spacing;
    result[i] = finite ? rounded : x[i];
  }
}
