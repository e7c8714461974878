/* Products of rows with a packed matrix: y = x W^T + b, from five kinds of weights.
 *
 * A matrix is packed once, in panels of PANEL columns (outputs), so that a product reads it from front to back:
 *
 *   WEIGHTS_F32, _F24, _F16    [panel][input][PANEL]; sums in float32. 24 bits are the upper ones of a float
 *   WEIGHTS_BF16               [panel][input / 2][PANEL][2]; rows are rounded to bf16, sums in float32
 *   WEIGHTS_I8                 [panel][input / 4][PANEL][4]; rows become bytes with a scale of their own, sums in int32
 *
 * Rows are float32, `stride` apart, and filled up with zeros to a multiple of PANEL columns.
 */
#ifndef BERTKIT_PRODUCTS_H
#define BERTKIT_PRODUCTS_H

#include "simd.h"

enum { WEIGHTS_F32, WEIGHTS_F24, WEIGHTS_F16, WEIGHTS_BF16, WEIGHTS_I8 };
/* Bytes of a weight. */
static const int WEIGHT_SIZE[] = {4, 3, 2, 2, 1};
enum { NO_ACTIVATION, GELU, GELU_TANH, RELU };

typedef struct {
    int kind, inputs, outputs;
    void *panels;
    float *bias;        /* filled up with zeros */
    float unit;         /* what the stored weights are multiples of: of F16, a power of two that keeps them in range */
    /* The rest is for I8. */
    int narrow;         /* all weights are -63 ... 63; otherwise they may be -128 ... 127 */
    float *scale;       /* of each output */
    int32_t *offset;    /* 128 times the sum of each output's weights, where bytes stand for -128 ... 127; else NULL */
    float *smooth;      /* what each input is multiplied with before rounding; 0 for those that are kept apart */
    float *shift;       /* added to it then, where inputs have a least value and bytes stand for 0 ... 255; else NULL */
    int num_apart;      /* inputs that stay in float32 */
    int32_t *apart;
    float *apart_weights; /* [num_apart][outputs, filled up] */
} Matrix;

/* What a product reads: rows as the kind of the matrix wants them. */
typedef struct {
    const float *rows;
    int stride;
    void *converted;    /* BF16, I8: made by convert_rows, `stride` elements apart */
    float *scales;      /* I8: of each row */
} Rows;

/* Sums of up to TILE_ROWS rows and one panel. */
typedef union {
    float sums[TILE_ROWS][PANEL];
    int32_t counts[TILE_ROWS][PANEL];
} Tile;

INLINE vec load_weights(const char *p, const int kind) {
    switch (kind) {
    case WEIGHTS_F24: return load_three_bytes((const uint8_t *)p);
    case WEIGHTS_F16: return load_half((const uint16_t *)p);
    default: return load((const float *)p);
    }
}

/* Without this the compiler keeps an address for each row, more than there are registers. */
#define UNRELATED(address) __asm__("" : "+r"(address))
/* And without this clang keeps the sums of twelve rows in memory. */
#define UNROLLED _Pragma("GCC unroll 16")

/* Weights of a kind with sums in float32; `step` bytes from one input to the next. With `add`, the sums are added to
 * those that the tile has, one line of what is read next is fetched for each input (`ahead`, `ahead_step` bytes on), and
 * weights in fewer bits are written to `decoded` as floats, which costs little while the products are computed.
 */
INLINE void tile_part(
    const int rows, const int kind, const int add, const float *a, int a_stride, const char *b, long step, int depth,
    const char *ahead, long ahead_step, float *decoded, Tile *tile) {
    const char *fours[(TILE_ROWS + 3) / 4]; /* every fourth row */
    long one = a_stride * (long)sizeof(float), rows_on[4] = {0, one, 2 * one, 3 * one};
    UNRELATED(rows_on[3]);
    for (int r = 0; r < rows; r += 4) {
        fours[r / 4] = (const char *)(a + (long)r * a_stride);
        UNRELATED(fours[r / 4]);
    }
    vec sums[TILE_ROWS][2];
    for (int r = 0; r < rows; r++) {
        sums[r][0] = add ? load(tile->sums[r]) : splat(0.0f);
        sums[r][1] = add ? load(tile->sums[r] + LANES) : splat(0.0f);
    }
    for (const char *end = b + depth * step; b != end; b += step) {
        if (add) __builtin_prefetch(ahead), ahead += ahead_step;
        else if (kind != WEIGHTS_F32) __builtin_prefetch(b + 48 * step); /* these are read for a few rows at a time */
        vec left = load_weights(b, kind), right = load_weights(b + LANES * WEIGHT_SIZE[kind], kind);
        if (add && kind != WEIGHTS_F32) {
            store(decoded, left);
            store(decoded + LANES, right);
            decoded += PANEL;
            UNRELATED(decoded);
        }
        UNROLLED for (int r = 0; r < rows; r++) {
            vec x = splat(*(const float *)(fours[r / 4] + rows_on[r % 4]));
            sums[r][0] = fma_(x, left, sums[r][0]);
            sums[r][1] = fma_(x, right, sums[r][1]);
        }
        for (int r = 0; r < rows; r += 4) {
            fours[r / 4] += sizeof(float);
            UNRELATED(fours[r / 4]);
        }
    }
    for (int r = 0; r < rows; r++) {
        store(tile->sums[r], sums[r][0]);
        store(tile->sums[r] + LANES, sums[r][1]);
    }
}

INLINE void tile_floats(
    const int rows, const int kind, const float *a, int a_stride, const char *b, long step, int depth, Tile *tile) {
    tile_part(rows, kind, 0, a, a_stride, b, step, depth, NULL, 0, NULL, tile);
}

#ifdef HAS_BF16
INLINE void tile_bf16(const int rows, const uint16_t *a, int a_stride, const uint16_t *b, int depth, Tile *tile) {
    vec sums[TILE_ROWS][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0.0f);
    for (int k = 0; k < depth; k += 2, b += 2 * PANEL) {
        __builtin_prefetch(b + 48 * PANEL);
        ivec left = load_bytes((const int8_t *)b), right = load_bytes((const int8_t *)(b + PANEL));
        for (int r = 0; r < rows; r++) {
            ivec x = splat_word(a + (long)r * a_stride + k);
            sums[r][0] = dot2(sums[r][0], x, left);
            sums[r][1] = dot2(sums[r][1], x, right);
        }
    }
    for (int r = 0; r < rows; r++) {
        store(tile->sums[r], sums[r][0]);
        store(tile->sums[r] + LANES, sums[r][1]);
    }
}
#endif

INLINE void tile_i8(
    const int rows, const int narrow, const uint8_t *a, int a_stride, const int8_t *b, int depth, Tile *tile) {
    ivec sums[TILE_ROWS][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = zero_sums();
    for (int k = 0; k < depth; k += 4, b += 4 * PANEL) {
        __builtin_prefetch(b + 48 * PANEL);
        ivec left = load_bytes(b), right = load_bytes(b + 4 * LANES);
        for (int r = 0; r < rows; r++) {
            ivec x = splat_word(a + (long)r * a_stride + k);
            sums[r][0] = narrow ? dot4_narrow(sums[r][0], x, b) : dot4(sums[r][0], x, left);
            sums[r][1] = narrow ? dot4_narrow(sums[r][1], x, b + 4 * LANES) : dot4(sums[r][1], x, right);
        }
    }
    for (int r = 0; r < rows; r++) {
        store_sums(tile->counts[r], sums[r][0]);
        store_sums(tile->counts[r] + LANES, sums[r][1]);
    }
}

/* One function for each number of rows, so that the sums stay in registers. */
#define UP_TO_6(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if TILE_ROWS == 12
#define FOR_EACH_COUNT(CASE) UP_TO_6(CASE) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#elif TILE_ROWS == 8
#define FOR_EACH_COUNT(CASE) UP_TO_6(CASE) CASE(7) CASE(8)
#else
#define FOR_EACH_COUNT(CASE) UP_TO_6(CASE)
#endif

static void floats_tile(int rows, const float *a, int a_stride, const float *b, int b_stride, int depth, Tile *tile) {
    long step = (long)b_stride * sizeof(float);
#define CASE(N) case N: tile_floats(N, WEIGHTS_F32, a, a_stride, (const char *)b, step, depth, tile); break;
    switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
}

static void matrix_tile(const Matrix *m, const Rows *x, int row, int rows, int panel, Tile *tile) {
    int depth = round_up(m->inputs, 4);
    long start = (long)row * x->stride, step = PANEL * WEIGHT_SIZE[m->kind];
    const char *weights = (const char *)m->panels + panel * depth * step;
    const float *a = x->rows + start;
    switch (m->kind) {
    case WEIGHTS_F32:
        floats_tile(rows, a, x->stride, (const float *)weights, PANEL, m->inputs, tile);
        break;
#define FLOATS(KIND, N) case N: tile_floats(N, KIND, a, x->stride, weights, step, m->inputs, tile); break;
    case WEIGHTS_F24:
#define CASE(N) FLOATS(WEIGHTS_F24, N)
        switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
        break;
    case WEIGHTS_F16:
#define CASE(N) FLOATS(WEIGHTS_F16, N)
        switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
        break;
#undef FLOATS
#ifdef HAS_BF16
    case WEIGHTS_BF16:
#define CASE(N) \
    case N: \
        tile_bf16(N, (uint16_t *)x->converted + start, x->stride, (const uint16_t *)weights, depth, tile); \
        break;
        switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
        break;
#endif
#define BYTES(NARROW, N) \
    case N: tile_i8(N, NARROW, (uint8_t *)x->converted + start, x->stride, (const int8_t *)weights, depth, tile); break;
    case WEIGHTS_I8:
        if (m->narrow) {
#define CASE(N) BYTES(1, N)
            switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
        } else {
#define CASE(N) BYTES(0, N)
            switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
        }
        break;
#undef BYTES
    }
}

/* With vectors of 8 and 16 floats, weights that several tiles read are turned into floats once, by the first of them,
 * IN_PART inputs at a time, so that they and the rows stay in the first cache.
 */
#define IN_PARTS (LANES >= 8)
#define IN_PART 96
#define MOST_TILES 16

/* Tiles t ... end - 1 of those that the rows are divided into; see multiply. Not inlined: constants of the caller would
 * take registers from the sums.
 */
__attribute__((noinline)) static void sum_in_parts(
    const Matrix *m, const Rows *x, int first, int rows, int t, int end, int tiles, int panel, Tile *sums) {
    float room[IN_PART * PANEL] __attribute__((aligned(64)));
    long step = PANEL * WEIGHT_SIZE[m->kind];
    const char *packed = (const char *)m->panels + panel * round_up(m->inputs, 4) * step;
    long share = step / (end - t); /* of the next part, which all tiles fetch together */
    memset(sums, 0, (end - t) * sizeof *sums);
    for (int from = 0; from < m->inputs; from += IN_PART, packed += IN_PART * step) {
        int depth = m->inputs - from < IN_PART ? m->inputs - from : IN_PART;
        const char *weights = m->kind == WEIGHTS_F32 ? packed : (const char *)room, *ahead = packed + depth * step;
        for (int u = t; u < end; u++, ahead += depth * share) {
            int start = first + rows * u / tiles, count = first + rows * (u + 1) / tiles - start;
            const float *a = x->rows + (long)start * x->stride + from;
#define CASE(N) \
    case N: \
        if (m->kind == WEIGHTS_F24 && u == t) \
            tile_part(N, WEIGHTS_F24, 1, a, x->stride, packed, PANEL * 3, depth, ahead, share, room, sums); \
        else if (m->kind == WEIGHTS_F16 && u == t) \
            tile_part(N, WEIGHTS_F16, 1, a, x->stride, packed, PANEL * 2, depth, ahead, share, room, sums); \
        else \
            tile_part(N, WEIGHTS_F32, 1, a, x->stride, weights, PANEL * 4, depth, ahead, share, NULL, &sums[u - t]); \
        break;
            switch (count) { FOR_EACH_COUNT(CASE) }
#undef CASE
        }
    }
}

INLINE vec activated(vec x, const int activation) {
    switch (activation) {
    case GELU: return splat(0.5f) * x * (splat(1.0f) + erf_(x * splat(0.70710678f)));
    case GELU_TANH: {
        vec inner = splat(0.79788456f) * fma_(splat(0.044715f) * x * x, x, x);
        return splat(0.5f) * x * (splat(1.0f) + tanh_(inner));
    }
    case RELU: return max_(splat(0.0f), x); /* in this order a NaN stays one */
    default: return x;
    }
}

/* What the inputs that an I8 matrix keeps apart add to a tile. */
static void apart_tile(const Matrix *m, const Rows *x, int row, int rows, int column, Tile *tile) {
    enum { AT_ONCE = 16 };
    float inputs[TILE_ROWS][AT_ONCE];
    int width = round_up(m->outputs, PANEL);
    memset(tile, 0, sizeof *tile);
    for (int from = 0; from < m->num_apart; from += AT_ONCE) {
        int depth = m->num_apart - from < AT_ONCE ? m->num_apart - from : AT_ONCE;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < depth; i++) inputs[r][i] = x->rows[(long)(row + r) * x->stride + m->apart[from + i]];
        const char *weights = (const char *)(m->apart_weights + (long)from * width + column);
#define CASE(N) \
    case N: \
        tile_part(N, WEIGHTS_F32, 1, inputs[0], AT_ONCE, weights, width * 4l, depth, weights, 0, NULL, tile); \
        break;
        switch (rows) { FOR_EACH_COUNT(CASE) }
#undef CASE
    }
}

/* A tile becomes rows of the result: scaled, with bias, activation and residual. */
INLINE void finish_tile(
    const Matrix *m, const Rows *x, int row, int rows, int panel, const Tile *tile, const int activation,
    const float *residual, float *y, int y_stride) {
    int column = panel * PANEL;
    Tile apart;
    if (m->num_apart) apart_tile(m, x, row, rows, column, &apart);
    for (int r = 0; r < rows; r++) {
        for (int half = 0; half < 2; half++) {
            int c = column + half * LANES;
            vec sums, bias = load(m->bias + c);
            if (m->kind == WEIGHTS_I8) {
                sums = load_sums(tile->counts[r] + half * LANES);
                if (m->offset) sums = sums - load_sums(m->offset + c);
                sums = fma_(sums, splat(x->scales[row + r]) * load(m->scale + c), bias);
                if (m->num_apart) sums = sums + load(apart.sums[r] + half * LANES);
            } else {
                sums = load(tile->sums[r] + half * LANES);
                sums = fma_(sums, splat(m->unit), bias);
            }
            sums = activated(sums, activation);
            long place = (long)(row + r) * y_stride + c;
            if (residual) sums = sums + load(residual + place);
            store(y + place, sums);
        }
    }
}

static int is_converted(const Matrix *m) { return m->kind == WEIGHTS_BF16 || m->kind == WEIGHTS_I8; }

/* Rows first ... last - 1 of x times the panels from ... to - 1. Tiles of a panel are about equally high. */
static void multiply(
    const Matrix *m, const Rows *x, int first, int last, int from, int to, int activation, const float *residual,
    float *y, int y_stride) {
    int rows = last - first, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    int in_parts = IN_PARTS && tiles > 1 && !is_converted(m);
    int most = in_parts ? MOST_TILES : 1;
    for (int panel = from; panel < to; panel++) {
        for (int t = 0, end; t < tiles; t = end) {
            Tile sums[IN_PARTS ? MOST_TILES : 1];
            end = t + most < tiles ? t + most : tiles;
            if (in_parts) sum_in_parts(m, x, first, rows, t, end, tiles, panel, sums);
            for (int u = t; u < end; u++) {
                int start = first + rows * u / tiles, count = first + rows * (u + 1) / tiles - start;
                if (!in_parts) matrix_tile(m, x, start, count, panel, sums);
                switch (activation) {
#define CASE(A) \
    case A: \
        finish_tile(m, x, start, count, panel, &sums[u - t], A, residual, y, y_stride); \
        break;
                    CASE(NO_ACTIVATION) CASE(GELU) CASE(GELU_TANH) CASE(RELU)
#undef CASE
                }
            }
        }
    }
}

static int panels_of(const Matrix *m) { return (m->outputs + PANEL - 1) / PANEL; }

/* A row as bytes with a scale; see Matrix. Filled up with bytes whose weights are 0. */
static float row_to_bytes(const Matrix *m, const float *x, uint8_t *bytes) {
    int width = round_up(m->inputs, PANEL);
    vec most = splat(0.0f), poison = splat(0.0f);
    for (int c = 0; c < width; c += LANES) {
        vec value = load(x + c) * load(m->smooth + c);
        if (m->shift) value = value + load(m->shift + c);
        most = max_(most, m->shift ? value : abs_(value));
        poison = fma_(value, splat(0.0f), poison); /* NaN if one is, and then the row's scale is as well */
    }
    float largest = max_of(most) + sum_of(poison), steps = m->shift ? 255.0f : 127.0f;
    vec inverse = splat(largest > 0.0f ? steps / largest : 0.0f);
    for (int c = 0; c < width; c += LANES) {
        vec value = load(x + c) * load(m->smooth + c);
        if (m->shift) store_bytes(bytes + c, max_(value + load(m->shift + c), splat(0.0f)) * inverse);
        else store_bytes(bytes + c, fma_(value, inverse, splat(128.0f)));
    }
    return largest / steps;
}

/* Rows first ... last - 1 of x in the kind of numbers that the matrix multiplies. */
static void convert_rows(const Matrix *m, Rows *x, int first, int last) {
    if (m->kind == WEIGHTS_I8) {
        for (int r = first; r < last; r++) {
            long start = (long)r * x->stride;
            x->scales[r] = row_to_bytes(m, x->rows + start, (uint8_t *)x->converted + start);
        }
    }
#ifdef HAS_BF16
    if (m->kind == WEIGHTS_BF16) {
        int width = round_up(m->inputs, PANEL);
        for (int r = first; r < last; r++) {
            const float *row = x->rows + (long)r * x->stride;
            uint16_t *halves = (uint16_t *)x->converted + (long)r * x->stride;
            for (int c = 0; c < width; c += LANES) store_bf16(halves + c, load(row + c));
        }
    }
#endif
}

#endif
