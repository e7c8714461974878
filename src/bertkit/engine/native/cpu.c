#include "cpu.h"

#include <stdatomic.h>
#include <stddef.h>

#if defined(__x86_64__) || defined(_M_X64)

#include <cpuid.h>

/* Registers whose content the operating system keeps for each thread (XCR0): vectors of 128 and 256 bits; and with
 * those of 512 bits, masks and the upper registers. */
#define SAVES_256 0x06u
#define SAVES_512 0xe6u

typedef struct {
    uint32_t registers[4];
} Leaf;

static Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
    Leaf found = {{0, 0, 0, 0}};
    uint32_t *r = found.registers;
    if (__get_cpuid_max(leaf & 0x80000000u, NULL) < leaf) return found;
    if (leaf == 7 && subleaf) { /* the highest subleaf is in eax of the first */
        Leaf first = cpuid(7, 0);
        if (first.registers[0] < subleaf) return found;
    }
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    return found;
}

static uint32_t saved_registers(void) {
    const uint32_t osxsave = 1u << 27;
    if (!(cpuid(1, 0).registers[2] & osxsave)) return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#if defined(__APPLE__)
    /* macOS saves them for a thread from the first such instruction on, so the answer would depend on the thread. */
    low &= SAVES_256;
#endif
    return low;
}

static uint64_t read_features(void) {
    uint32_t saved = saved_registers();
    uint64_t found = 0;
#define READ_(NAME, MACRO, LEAF, SUB, REGISTER, BIT) \
    if (cpuid(LEAF, SUB).registers[REGISTER] >> BIT & 1) found |= (uint64_t)1 << FEATURE_##NAME;
    FEATURES(READ_)
#undef READ_
    /* Instructions that are there and registers that are not kept: the instructions must not be used. */
#define DROP_(NAME, MACRO, LEAF, SUB, REGISTER, BIT) \
    if ((saved & SAVES_512) != SAVES_512 && #NAME[0] == 'A' && #NAME[3] == '5') found &= ~((uint64_t)1 << FEATURE_##NAME);
    FEATURES(DROP_)
#undef DROP_
    if ((saved & SAVES_256) != SAVES_256) {
        const uint64_t wide = (uint64_t)1 << FEATURE_AVX | (uint64_t)1 << FEATURE_AVX2 | (uint64_t)1 << FEATURE_FMA |
            (uint64_t)1 << FEATURE_F16C | (uint64_t)1 << FEATURE_AVXVNNI;
        found &= ~wide;
    }
    return found;
}

/* Zen 3 and 4: the second cache feeds products fast enough for long parts. */
int part_steps_here(void) {
    Leaf first = cpuid(0, 0), version = cpuid(1, 0);
    uint32_t eax = version.registers[0], family = eax >> 8 & 15;
    if (family == 15) family += eax >> 20 & 255;
    const uint32_t amd = 0x68747541u; /* "Auth" of AuthenticAMD, in ebx */
    return first.registers[1] == amd && family == 0x19 ? 384 : 96;
}

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>

#define HERE(WORD, BIT, NAME, NUMBER) (getauxval(WORD == 1 ? AT_HWCAP : AT_HWCAP2) >> BIT & 1)

#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int told(const char *name) {
    int32_t found = 0;
    size_t size = sizeof found;
    return !sysctlbyname(name, &found, &size, NULL, 0) && found;
}
#define HERE(WORD, BIT, NAME, NUMBER) (NAME[0] && told("hw.optional.arm." NAME))

#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#define HERE(WORD, BIT, NAME, NUMBER) IsProcessorFeaturePresent(NUMBER)

#else
#define HERE(WORD, BIT, NAME, NUMBER) 0
#endif

static uint64_t read_features(void) {
    uint64_t found = 0;
#define READ_(NAME, MACRO, ...) \
    if (HERE(__VA_ARGS__)) found |= (uint64_t)1 << FEATURE_##NAME;
    FEATURES(READ_)
#undef READ_
    return found;
}

int part_steps_here(void) { return 96; }

#else

static uint64_t read_features(void) { return 0; }

int part_steps_here(void) { return 96; }

#endif

/* CPUID takes microseconds in a virtual machine. */
uint64_t cpu_features(void) {
    static _Atomic uint64_t known;
    const uint64_t read = (uint64_t)1 << 63;
    uint64_t found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        found = read_features() | read;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found & ~read;
}

#define NAME_(NAME, ...) #NAME,
static const char *const NAMES[] = {FEATURES(NAME_) ""};

const char *feature_name(uint64_t bits) {
    for (int i = 0; NAMES[i][0]; i++)
        if (bits >> i & 1) return NAMES[i];
    return "";
}
