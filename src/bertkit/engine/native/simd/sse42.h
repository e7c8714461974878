/* Vectors of 4 floats: those of plain.h, with SSE4.2 for what the compiler does not find by itself. */
#ifndef BERTKIT_SSE42_H
#define BERTKIT_SSE42_H

#include <immintrin.h>

#define TILE_ROWS 6 /* there are 16 registers */
#define HAS_OWN_BYTES
#include "plain.h"

static inline vec load_three_bytes(const uint8_t *p) {
    const __m128i places = _mm_set_epi8(11, 10, 9, -128, 8, 7, 6, -128, 5, 4, 3, -128, 2, 1, 0, -128); /* -128: a zero */
    return (vec)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p), places);
}
/* Two products of a byte and a weight of 7 bits fit 16 bits: 2 * 255 * 63 < 32,768. Of 8 bits they would saturate. */
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    __m128i pairs = _mm_maddubs_epi16((__m128i)bytes, _mm_loadu_si128((const __m128i *)weights));
    return sums + (ivec)_mm_madd_epi16(pairs, _mm_set1_epi16(1));
}
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    __m128i low = _mm_set1_epi16(255), b = (__m128i)bytes, w = (__m128i)weights;
    __m128i even = _mm_madd_epi16(_mm_and_si128(b, low), _mm_srai_epi16(_mm_slli_epi16(w, 8), 8));
    __m128i odd = _mm_madd_epi16(_mm_srli_epi16(b, 8), _mm_srai_epi16(w, 8));
    return sums + (ivec)_mm_add_epi32(even, odd);
}

#endif
