/* Vectors of 4 floats: NEON, with dot products, or products of blocks, where the compiler may use them. */
#ifndef BERTKIT_NEON_H
#define BERTKIT_NEON_H

#include <arm_neon.h>

#define LANES 4
#define TILE_ROWS 12
typedef float32x4_t vec;
typedef int32x4_t ivec;
static inline vec load(const float *p) { return vld1q_f32(p); }
static inline void store(float *p, vec x) { vst1q_f32(p, x); }
static inline vec splat(float x) { return vdupq_n_f32(x); }
static inline vec fma_(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
static inline vec max_(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); } /* b if one is NaN, as on x86 */
static inline vec abs_(vec x) { return vabsq_f32(x); }
static inline vec round_(vec x) { return vrndnq_f32(x); }
static inline vec times_power(vec x, vec n) {
    int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(exponent));
}
static inline vec copy_sign(vec x, vec sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x); }
static inline vec load_half(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline vec load_three_bytes(const uint8_t *p) {
    static const uint8_t places[] = {255, 0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11}; /* 255: a zero */
    return vreinterpretq_f32_u8(vqtbl1q_u8(vld1q_u8(p), vld1q_u8(places)));
}
static inline float sum_of(vec x) { return vaddvq_f32(x); }
static inline float max_of(vec x) {
    float low = x[0] > x[1] ? x[0] : x[1], high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
}
static inline ivec load_bytes(const int8_t *p) { return vreinterpretq_s32_s8(vld1q_s8(p)); }
static inline ivec as_counts(vec x) { return vreinterpretq_s32_f32(x); }
static inline vec as_floats(ivec x) { return vreinterpretq_f32_s32(x); }
static inline ivec splat_word(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return vdupq_n_s32(word);
}
static inline vec load_sums(const int32_t *p) { return vcvtq_f32_s32(vld1q_s32(p)); }
/* Products of bytes are of signed ones: numbers from 0 to 255 are stored less 128. */
#define BYTES_ARE_SIGNED 1
static inline void store_bytes(uint8_t *p, vec x) {
    int16x4_t words = vmovn_s32(vsubq_s32(vcvtnq_s32_f32(x), vdupq_n_s32(128)));
    int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
    memcpy(p, &bytes, 4);
}
#if defined(__ARM_FEATURE_DOTPROD)
#define HAS_FAST_BYTES 1
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    return vdotq_s32(sums, vreinterpretq_s8_s32(bytes), vreinterpretq_s8_s32(weights));
}
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    return dot4(sums, bytes, load_bytes(weights));
}
#else
/* Two products of a byte and a weight of 7 bits fit 16 bits: 2 * 128 * 63 < 32,768. Of 8 bits they may not. */
static inline ivec dot4_narrow(ivec sums, ivec bytes, const int8_t *weights) {
    int8x16_t a = vreinterpretq_s8_s32(bytes), b = vld1q_s8(weights);
    return vpadalq_s16(sums, vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
}
static inline ivec dot4(ivec sums, ivec bytes, ivec weights) {
    int8x16_t a = vreinterpretq_s8_s32(bytes), b = vreinterpretq_s8_s32(weights);
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))), high = vpaddlq_s16(vmull_high_s8(a, b));
    return vaddq_s32(sums, vpaddq_s32(low, high));
}
#endif
/* Products of blocks: of two rows and two columns, eight bytes of each, to four sums. The compiler must be
 * allowed both; a processor without one of them takes the variant of dot products.
 */
#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HAS_BF16 1
#define STEP_BYTES 8
static inline vec load_block(const float *upper, const float *lower) { return vcombine_f32(vld1_f32(upper), vld1_f32(lower)); }
static inline void store_block(float *upper, float *lower, vec block) {
    vst1_f32(upper, vget_low_f32(block));
    vst1_f32(lower, vget_high_f32(block));
}
static inline vec block_i8(vec sums, vec rows, vec columns) {
    return as_floats(vmmlaq_s32(as_counts(sums), vreinterpretq_s8_f32(rows), vreinterpretq_s8_f32(columns)));
}
static inline vec block_bf16(vec sums, vec rows, vec columns) {
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_f32(rows), vreinterpretq_bf16_f32(columns));
}
static inline void store_bf16(uint16_t *p, vec x) { vst1_u16(p, vreinterpret_u16_bf16(vcvt_bf16_f32(x))); }
#endif

#endif
