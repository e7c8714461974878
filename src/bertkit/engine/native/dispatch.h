/* The variants in this library, the best first. */
#ifndef BERTKIT_DISPATCH_H
#define BERTKIT_DISPATCH_H

#include "bertkit.h"
#include "kernels/table.h"

int32_t num_variants(void);
/* The table of a variant that runs here, or the error; -1: the best. */
bertkit_status kernels_of(int32_t variant, const Kernels **kernels, bertkit_error *error);
/* Any of them; `number` is in range. */
const Kernels *variant_at(int32_t number);
/* The name of the first feature that is missing here; "" if it runs. */
const char *lacking(const Kernels *kernels);

#endif
