/* Weights and rows in panels, as products.h reads them. */
#ifndef BERTKIT_KERNELS_PACK_H
#define BERTKIT_KERNELS_PACK_H

#include "products.h"

/* The upper 24 bits of a float, to the nearest; infinity and NaN stay what they are. */
INLINE void store_three_bytes(uint8_t *p, uint32_t bits) {
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x7f + (bits >> 8 & 1);
    else if (bits & 0x7fffffu) bits |= 0x400000u; /* a NaN whose bits are all lower ones */
    bits >>= 8;
    memcpy(p, &bits, 3); /* the byte behind may be that of another thread */
}

/* The rows of a panel's outputs, [outputs][inputs], to [steps][PANEL][group]; group: STEP_INPUTS. */
INLINE void pack_panel(const char *rows, int outputs, int inputs, int group, int size, char *panel) {
    ptrdiff_t row = (ptrdiff_t)inputs * size, step = group * size;
    int whole = inputs / group * group;
    for (int i = 0; i < inputs; i += group, panel += PANEL * step)
        for (int o = 0; o < outputs; o++) {
            const char *from = rows + o * row + (ptrdiff_t)i * size;
            if (i < whole) memcpy(panel + o * step, from, group * size);
            else memcpy(panel + o * step, from, (inputs - whole) * size);
        }
}

static void pack_panel_of_three_bytes(const uint32_t *rows, int outputs, int inputs, uint8_t *panel) {
    for (int i = 0; i < inputs; i++, panel += PANEL * 3)
        for (int o = 0; o < outputs; o++) store_three_bytes(panel + 3 * o, rows[(ptrdiff_t)o * inputs + i]);
}

static void pack_weights(Matrix *m, const void *weights, int from, int to) {
    const int inputs = m->inputs, end = m->outputs < to * PANEL ? m->outputs : to * PANEL;
    const ptrdiff_t bytes = (ptrdiff_t)PANEL * WEIGHT_SIZE[m->kind] * round_up(inputs, MOST_STEP_INPUTS);
    for (int first = from * PANEL; first < end; first += PANEL) {
        char *panel = (char *)m->panels + first / PANEL * bytes;
        int here = m->outputs - first < PANEL ? m->outputs - first : PANEL;
        int size = m->kind == BERTKIT_F24 ? 4 : WEIGHT_SIZE[m->kind];
        const char *rows = (const char *)weights + (size_t)first * inputs * size;
        switch (m->kind) {
        case BERTKIT_F32: pack_panel(rows, here, inputs, 1, 4, panel); break;
        case BERTKIT_F24: pack_panel_of_three_bytes((const uint32_t *)rows, here, inputs, (uint8_t *)panel); break;
        case BERTKIT_F16: pack_panel(rows, here, inputs, 1, 2, panel); break;
        case BERTKIT_BF16: pack_panel(rows, here, inputs, STEP_BYTES / 2, 2, panel); break;
        default: pack_panel(rows, here, inputs, STEP_BYTES, 1, panel); break;
        }
    }
    for (int o = from * PANEL; m->offset && o < end; o++)
        for (int i = 0; i < inputs; i++)
            m->offset[o] += (BYTES_ARE_SIGNED ? -128 : 128) * ((const int8_t *)weights)[(size_t)o * inputs + i];
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
