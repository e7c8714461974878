/* Loaded before a program whose cpuid instructions became traps (see avx2_only.py): answers them as the processor
   does, less AVX-512, AMX, AVX-VNNI and everything else of leaf 7 that came after AVX2. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
    (void)number, (void)info;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        /* F, DQ, IFMA, PF, ER, CD, BW, VL; then VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; then 4VNNIW, 4FMAPS,
           VP2INTERSECT, AMX-BF16, FP16, AMX-TILE, AMX-INT8 */
        b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7) {
        a = b = c = d = 0; /* AVX-VNNI, AVX512-BF16, AMX-FP16, AVX10 and the like */
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
}

__attribute__((constructor(101))) static void begin(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &action, 0);
}
