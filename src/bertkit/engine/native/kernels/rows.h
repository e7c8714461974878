/* Steps over single rows: normalization, gates, rotary angles, sums of embeddings. */
#ifndef BERTKIT_KERNELS_ROWS_H
#define BERTKIT_KERNELS_ROWS_H

#include "products.h"

static void normalize_row(float *x, int width, float eps, const float *scale, const float *shift) {
    int whole = width / LANES * LANES;
    vec sums = splat(0.0f), squares = splat(0.0f);
    float sum = 0.0f, square = 0.0f;
    for (int c = 0; c < whole; c += LANES) sums = sums + load(x + c);
    for (int c = whole; c < width; c++) sum += x[c];
    float mean = (sum_of(sums) + sum) / width;
    for (int c = 0; c < whole; c += LANES) {
        vec d = load(x + c) - splat(mean);
        squares = fma_(d, d, squares);
    }
    for (int c = whole; c < width; c++) square += (x[c] - mean) * (x[c] - mean);
    float factor = 1.0f / sqrtf((sum_of(squares) + square) / width + eps);
    for (int c = 0; c < whole; c += LANES)
        store(x + c, fma_((load(x + c) - splat(mean)) * splat(factor), load(scale + c), load(shift + c)));
    for (int c = whole; c < width; c++) x[c] = (x[c] - mean) * factor * scale[c] + shift[c];
}

static void normalize_rows(
    float *x, ptrdiff_t stride, int count, int width, float eps, const float *scale, const float *shift) {
    for (int r = 0; r < count; r++) normalize_row(x + r * stride, width, eps, scale, shift);
}

static void gate_row(float *a, int inner, int activation) {
    int whole = inner / LANES * LANES, width = round_up(inner, PANEL);
    float *b = a + inner;
    switch (activation) {
#define CASE(A) \
    case A: \
        for (int c = 0; c < whole; c += LANES) store(a + c, activated(load(a + c), A) * load(b + c)); \
        if (whole < inner) { \
            float rest[LANES]; \
            store(rest, activated(load(a + whole), A) * load(b + whole)); \
            memcpy(a + whole, rest, (inner - whole) * sizeof(float)); \
        } \
        break;
        CASE(BERTKIT_GELU) CASE(BERTKIT_GELU_TANH) CASE(BERTKIT_RELU)
#undef CASE
    }
    memset(a + inner, 0, (width - inner) * sizeof(float)); /* which a conversion reads */
}

static void gate_rows(float *x, ptrdiff_t stride, int count, int inner, int activation) {
    for (int r = 0; r < count; r++) gate_row(x + r * stride, inner, activation);
}

static void rotate_row(float *x, int heads, const float *angles, int size) {
    int half = size / 2;
    const float *cosines = angles, *sines = angles + half;
    for (int head = 0; head < heads; head++, x += size) {
        for (int i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a * cosines[i] - b * sines[i];
            x[i + half] = b * cosines[i] + a * sines[i];
        }
    }
}

static void add_floats(float *row, const float *values, int width, int adds) {
    for (int c = 0; c < width; c++) row[c] = (adds ? row[c] : 0.0f) + values[c];
}

static void add_bytes(float *row, const int8_t *values, float unit, const float *units, int width, int adds) {
    for (int c = 0; c < width; c++) row[c] = (adds ? row[c] : 0.0f) + values[c] * unit * units[c];
}

#endif
