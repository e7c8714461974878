/* Vectors of 16 floats: AVX-512F, BW and VL, with VNNI, VBMI and BF16 where the compiler may use them. */
#ifndef BERTKIT_AVX512_H
#define BERTKIT_AVX512_H

#include <immintrin.h>

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

#endif
