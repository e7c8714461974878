#include "dispatch.h"

#include "check.h"
#include "cpu.h"

/* The build lists them: -DBERTKIT_VARIANTS="X(avx2) X(plain)". */
#define X(NAME) extern const Kernels kernels_##NAME;
BERTKIT_VARIANTS
#undef X

#define X(NAME) &kernels_##NAME,
static const Kernels *const VARIANTS[] = {BERTKIT_VARIANTS};
#undef X

int32_t num_variants(void) { return (int32_t)(sizeof VARIANTS / sizeof *VARIANTS); }

const Kernels *variant_at(int32_t number) { return VARIANTS[number]; }

const char *lacking(const Kernels *kernels) { return feature_name(kernels->needs & ~cpu_features()); }

bertkit_status kernels_of(int32_t variant, const Kernels **kernels, bertkit_error *error) {
    REQUIRE(
        -1 <= variant && variant < num_variants(), BERTKIT_NO_VARIANT, "variant is %d, this library has %d", variant,
        num_variants());
    uint64_t here = cpu_features();
    for (int32_t i = variant < 0 ? 0 : variant; i < num_variants(); i++) {
        uint64_t missing = VARIANTS[i]->needs & ~here;
        if (!missing) {
            *kernels = VARIANTS[i];
            return BERTKIT_OK;
        }
        REQUIRE(
            variant < 0, BERTKIT_CANNOT_RUN, "variant %s needs %s, which this processor or its system lacks",
            VARIANTS[i]->name, feature_name(missing));
    }
    return fail(error, BERTKIT_CANNOT_RUN, "no variant of this library runs here; the last, %s, needs %s",
                VARIANTS[num_variants() - 1]->name, feature_name(VARIANTS[num_variants() - 1]->needs & ~here));
}
