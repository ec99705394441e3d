// Random bits of a run of elements, for one instruction set: NAME gives the names.

#define ROTATED(x, by) ((x) << (by) | (x) >> (32 - (by)))
#define FOUR_ROUNDS(a, b, c, d)       \
  x += y, y = ROTATED(y, a) ^ x;      \
  x += y, y = ROTATED(y, b) ^ x;      \
  x += y, y = ROTATED(y, c) ^ x;      \
  x += y, y = ROTATED(y, d) ^ x

// Threefry2x32 with 20 rounds of the counters from `first` on, high word first: both words of each, in one.
static void NAME(threefry)(const uint32_t *key, uint64_t first, int64_t count, uint32_t *bits) {
  const uint32_t k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  for (int64_t i = 0; i < count; i += LANES) {
    RandomV x, y;
    for (int lane = 0; lane < LANES; lane++) {
      const uint64_t counter = first + (uint64_t)(i + lane);
      x[lane] = (uint32_t)(counter >> 32);
      y[lane] = (uint32_t)counter;
    }
    x += k0, y += k1;
    FOUR_ROUNDS(13, 15, 26, 6);
    x += k1, y += k2 + 1;
    FOUR_ROUNDS(17, 29, 16, 24);
    x += k2, y += k0 + 2;
    FOUR_ROUNDS(13, 15, 26, 6);
    x += k0, y += k1 + 3;
    FOUR_ROUNDS(17, 29, 16, 24);
    x += k1, y += k2 + 4;
    FOUR_ROUNDS(13, 15, 26, 6);
    x += k2, y += k0 + 5;
    x ^= y;
    if (count - i >= LANES) *(RandomV *)(bits + i) = x;
    else for (int lane = 0; lane < count - i; lane++) bits[i + lane] = x[lane];
  }
}
#undef FOUR_ROUNDS
#undef ROTATED

// Philox4x32-10 of the counters from `first` blocks after the state's on: four words of each, one after the other.
// `state` is key, low and high word of the counter, each in two words, low one first. The first word begins a block.
static void NAME(philox)(const uint32_t *state, uint64_t first, int64_t count, uint32_t *bits) {
  uint64_t low, high;
  memcpy(&low, state + 2, 8);
  memcpy(&high, state + 4, 8);
  for (int64_t at = 0; at < count; at += 4 * LANES) {
    uint32_t w[4][LANES], key0 = state[0], key1 = state[1], mixed[4 * LANES];
    for (int lane = 0; lane < LANES; lane++) {
      const uint64_t block = first + (uint64_t)(at / 4 + lane), l = low + block, h = high + (l < block);
      w[0][lane] = (uint32_t)l, w[1][lane] = (uint32_t)(l >> 32);
      w[2][lane] = (uint32_t)h, w[3][lane] = (uint32_t)(h >> 32);
    }
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
      for (int lane = 0; lane < LANES; lane++) {
        const uint64_t a = (uint64_t)w[0][lane] * 0xD2511F53u, b = (uint64_t)w[2][lane] * 0xCD9E8D57u;
        const uint32_t w1 = w[1][lane], w3 = w[3][lane];
        w[0][lane] = (uint32_t)(b >> 32) ^ w1 ^ key0;
        w[1][lane] = (uint32_t)b;
        w[2][lane] = (uint32_t)(a >> 32) ^ w3 ^ key1;
        w[3][lane] = (uint32_t)a;
      }
    for (int lane = 0; lane < LANES; lane++)
      for (int word = 0; word < 4; word++) mixed[4 * lane + word] = w[word][lane];
    memcpy(bits + at, mixed, 4 * (size_t)(count - at < 4 * LANES ? count - at : 4 * LANES));
  }
}

static void NAME(random_part)(const void *given, long part) {
  const RandomWork *work = given;
  const RandomShapes *s = work->shapes;
  const int64_t slice = (s->elements + s->slices - 1) / s->slices / 4 * 4 + 4;  // whole blocks
  const int64_t key = part / s->slices, first = part % s->slices * slice;
  const int64_t count = s->elements - first < slice ? s->elements - first : slice;
  if (count <= 0) return;
  uint32_t *bits = work->bits + key * s->elements + first;
  const uint32_t *state = work->states + key * STATE_WORDS(s);
  if (s->algorithm == THREEFRY) NAME(threefry)(state, (uint64_t)first, count, bits);
  else NAME(philox)(state, (uint64_t)first / 4, count, bits);
}
