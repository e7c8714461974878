/* Products of rows with a packed matrix: y = x W^T + b, from five kinds of weights.
 *
 * A matrix is packed once, in panels of PANEL columns (outputs), so that a product reads it from front to back:
 *
 *   BERTKIT_F32, _F24, _F16    [panel][input][PANEL]; sums in float32. 24 bits are the upper ones of a float
 *   BERTKIT_BF16               [panel][input / 2][PANEL][2]; rows are rounded to bf16, sums in float32
 *   BERTKIT_I8                 [panel][input / 4][PANEL][4]; rows become bytes with a scale of their own, sums in int32
 *
 * Where instructions multiply blocks (STEP_BYTES is 8), the last two are [input / 4][PANEL][4] and [input / 8][PANEL][8].
 *
 * Rows are float32, `stride` apart, and filled up with zeros to a multiple of PANEL columns.
 */
#ifndef BERTKIT_KERNELS_PRODUCTS_H
#define BERTKIT_KERNELS_PRODUCTS_H

#include "../bertkit.h"
#include "table.h"
#include "vectors.h"

/* Sums of up to TILE_ROWS rows and one panel. */
typedef union {
    float sums[TILE_ROWS][PANEL];
    int32_t counts[TILE_ROWS][PANEL];
} Tile;

/* Inputs whose products are added at once. */
static const int STEP_INPUTS[] = {1, 1, 1, STEP_BYTES / 2, STEP_BYTES};

/* What the sums of a tile are computed from, step by step. A step takes of each row a float, or STEP_BYTES bytes, and
 * their weights. Distances are in bytes.
 */
typedef struct {
    const char *rows, *weights;
    ptrdiff_t row_stride, step; /* from one row, and from the weights of one step, to the next */
    int steps, adds;       /* adds: whether to the sums that the tile has */
    const char *ahead;     /* what to prefetch at the first step; each later one is `ahead_step` further on */
    ptrdiff_t ahead_step;
    float *decoded;        /* scratch for the weights as floats, for tiles that use them after this one */
} Operands;

INLINE vec load_weights(const char *p, const int kind) {
    switch (kind) {
    case BERTKIT_F24: return load_three_bytes((const uint8_t *)p);
    case BERTKIT_F16: return load_half((const uint16_t *)p);
    default: return load((const float *)p);
    }
}

/* What a row has at one step, in all lanes. */
INLINE vec splat_step(const char *p, const int kind) {
    return kind == BERTKIT_BF16 || kind == BERTKIT_I8 ? as_floats(splat_word(p)) : splat(*(const float *)p);
}

/* The sums of a row, and what it adds at one step: x times weights, which are at `packed`. */
INLINE vec add_products(const int kind, const int narrow, vec sums, vec x, vec weights, const char *packed) {
    switch (kind) {
    case BERTKIT_I8:
        if (narrow) return as_floats(dot4_narrow(as_counts(sums), as_counts(x), (const int8_t *)packed));
        return as_floats(dot4(as_counts(sums), as_counts(x), as_counts(weights)));
#if defined(HAS_BF16) && STEP_BYTES == 4
    case BERTKIT_BF16: return dot2(sums, as_counts(x), as_counts(weights));
#endif
    default: return fma_(x, weights, sums);
    }
}

/* Bytes of a cache line. */
#define LINE 64
/* Without this the compiler keeps an address for each row, more than there are registers. */
#define UNRELATED(address) __asm__("" : "+r"(address))
/* Without this it may keep the sums of nine rows and more in memory. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

/* Where the rows of a tile stand at a step: every fourth of them, and how far on from there the next three are. */
#define FOURS ((TILE_ROWS + 3) / 4)

INLINE void begin_rows(const int rows, const Operands *o, const char *fours[FOURS], ptrdiff_t on[4]) {
    on[0] = 0, on[1] = o->row_stride, on[2] = 2 * o->row_stride, on[3] = 3 * o->row_stride;
    UNRELATED(on[3]);
    UNROLLED for (int r = 0; r < rows; r += 4) {
        fours[r / 4] = o->rows + r * o->row_stride;
        UNRELATED(fours[r / 4]);
    }
}

INLINE void next_step(const int rows, const int bytes, const char *fours[FOURS]) {
    UNROLLED for (int r = 0; r < rows; r += 4) {
        fours[r / 4] += bytes;
        UNRELATED(fours[r / 4]);
    }
}

/* A tile with weights of a kind. With `fetches`, weights further on are prefetched. With `decodes`, those in fewer bits are
 * also stored as floats, which costs little while the products are computed.
 */
INLINE void sum_steps(
    const int rows, const int kind, const int narrow, const int fetches, const int decodes, const Operands *o, Tile *tile) {
    const char *fours[FOURS];
    ptrdiff_t on[4];
    begin_rows(rows, o, fours, on);
    vec sums[TILE_ROWS][2];
    UNROLLED for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0.0f);
    if (o->adds)
        UNROLLED for (int r = 0; r < rows; r++) {
            sums[r][0] = load(tile->sums[r]);
            sums[r][1] = load(tile->sums[r] + LANES);
        }
    const int half = LANES * WEIGHT_SIZE[kind] * STEP_INPUTS[kind];
    const ptrdiff_t step = o->step, ahead_step = o->ahead_step;
    const char *weights = o->weights, *end = weights + o->steps * step, *ahead = o->ahead;
    float *decoded = o->decoded;
    for (; weights != end; weights += step) {
        if (fetches) {
            __builtin_prefetch(ahead);
            if (2 * half > LINE) __builtin_prefetch(ahead + LINE);
            ahead += ahead_step;
        }
        vec left = load_weights(weights, kind), right = load_weights(weights + half, kind);
        if (decodes) {
            store(decoded, left);
            store(decoded + LANES, right);
            decoded += PANEL;
            UNRELATED(decoded);
        }
        UNROLLED for (int r = 0; r < rows; r++) {
            vec x = splat_step(fours[r / 4] + on[r % 4], kind);
            sums[r][0] = add_products(kind, narrow, sums[r][0], x, left, weights);
            sums[r][1] = add_products(kind, narrow, sums[r][1], x, right, weights + half);
        }
        next_step(rows, 4, fours);
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        store(tile->sums[r], sums[r][0]);
        store(tile->sums[r] + LANES, sums[r][1]);
    }
}

#if STEP_BYTES == 8
/* As sum_steps, of two rows and two columns at once, whose four sums are one vector. Of an odd number of rows the last
 * stands for two; the tile has room for both.
 */
INLINE void sum_blocks(const int rows, const int kind, const Operands *o, Tile *tile) {
    const char *fours[FOURS];
    ptrdiff_t on[4];
    begin_rows(rows, o, fours, on);
    vec sums[TILE_ROWS / 2][PANEL / 2];
    UNROLLED for (int r = 0; r < rows; r += 2)
        UNROLLED for (int c = 0; c < PANEL; c += 2)
            sums[r / 2][c / 2] = o->adds ? load_block(tile->sums[r] + c, tile->sums[r + 1] + c) : splat(0.0f);
    const ptrdiff_t step = o->step, ahead_step = o->ahead_step;
    const char *weights = o->weights, *end = weights + o->steps * step, *ahead = o->ahead;
    for (; weights != end; weights += step, ahead += ahead_step) {
        __builtin_prefetch(ahead);
        vec columns[PANEL / 2];
        UNROLLED for (int c = 0; c < PANEL / 2; c++) columns[c] = load((const float *)weights + LANES * c);
        UNROLLED for (int r = 0; r < rows; r += 2) {
            const char *row = fours[r / 4] + on[r % 4], *next = r + 1 < rows ? fours[r / 4] + on[r % 4 + 1] : row;
            vec x = load_block((const float *)row, (const float *)next);
            UNROLLED for (int c = 0; c < PANEL / 2; c++)
                sums[r / 2][c] = (kind == BERTKIT_I8 ? block_i8 : block_bf16)(sums[r / 2][c], x, columns[c]);
        }
        next_step(rows, STEP_BYTES, fours);
    }
    UNROLLED for (int r = 0; r < rows; r += 2)
        UNROLLED for (int c = 0; c < PANEL; c += 2)
            store_block(tile->sums[r] + c, tile->sums[r + 1] + c, sums[r / 2][c / 2]);
}
#endif

/* Functions of their own, with a case for each number of rows, so that the sums stay in registers. */
#define UP_TO_6(CASE, ...) \
    CASE(1, __VA_ARGS__) CASE(2, __VA_ARGS__) CASE(3, __VA_ARGS__) CASE(4, __VA_ARGS__) CASE(5, __VA_ARGS__) \
    CASE(6, __VA_ARGS__)
#if TILE_ROWS == 12
#define FOR_EACH_COUNT(CASE, ...) \
    UP_TO_6(CASE, __VA_ARGS__) CASE(7, __VA_ARGS__) CASE(8, __VA_ARGS__) CASE(9, __VA_ARGS__) CASE(10, __VA_ARGS__) \
    CASE(11, __VA_ARGS__) CASE(12, __VA_ARGS__)
#elif TILE_ROWS == 8
#define FOR_EACH_COUNT(CASE, ...) UP_TO_6(CASE, __VA_ARGS__) CASE(7, __VA_ARGS__) CASE(8, __VA_ARGS__)
#else
#define FOR_EACH_COUNT UP_TO_6
#endif
#define COUNT(N, SUM, ...) case N: SUM(N, __VA_ARGS__, o, tile); break;
#define TILES_OF(NAME, ...) \
    __attribute__((noinline)) static void NAME(int rows, const Operands *o, Tile *tile) { \
        switch (rows) { FOR_EACH_COUNT(COUNT, __VA_ARGS__) } \
    }
/*                             kind, narrow, fetches, decodes */
TILES_OF(new_tile, sum_steps, BERTKIT_F32, 0, 0, 0)
TILES_OF(tile_f32, sum_steps, BERTKIT_F32, 0, 1, 0)
TILES_OF(tile_f24, sum_steps, BERTKIT_F24, 0, 1, 0)
TILES_OF(tile_f16, sum_steps, BERTKIT_F16, 0, 1, 0)
TILES_OF(decoding_f24, sum_steps, BERTKIT_F24, 0, 1, 1)
TILES_OF(decoding_f16, sum_steps, BERTKIT_F16, 0, 1, 1)
#if STEP_BYTES == 8
TILES_OF(tile_i8, sum_blocks, BERTKIT_I8)
TILES_OF(tile_bf16, sum_blocks, BERTKIT_BF16)
#define tile_narrow_i8 tile_i8
#else
TILES_OF(tile_i8, sum_steps, BERTKIT_I8, 0, 1, 0)
TILES_OF(tile_narrow_i8, sum_steps, BERTKIT_I8, 1, 1, 0)
#ifdef HAS_BF16
TILES_OF(tile_bf16, sum_steps, BERTKIT_BF16, 0, 1, 0)
#else
#define tile_bf16 NULL
#endif
#endif

typedef void (*SumTile)(int rows, const Operands *o, Tile *tile);
static const SumTile TILES[] = {tile_f32, tile_f24, tile_f16, tile_bf16, tile_i8};

/* A tile of floats times floats, with new sums. */
static void floats_tile(int rows, const float *a, ptrdiff_t a_stride, const float *b, ptrdiff_t b_stride, int depth, Tile *tile) {
    Operands o = {.rows = (const char *)a, .weights = (const char *)b, .row_stride = a_stride * (ptrdiff_t)sizeof(float),
                  .step = b_stride * (ptrdiff_t)sizeof(float), .steps = depth};
    new_tile(rows, &o, tile);
}

/* Weights that several tiles read are taken part_steps steps at a time; those in fewer bits become floats once, in the
 * first tile. Short parts stay in the first cache with a tile's rows. Where the second cache is fast enough, fewer parts
 * mean that sums are less often stored and loaded again.
 */
#define MOST_PART_STEPS 384
#define MOST_TILES 16
/* How far ahead a single tile, which reads a panel from front to back, prefetches. */
#define BYTES_AHEAD 6144

/* Where a tile begins, if rows from `first` on are divided into tiles that are about equally high. */
static int first_row(int first, int rows, int tile, int tiles) { return first + (int)((ptrdiff_t)rows * tile / tiles); }

/* Tiles t ... end - 1 of those that the rows are divided into; see multiply. */
static void sum_tiles(
    const Matrix *m, const Rows *x, int first, int rows, int t, int end, int tiles, int panel, Tile *sums) {
    float decoded[MOST_PART_STEPS * PANEL] __attribute__((aligned(64)));
    int size = WEIGHT_SIZE[is_converted(m) ? m->kind : BERTKIT_F32], several = end - t > 1;
    int decodes = several && (m->kind == BERTKIT_F24 || m->kind == BERTKIT_F16);
    int whole = round_up(m->inputs, STEP_INPUTS[m->kind]) / STEP_INPUTS[m->kind], part = several ? m->part_steps : whole;
    ptrdiff_t stride = (ptrdiff_t)x->stride * size, step = PANEL * WEIGHT_SIZE[m->kind] * STEP_INPUTS[m->kind];
    ptrdiff_t panel_size = PANEL * WEIGHT_SIZE[m->kind] * (ptrdiff_t)round_up(m->inputs, MOST_STEP_INPUTS);
    const char *packed = (const char *)m->panels + panel * panel_size;
    const char *a = is_converted(m) ? x->converted : (const char *)x->rows;
    SumTile first_tile = TILES[m->kind];
    if (m->kind == BERTKIT_I8 && m->narrow) first_tile = tile_narrow_i8;
    if (m->kind == BERTKIT_F32 && !several) first_tile = new_tile; /* the processor fetches floats better by itself */
    if (decodes) first_tile = m->kind == BERTKIT_F24 ? decoding_f24 : decoding_f16;
    SumTile next_tile = decodes ? tile_f32 : first_tile;
    for (int from = 0; from < whole; from += part, packed += part * step) {
        Operands o = {.weights = packed, .row_stride = stride, .step = step, .decoded = decoded, .adds = from > 0};
        o.steps = whole - from < part ? whole - from : part;
        o.ahead = packed + (several ? o.steps * step : BYTES_AHEAD);
        o.ahead_step = (step + end - t - 1) / (end - t); /* all tiles together fetch the next part */
        for (int u = t; u < end; u++, o.ahead += o.steps * o.ahead_step) {
            int start = first_row(first, rows, u, tiles), count = first_row(first, rows, u + 1, tiles) - start;
            o.rows = a + start * stride + (ptrdiff_t)from * STEP_INPUTS[m->kind] * size;
            (u == t ? first_tile : next_tile)(count, &o, &sums[u - t]);
            if (decodes) o.weights = (const char *)decoded, o.step = PANEL * sizeof(float);
        }
    }
}

INLINE vec activated(vec x, const int activation) {
    switch (activation) {
    case BERTKIT_GELU: return splat(0.5f) * x * (splat(1.0f) + erf_(x * splat(0.70710678f)));
    case BERTKIT_GELU_TANH: {
        vec inner = splat(0.79788456f) * fma_(splat(0.044715f) * x * x, x, x);
        return splat(0.5f) * x * (splat(1.0f) + tanh_(inner));
    }
    case BERTKIT_RELU: return max_(splat(0.0f), x); /* in this order a NaN stays one */
    default: return x;
    }
}

/* What the inputs that an I8 matrix has as outliers add to a tile. */
static void outlier_tile(const Matrix *m, const Rows *x, int row, int rows, int column, Tile *tile) {
    enum { AT_ONCE = 16 };
    float inputs[TILE_ROWS][AT_ONCE];
    int width = round_up(m->outputs, PANEL);
    memset(tile, 0, sizeof *tile);
    for (int from = 0; from < m->num_outliers; from += AT_ONCE) {
        int depth = m->num_outliers - from < AT_ONCE ? m->num_outliers - from : AT_ONCE;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < depth; i++) inputs[r][i] = x->rows[(ptrdiff_t)(row + r) * x->stride + m->outliers[from + i]];
        const char *weights = (const char *)(m->outlier_weights + (ptrdiff_t)from * width + column);
        ptrdiff_t step = width * (ptrdiff_t)sizeof(float);
        Operands o = {.rows = (const char *)inputs, .weights = weights, .row_stride = sizeof inputs[0], .step = step,
                      .steps = depth, .adds = 1, .ahead = weights + AT_ONCE * step, .ahead_step = step};
        tile_f32(rows, &o, tile);
    }
}

/* A tile becomes rows of the result: scaled, with bias, activation and residual. */
INLINE void finish_tile(
    const Matrix *m, const Rows *x, int row, int rows, int panel, const Tile *tile, const int activation,
    const float *residual, float *y, ptrdiff_t y_stride) {
    int column = panel * PANEL, bytes = m->kind == BERTKIT_I8;
    Tile outliers;
    if (bytes && m->num_outliers) outlier_tile(m, x, row, rows, column, &outliers);
    vec unit = splat(m->unit), bias[2] = {load(m->bias + column), load(m->bias + column + LANES)};
    for (int r = 0; r < rows; r++) {
        for (int half = 0; half < 2; half++) {
            int c = column + half * LANES;
            vec sums;
            if (bytes) {
                sums = load_sums(tile->counts[r] + half * LANES);
                if (m->offset) sums = sums - load_sums(m->offset + c);
                sums = fma_(sums, splat(x->scales[row + r]) * load(m->scale + c), bias[half]);
                if (m->num_outliers) sums = sums + load(outliers.sums[r] + half * LANES);
            } else {
                sums = fma_(load(tile->sums[r] + half * LANES), unit, bias[half]);
            }
            sums = activated(sums, activation);
            ptrdiff_t place = (ptrdiff_t)(row + r) * y_stride + c;
            if (residual) sums = sums + load(residual + place);
            store(y + place, sums);
        }
    }
}

/* Rows first ... last - 1 of x times the panels from ... to - 1. */
static void multiply(
    const Matrix *m, const Rows *x, int first, int last, int from, int to, int activation, const float *residual,
    float *y, ptrdiff_t y_stride) {
    int rows = last - first, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int panel = from; panel < to; panel++) {
        for (int t = 0, end; t < tiles; t = end) {
            Tile sums[MOST_TILES];
            end = t + MOST_TILES < tiles ? t + MOST_TILES : tiles;
            sum_tiles(m, x, first, rows, t, end, tiles, panel, sums);
            for (int u = t; u < end; u++) {
                int start = first_row(first, rows, u, tiles), count = first_row(first, rows, u + 1, tiles) - start;
                switch (activation) {
#define CASE(A) \
    case A: \
        finish_tile(m, x, start, count, panel, &sums[u - t], A, residual, y, y_stride); \
        break;
                    CASE(NO_ACTIVATION) CASE(BERTKIT_GELU) CASE(BERTKIT_GELU_TANH) CASE(BERTKIT_RELU)
#undef CASE
                }
            }
        }
    }
}

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
    if (m->kind == BERTKIT_I8) {
        for (int r = first; r < last; r++) {
            ptrdiff_t start = (ptrdiff_t)r * x->stride;
            x->scales[r] = row_to_bytes(m, x->rows + start, (uint8_t *)x->converted + start);
        }
    }
#ifdef HAS_BF16
    if (m->kind == BERTKIT_BF16) {
        int width = round_up(m->inputs, PANEL);
        for (int r = first; r < last; r++) {
            const float *row = x->rows + (ptrdiff_t)r * x->stride;
            uint16_t *halves = (uint16_t *)x->converted + (ptrdiff_t)r * x->stride;
            for (int c = 0; c < width; c += LANES) store_bf16(halves + c, load(row + c));
        }
    }
#endif
}

#endif
