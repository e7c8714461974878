/* One variant: all kernels for the instruction sets that the compiler may use here. Its only global symbol is its table.
 *
 * BERTKIT_VARIANT is its name. What it needs of a processor follows from the compiler's own macros, so that no list of
 * them can be wrong.
 */
#include "../cpu.h"
#include "attention.h"
#include "pack.h"
#include "products.h"
#include "rows.h"
#include "table.h"

#define JOIN_(A, B) A##B
#define JOIN(A, B) JOIN_(A, B)
#define TEXT_(A) #A
#define TEXT(A) TEXT_(A)

#ifdef HAS_BF16
#define HAS_BF16_KIND (1 << BERTKIT_BF16)
#else
#define HAS_BF16_KIND 0
#endif
#ifndef HAS_FAST_BYTES
#define HAS_FAST_BYTES 0
#endif

const Kernels JOIN(kernels_, BERTKIT_VARIANT) = {
    .name = TEXT(BERTKIT_VARIANT),
    .needs = COMPILED_FOR,
    .lanes = LANES,
    .panel = PANEL,
    .tile_rows = TILE_ROWS,
    .kinds = 1 << BERTKIT_F32 | 1 << BERTKIT_F24 | 1 << BERTKIT_F16 | 1 << BERTKIT_I8 | HAS_BF16_KIND,
    .fast_bytes = HAS_FAST_BYTES,
    .signed_bytes = BYTES_ARE_SIGNED,
    .pack_weights = pack_weights,
    .pack_rows = pack_rows,
    .multiply = multiply,
    .convert_rows = convert_rows,
    .normalize_rows = normalize_rows,
    .gate_rows = gate_rows,
    .rotate_row = rotate_row,
    .multiply_panels = multiply_panels,
    .attend = attend,
    .add_floats = add_floats,
    .add_bytes = add_bytes,
};
