/* What every variant offers: a table of functions and sizes. The functions trust their arguments. */
#ifndef BERTKIT_KERNELS_TABLE_H
#define BERTKIT_KERNELS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "../bertkit.h"

enum { NO_ACTIVATION }; /* and those of bertkit.h */

/* A packed matrix; see products.h. */
typedef struct {
    int kind, inputs, outputs;
    void *panels;
    float *bias;        /* filled up with zeros */
    float unit;         /* what the stored weights are multiples of: of F16, a power of two that keeps them in range */
    int part_steps;     /* see MOST_PART_STEPS in products.h */
    /* The rest is for I8. */
    int narrow;         /* all weights are -63 ... 63; otherwise they may be -128 ... 127 */
    float *scale;       /* of each output */
    int32_t *offset;    /* what products with stored bytes are above those with the numbers that these stand for: 128
                         * times the sum of each output's weights, or -128 times; NULL where they are the same */
    float *smooth;      /* what each input is multiplied with before rounding; 0 for outliers */
    float *shift;       /* added to it then, where inputs have a least value and bytes stand for 0 ... 255; else NULL */
    int num_outliers;   /* inputs that stay in float32 */
    int32_t *outliers;
    float *outlier_weights; /* [num_outliers][outputs, filled up] */
} Matrix;

static inline int is_converted(const Matrix *m) { return m->kind == BERTKIT_BF16 || m->kind == BERTKIT_I8; }

/* What a product reads: rows as the kind of the matrix wants them. */
typedef struct {
    const float *rows;
    ptrdiff_t stride;
    void *converted;    /* BF16, I8: made by convert_rows, `stride` elements apart */
    float *scales;      /* I8: of each row */
} Rows;

/* How the scores of one head depend on positions. */
typedef struct {
    int half_window;     /* tokens that are seen on each side; -1: all */
    int longest;         /* see bertkit_positions */
    const float *bias;   /* of this head; NULL: none */
    const int32_t *distances;   /* NULL: no vectors of distances */
    int first_row, columns;     /* rows of the table that occur, and how many, in whole panels */
    const float *distance_keys; /* [columns / panel][size][panel], or NULL */
    const float *key_products;  /* [tokens][columns]: products of keys and the queries of distances, or NULL */
    float *query_products;      /* scratch for [tile_rows][columns] */
} HeadScores;

/* The queries of one head: rows of `size` columns, and their positions in the sequence, ascending: `positions`, or where
 * that is NULL counted from `position`. */
typedef struct {
    const float *rows;
    ptrdiff_t stride;
    int count, position;
    const int32_t *positions;
} Queries;

/* Keys in panels, as pack_rows makes them, and values of the tokens of a sequence. */
typedef struct {
    const float *panels, *values;
    ptrdiff_t value_stride;
    int tokens, size;
} KeysAndValues;

typedef struct {
    const char *name;
    uint64_t needs;    /* features of cpu.h */
    int lanes, panel, tile_rows; /* floats of a vector; columns of a panel; rows of a tile */
    int kinds, fast_bytes;       /* see bertkit_variant_info */
    int signed_bytes;            /* 1: rows of I8 are stored as -128 ... 127, 0: as 0 ... 255 */

    /* Panels from ... to - 1 of `m`, whose sizes, kind and memory are set, of a caller's weights [outputs][inputs]. */
    void (*pack_weights)(Matrix *m, const void *weights, int from, int to);
    /* Rows [tokens][size], `stride` apart, to panels [size][panel] of tokens; the last one is padded with zeros. */
    void (*pack_rows)(const float *rows, ptrdiff_t stride, int tokens, int size, float *panels);
    /* Rows first ... last - 1 of x times the panels from ... to - 1, with activation, plus a residual or NULL. */
    void (*multiply)(
        const Matrix *m, const Rows *x, int first, int last, int from, int to, int activation, const float *residual,
        float *y, ptrdiff_t y_stride);
    /* Rows first ... last - 1 of x in the kind of numbers that the matrix multiplies. */
    void (*convert_rows)(const Matrix *m, Rows *x, int first, int last);
    void (*normalize_rows)(
        float *x, ptrdiff_t stride, int count, int width, float eps, const float *scale, const float *shift);
    /* a = activation(a) * b, with b behind the `inner` columns of a, which is filled up with zeros then. */
    void (*gate_rows)(float *x, ptrdiff_t stride, int count, int inner, int activation);
    /* Rotate the pairs of numbers i and i + size / 2 of `heads` heads by the angles of a position. */
    void (*rotate_row)(float *x, int heads, const float *angles, int size);
    /* Rows [count][size], `stride` apart, times panels of `columns` vectors: [count][columns]. */
    void (*multiply_panels)(
        const float *x, ptrdiff_t stride, int count, const float *panels, int size, int columns, float *result);
    /* Attention of queries to all tokens, with scratch for tile_rows rows of the tokens, filled up to whole panels. */
    void (*attend)(
        const HeadScores *head, const Queries *queries, const KeysAndValues *known, float *scratch, float *result,
        ptrdiff_t result_stride);
    /* One row of a table is set, or added: float, or int8_t in multiples of unit * units[column]. */
    void (*add_floats)(float *row, const float *values, int width, int adds);
    void (*add_bytes)(float *row, const int8_t *values, float unit, const float *units, int width, int adds);
} Kernels;

/* Bytes of a weight by its kind. */
static const int WEIGHT_SIZE[] = {4, 3, 2, 2, 1};
/* Inputs are filled up to a multiple of this: those of the longest step of any variant. */
#define MOST_STEP_INPUTS 8

static inline int round_up(int n, int step) { return (n + step - 1) / step * step; }

#endif
