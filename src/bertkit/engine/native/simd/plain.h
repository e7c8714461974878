/* Vectors of 4 floats: types of the compiler, which it turns into whatever the processor has. */
#ifndef BERTKIT_PLAIN_H
#define BERTKIT_PLAIN_H

#define LANES 4
#ifndef TILE_ROWS
#define TILE_ROWS 8
#endif
typedef float vec __attribute__((vector_size(16)));
typedef int32_t ivec __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(8)));
static inline vec load(const float *p) { vec x; memcpy(&x, p, sizeof x); return x; }
static inline void store(float *p, vec x) { memcpy(p, &x, sizeof x); }
static inline vec splat(float x) { return (vec){x, x, x, x}; }
static inline vec fma_(vec a, vec b, vec c) { return a * b + c; }
static inline vec choose(ivec mask, vec a, vec b) { return (vec)((mask & (ivec)a) | (~mask & (ivec)b)); }
static inline vec max_(vec a, vec b) { return choose(a > b, a, b); }
static inline vec abs_(vec x) { return (vec)((ivec)x & 0x7fffffff); }
/* Adding 1.5 * 2^23 leaves no room for a fraction; for values below 2^22. */
static inline vec round_(vec x) { return (x + splat(12582912.0f)) - splat(12582912.0f); }
static inline vec times_power(vec x, vec n) { return x * (vec)((__builtin_convertvector(n, ivec) + 127) << 23); }
static inline vec copy_sign(vec x, vec sign) { return (vec)(((ivec)x & 0x7fffffff) | ((ivec)sign & ~0x7fffffff)); }
static inline vec load_half(const uint16_t *p) {
    halves bits;
    memcpy(&bits, p, sizeof bits);
    ivec wide = __builtin_convertvector(bits, ivec);
    ivec size = wide & 0x7fff, infinite = (size >= 0x7c00) & 0x7f800000; /* NaN as well */
    /* The exponents' biases differ by 112; subnormal numbers come out right as well. */
    return (vec)((ivec)((vec)(size << 13) * splat(0x1p112f)) | infinite | ((wide & 0x8000) << 16));
}
#ifndef HAS_OWN_BYTES
static inline vec load_three_bytes(const uint8_t *p) {
    uint32_t words[LANES]; /* one by one: gcc 11 has no __builtin_shufflevector */
    for (int i = 0; i < LANES; i++) {
        memcpy(&words[i], p + 3 * i, 4);
        words[i] <<= 8;
    }
    vec x;
    memcpy(&x, words, sizeof x);
    return x;
}
#endif
static inline float sum_of(vec x) { return (x[0] + x[1]) + (x[2] + x[3]); }
static inline float max_of(vec x) {
    float low = x[0] > x[1] ? x[0] : x[1], high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
}
static inline ivec load_bytes(const int8_t *p) { ivec x; memcpy(&x, p, sizeof x); return x; }
static inline ivec as_counts(vec x) { return (ivec)x; }
static inline vec as_floats(ivec x) { return (vec)x; }
static inline ivec splat_word(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return (ivec){word, word, word, word};
}
static inline vec load_sums(const int32_t *p) {
    ivec x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, vec);
}
static inline void store_bytes(uint8_t *p, vec x) {
    ivec whole = __builtin_convertvector(round_(x), ivec);
    for (int i = 0; i < LANES; i++) p[i] = (uint8_t)whole[i];
}
#ifndef HAS_OWN_BYTES
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    for (int shift = 0; shift < 32; shift += 8)
        sums += ((bytes >> shift) & 255) * ((weights << (24 - shift)) >> 24);
    return sums;
}
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    return dot4(sums, bytes, load_bytes(weights));
}
#endif

#endif
