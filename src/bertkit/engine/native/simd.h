/* Vectors of floats and what the encoder does with them, for AVX-512, AVX2 and, in plain C, any other processor.
 *
 * LANES floats are one vector; a panel of a matrix is PANEL = 2 vectors wide; a tile of a product has up to TILE_ROWS
 * rows, so many that its sums and one row of a panel fill the registers.
 */
#ifndef BERTKIT_SIMD_H
#define BERTKIT_SIMD_H

#include <math.h> /* INFINITY, sqrtf */
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(BERTKIT_PLAIN_C)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(BERTKIT_PLAIN_C)
#define LANES 16
#define TILE_ROWS 12
typedef __m512 vec;
typedef __m512i ivec;
static inline vec load(const float *p) { return _mm512_loadu_ps(p); }
static inline void store(float *p, vec x) { _mm512_storeu_ps(p, x); }
static inline vec splat(float x) { return _mm512_set1_ps(x); }
static inline vec fma_(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec max_(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec abs_(vec x) { return _mm512_abs_ps(x); }
static inline vec round_(vec x) { return _mm512_roundscale_ps(x, 8); }
static inline vec times_power(vec x, vec n) { return _mm512_scalef_ps(x, n); }
static inline vec load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
/* 24 bits each, the upper ones of a float. */
static inline vec load_three_bytes(const uint8_t *p) {
#ifdef __AVX512VBMI__
    const __m512i places = _mm512_set_epi8(
        47, 46, 45, 0, 44, 43, 42, 0, 41, 40, 39, 0, 38, 37, 36, 0, 35, 34, 33, 0, 32, 31, 30, 0,
        29, 28, 27, 0, 26, 25, 24, 0, 23, 22, 21, 0, 20, 19, 18, 0, 17, 16, 15, 0, 14, 13, 12, 0,
        11, 10, 9, 0, 8, 7, 6, 0, 5, 4, 3, 0, 2, 1, 0, 0);
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi8(0xEEEEEEEEEEEEEEEEull, places, _mm512_loadu_si512(p)));
#else
    const __m512i lanes = _mm512_set_epi32(0, 11, 10, 9, 0, 8, 7, 6, 0, 5, 4, 3, 0, 2, 1, 0);
    const __m512i places = _mm512_broadcast_i32x4(_mm_set_epi8(11, 10, 9, 0, 8, 7, 6, 0, 5, 4, 3, 0, 2, 1, 0, 0));
    __m512i spread = _mm512_permutexvar_epi32(lanes, _mm512_loadu_si512(p));
    return _mm512_castsi512_ps(_mm512_maskz_shuffle_epi8(0xEEEEEEEEEEEEEEEEull, spread, places));
#endif
}
static inline float sum_of(vec x) { return _mm512_reduce_add_ps(x); }
static inline float max_of(vec x) { return _mm512_reduce_max_ps(x); }
static inline vec copy_sign(vec x, vec sign) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_set1_epi32((int)0x80000000u), _mm512_castps_si512(sign), _mm512_castps_si512(x), 0xCA));
}
static inline ivec load_bytes(const int8_t *p) { return _mm512_loadu_si512(p); }
static inline ivec as_counts(vec x) { return _mm512_castps_si512(x); }
static inline vec as_floats(ivec x) { return _mm512_castsi512_ps(x); }
static inline ivec splat_word(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}
static inline vec load_sums(const int32_t *p) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(p)); }
/* Floats from 0 to 255 as bytes, rounded. */
static inline void store_bytes(uint8_t *p, vec x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x)));
}
#ifdef __AVX512VNNI__
#define HAS_FAST_BYTES 1
/* Inline assembly: compilers spill the accumulators around the intrinsic of the same name. */
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(weights));
    return sums;
}
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    return dot4(sums, bytes, load_bytes(weights));
}
#else
/* Two products of a byte and a weight of 7 bits fit 16 bits: 2 * 255 * 63 < 32,768. Of 8 bits they would saturate. */
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    ivec pairs = _mm512_maddubs_epi16(bytes, load_bytes(weights));
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    ivec low = _mm512_set1_epi16(255);
    ivec even = _mm512_madd_epi16(_mm512_and_si512(bytes, low), _mm512_srai_epi16(_mm512_slli_epi16(weights, 8), 8));
    ivec odd = _mm512_madd_epi16(_mm512_srli_epi16(bytes, 8), _mm512_srai_epi16(weights, 8));
    return _mm512_add_epi32(sums, _mm512_add_epi32(even, odd));
}
#endif
#ifdef __AVX512BF16__
#define HAS_BF16 1
static inline vec dot2(vec sums, ivec pair, ivec weights) {
    return _mm512_dpbf16_ps(sums, (__m512bh)pair, (__m512bh)weights);
}
static inline void store_bf16(uint16_t *p, vec x) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x)); }
#endif

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(BERTKIT_PLAIN_C)
#define LANES 8
#define TILE_ROWS 6
typedef __m256 vec;
typedef __m256i ivec;
static inline vec load(const float *p) { return _mm256_loadu_ps(p); }
static inline void store(float *p, vec x) { _mm256_storeu_ps(p, x); }
static inline vec splat(float x) { return _mm256_set1_ps(x); }
static inline vec fma_(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec max_(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec abs_(vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
static inline vec round_(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vec times_power(vec x, vec n) {
    __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(exponent));
}
static inline vec load_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vec load_three_bytes(const uint8_t *p) {
    const __m256i places = _mm256_broadcastsi128_si256(
        _mm_set_epi8(11, 10, 9, -128, 8, 7, 6, -128, 5, 4, 3, -128, 2, 1, 0, -128)); /* -128: a zero */
    __m256i both = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)), _mm_loadu_si128((const __m128i *)(p + 12)), 1);
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(both, places));
}
static inline float sum_of(vec x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
static inline float max_of(vec x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}
static inline vec copy_sign(vec x, vec sign) {
    vec bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_and_ps(bit, sign), _mm256_andnot_ps(bit, x));
}
static inline ivec load_bytes(const int8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline ivec as_counts(vec x) { return _mm256_castps_si256(x); }
static inline vec as_floats(ivec x) { return _mm256_castsi256_ps(x); }
static inline ivec splat_word(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}
static inline vec load_sums(const int32_t *p) { return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void store_bytes(uint8_t *p, vec x) {
    __m256i words = _mm256_cvtps_epi32(x);
    __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(halves, halves));
}
#if defined(__AVXVNNI__)
#define HAS_FAST_BYTES 1
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(bytes), "x"(weights)); /* see above */
    return sums;
}
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    return dot4(sums, bytes, load_bytes(weights));
}
#else
/* Written out so that weights stay in memory: twelve sums leave no registers for them. */
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    ivec pairs;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sums), "=&x"(pairs)
        : "x"(bytes), "m"(*(const __m256i_u *)weights), "x"(_mm256_set1_epi16(1)));
    return sums;
}
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    ivec low = _mm256_set1_epi16(255);
    ivec even = _mm256_madd_epi16(_mm256_and_si256(bytes, low), _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8));
    ivec odd = _mm256_madd_epi16(_mm256_srli_epi16(bytes, 8), _mm256_srai_epi16(weights, 8));
    return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}
#endif

#else
/* Vector types of the compiler, which it turns into whatever the processor has. */
#define LANES 4
#define TILE_ROWS 8
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
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    for (int shift = 0; shift < 32; shift += 8)
        sums += ((bytes >> shift) & 255) * ((weights << (24 - shift)) >> 24);
    return sums;
}
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    return dot4(sums, bytes, load_bytes(weights));
}
#endif

#define PANEL (2 * LANES)
#define INLINE static inline __attribute__((always_inline))

static inline int round_up(int n, int step) { return (n + step - 1) / step * step; }

/* 2 to the power x, to about 1e-7 of the value: a polynomial (minimax on -0.5 ... 0.5) for the fraction. */
static inline vec exp2_(vec x) {
    x = max_(splat(-126.0f), x); /* in this order a NaN stays one */
    vec whole = round_(x), f = x - whole;
    vec p = splat(1.5353362e-4f);
    p = fma_(p, f, splat(1.3398874e-3f));
    p = fma_(p, f, splat(9.6184373e-3f));
    p = fma_(p, f, splat(5.5503324e-2f));
    p = fma_(p, f, splat(2.4022647e-1f));
    p = fma_(p, f, splat(6.9314718e-1f));
    p = fma_(p, f, splat(1.0f));
    return times_power(p, whole);
}

/* Abramowitz and Stegun 7.1.26: at most 1.5e-7 off. */
static inline vec erf_(vec x) {
    vec z = abs_(x), t = splat(1.0f) / fma_(splat(0.3275911f), z, splat(1.0f));
    vec p = splat(1.061405429f);
    p = fma_(p, t, splat(-1.453152027f));
    p = fma_(p, t, splat(1.421413741f));
    p = fma_(p, t, splat(-0.284496736f));
    p = fma_(p, t, splat(0.254829592f));
    vec tail = p * t * exp2_(z * z * splat(-1.44269504f));
    return copy_sign(splat(1.0f) - tail, x);
}

static inline vec tanh_(vec x) {
    vec e = exp2_(abs_(x) * splat(-2.88539008f));
    return copy_sign((splat(1.0f) - e) / (splat(1.0f) + e), x);
}

#endif
