/* Vectors of 8 floats: AVX2, FMA and F16C, with VNNI where the compiler may use it. */
#ifndef BERTKIT_AVX2_H
#define BERTKIT_AVX2_H

#include <immintrin.h>

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

#endif
