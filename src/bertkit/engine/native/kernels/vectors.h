/* Vectors of floats and what the encoder does with them, of one register width.
 *
 * LANES floats are one vector; a panel of a matrix is PANEL = 2 vectors wide; a tile of a product has up to TILE_ROWS
 * rows, so many that its sums and one row of a panel fill the registers.
 */
#ifndef BERTKIT_VECTORS_H
#define BERTKIT_VECTORS_H

#include <math.h> /* INFINITY, sqrtf */
#include <stdint.h>
#include <string.h>

#if !defined(BERTKIT_PLAIN_C) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "../simd/avx512.h"
#elif !defined(BERTKIT_PLAIN_C) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "../simd/avx2.h"
#elif !defined(BERTKIT_PLAIN_C) && defined(__SSE4_2__)
#include "../simd/sse42.h"
#elif !defined(BERTKIT_PLAIN_C) && defined(__aarch64__) && defined(__ARM_NEON)
#include "../simd/neon.h"
#else
#include "../simd/plain.h"
#endif

#define PANEL (2 * LANES)
#ifndef BYTES_ARE_SIGNED
#define BYTES_ARE_SIGNED 0
#endif
/* Of each row, what a step multiplies of numbers in bf16 and of bytes. */
#ifndef STEP_BYTES
#define STEP_BYTES 4
#endif
#define INLINE static inline __attribute__((always_inline))

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
