/* Weights and rows in panels, as products.h reads them. */
#ifndef BERTKIT_KERNELS_PACK_H
#define BERTKIT_KERNELS_PACK_H

#include "products.h"

/* Where the weight of an output and an input stands in the panels, which keep STEP_INPUTS inputs together. */
static size_t packed_index(const Matrix *m, int output, int input) {
    int group = STEP_INPUTS[m->kind];
    size_t panel = (size_t)(output / PANEL) * round_up(m->inputs, 4) * PANEL;
    return panel + (size_t)(input / group * PANEL + output % PANEL) * group + input % group;
}

/* The upper 24 bits of a float, to the nearest; infinity and NaN stay what they are. */
static void store_three_bytes(uint8_t *p, uint32_t bits) {
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x7f + (bits >> 8 & 1);
    else if (bits & 0x7fffffu) bits |= 0x400000u; /* a NaN whose bits are all lower ones */
    for (int i = 0; i < 3; i++) p[i] = (uint8_t)(bits >> 8 * (i + 1));
}

static void pack_weights(Matrix *m, const void *weights) {
    const uint32_t *wide = weights;
    const uint16_t *half = weights;
    const int8_t *bytes = weights;
    for (int o = 0; o < m->outputs; o++) {
        for (int i = 0; i < m->inputs; i++) {
            size_t index = packed_index(m, o, i), from = (size_t)o * m->inputs + i;
            switch (m->kind) {
            case BERTKIT_F32: ((uint32_t *)m->panels)[index] = wide[from]; break;
            case BERTKIT_F24: store_three_bytes((uint8_t *)m->panels + 3 * index, wide[from]); break;
            case BERTKIT_I8:
                ((int8_t *)m->panels)[index] = bytes[from];
                if (m->offset) m->offset[o] += (BYTES_ARE_SIGNED ? -128 : 128) * bytes[from];
                break;
            default: ((uint16_t *)m->panels)[index] = half[from];
            }
        }
    }
}

static void pack_rows(const float *rows, ptrdiff_t stride, int tokens, int size, float *panels) {
    for (int first = 0; first < tokens; first += PANEL, panels += (ptrdiff_t)size * PANEL) {
        int here = tokens - first < PANEL ? tokens - first : PANEL;
        const float *block = rows + first * stride;
        for (int d = 0; d < size; d++) {
            for (int t = 0; t < here; t++) panels[d * PANEL + t] = block[t * stride + d];
            for (int t = here; t < PANEL; t++) panels[d * PANEL + t] = 0.0f;
        }
    }
}

#endif
