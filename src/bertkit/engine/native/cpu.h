/* What a processor, and its operating system, can run; and what pays on it. */
#ifndef BERTKIT_CPU_H
#define BERTKIT_CPU_H

#include <stdint.h>

/* Instruction sets that compilers use by themselves or that kernels ask for: name, the compiler's macro, and where the
 * answer is. Of x86 where CPUID has it: leaf, subleaf, register (0: eax ... 3: edx), bit. Of ARM where each system has
 * it: Linux's word of getauxval (1: HWCAP, 2: HWCAP2) and bit there, Apple's name, Windows's number; "" and 0: nowhere.
 */
#if defined(__x86_64__) || defined(_M_X64)
#define FEATURES(X) \
    X(SSE3, __SSE3__, 1, 0, 2, 0) \
    X(SSSE3, __SSSE3__, 1, 0, 2, 9) \
    X(FMA, __FMA__, 1, 0, 2, 12) \
    X(CX16, __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16, 1, 0, 2, 13) \
    X(SSE41, __SSE4_1__, 1, 0, 2, 19) \
    X(SSE42, __SSE4_2__, 1, 0, 2, 20) \
    X(MOVBE, __MOVBE__, 1, 0, 2, 22) \
    X(POPCNT, __POPCNT__, 1, 0, 2, 23) \
    X(AVX, __AVX__, 1, 0, 2, 28) \
    X(F16C, __F16C__, 1, 0, 2, 29) \
    X(BMI, __BMI__, 7, 0, 1, 3) \
    X(AVX2, __AVX2__, 7, 0, 1, 5) \
    X(BMI2, __BMI2__, 7, 0, 1, 8) \
    X(AVX512F, __AVX512F__, 7, 0, 1, 16) \
    X(AVX512DQ, __AVX512DQ__, 7, 0, 1, 17) \
    X(ADX, __ADX__, 7, 0, 1, 19) \
    X(AVX512IFMA, __AVX512IFMA__, 7, 0, 1, 21) \
    X(AVX512CD, __AVX512CD__, 7, 0, 1, 28) \
    X(AVX512BW, __AVX512BW__, 7, 0, 1, 30) \
    X(AVX512VL, __AVX512VL__, 7, 0, 1, 31) \
    X(AVX512VBMI, __AVX512VBMI__, 7, 0, 2, 1) \
    X(AVX512VBMI2, __AVX512VBMI2__, 7, 0, 2, 6) \
    X(GFNI, __GFNI__, 7, 0, 2, 8) \
    X(AVX512VNNI, __AVX512VNNI__, 7, 0, 2, 11) \
    X(AVX512BITALG, __AVX512BITALG__, 7, 0, 2, 12) \
    X(AVX512VPOPCNTDQ, __AVX512VPOPCNTDQ__, 7, 0, 2, 14) \
    X(AVX512FP16, __AVX512FP16__, 7, 0, 3, 23) \
    X(AVXVNNI, __AVXVNNI__, 7, 1, 0, 4) \
    X(AVX512BF16, __AVX512BF16__, 7, 1, 0, 5) \
    X(LZCNT, __LZCNT__, 0x80000001, 0, 2, 5)
#elif defined(__aarch64__)
#define FEATURES(X) \
    X(LSE, __ARM_FEATURE_ATOMICS, 1, 8, "FEAT_LSE", 34) \
    X(FP16, __ARM_FEATURE_FP16_VECTOR_ARITHMETIC, 1, 10, "FEAT_FP16", 67) \
    X(DOTPROD, __ARM_FEATURE_DOTPROD, 1, 20, "FEAT_DotProd", 43) \
    X(SVE, __ARM_FEATURE_SVE, 1, 22, "", 46) \
    X(SVE2, __ARM_FEATURE_SVE2, 2, 1, "", 47) \
    X(I8MM, __ARM_FEATURE_MATMUL_INT8, 2, 13, "FEAT_I8MM", 66) \
    X(BF16, __ARM_FEATURE_BF16_VECTOR_ARITHMETIC, 2, 14, "FEAT_BF16", 68)
#else
#define FEATURES(X)
#endif

#define NUMBER_(NAME, ...) FEATURE_##NAME,
enum { FEATURES(NUMBER_) NUM_FEATURES };
#undef NUMBER_

/* 1 for a macro that is defined as 1, else 0. */
#define PLACEHOLDER_1 0,
#define SECOND_(FIRST, SECOND, ...) SECOND
#define IS_ONE_3(MAYBE) SECOND_(MAYBE 1, 0, 0)
#define IS_ONE_2(VALUE) IS_ONE_3(PLACEHOLDER_##VALUE)
#define IS_ONE(VALUE) IS_ONE_2(VALUE)
#define BIT_(NAME, MACRO, ...) | (uint64_t)IS_ONE(MACRO) << FEATURE_##NAME
/* Bits 1 << FEATURE_... of what the compiler may use where this stands. */
#define COMPILED_FOR (0 FEATURES(BIT_))

/* Bits of what runs here: what CPUID has, and what the operating system saves when it switches threads (XGETBV); on ARM
 * the operating system says both at once. */
uint64_t cpu_features(void);
/* The name of the lowest of these bits; "" of none. Static. */
const char *feature_name(uint64_t bits);
/* What pays here: steps of a product that are taken at once; see kernels/products.h. */
int part_steps_here(void);

#endif
