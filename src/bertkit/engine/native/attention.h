/* Attention of the queries of one sequence and one head to all of its tokens, in float32. */
#ifndef BERTKIT_ATTENTION_H
#define BERTKIT_ATTENTION_H

#include "products.h"

/* Keys [tokens][size], `stride` apart, to panels [size][PANEL] of tokens; the last one is padded with zeros. */
static void transpose_keys(const float *keys, int stride, int tokens, int size, float *panels) {
    for (int first = 0; first < tokens; first += PANEL, panels += (long)size * PANEL) {
        int here = tokens - first < PANEL ? tokens - first : PANEL;
        const float *block = keys + (long)first * stride;
        for (int d = 0; d < size; d++) {
            for (int t = 0; t < here; t++) panels[d * PANEL + t] = block[(long)t * stride + d];
            for (int t = here; t < PANEL; t++) panels[d * PANEL + t] = 0.0f;
        }
    }
}

/* Added from LANES - n on, it hides all but the first n scores of a vector. */
static const float HIDDEN[2 * LANES] = {[LANES ... 2 * LANES - 1] = -INFINITY};

/* Scores in powers of two become weights before division by their sum, whose inverse is returned. The last vector is
 * filled up in a register: to load what was stored in pieces, the processor would wait until all of it is in the cache.
 */
static float softmax_row(float *scores, int tokens) {
    int last = (tokens - 1) / LANES * LANES;
    vec rest = load(scores + last) + load(HIDDEN + LANES - (tokens - last)), most = rest;
    for (int t = 0; t < last; t += LANES) most = max_(most, load(scores + t));
    vec top = splat(max_of(most)), sums = exp2_(rest - top);
    store(scores + last, sums);
    for (int t = 0; t < last; t += LANES) {
        vec weight = exp2_(load(scores + t) - top);
        store(scores + t, weight);
        sums = sums + weight;
    }
    return 1.0f / sum_of(sums); /* a token that is not there adds 2^-126, which is nothing beside 1 */
}

/* What a call knows of positions, for families whose attention asks for them. Tables reach to `most` tokens. */
typedef struct {
    const float *angles[2]; /* [most][size]: cosines of a token's rotary angles, then sines; one for each base */
    const float *bias;      /* [heads][2 * most - 1]: exponents of two for the distance of a key from its query */
    const int32_t *rows;    /* [2 * most - 1]: the row of a table for the distance of a query from a key */
    int most;
} Positions;

/* How the scores of one head depend on positions. */
typedef struct {
    int half;            /* tokens that are seen on each side; -1: all */
    int most;            /* see Positions */
    const float *bias;   /* of this head; NULL: none */
    const int32_t *rows; /* NULL: no vectors of distances */
    int first_row, columns;     /* rows of the table that occur, and how many, in whole panels */
    const float *distance_keys; /* [columns / PANEL][size][PANEL], or NULL */
    const float *key_products;  /* [tokens][columns]: products of keys and the queries of distances, or NULL */
    float *query_products;      /* room for [TILE_ROWS][columns] */
} HeadScores;

/* Add to the scores of one query, at `place` of its sequence, what depends on its distance from the keys from `low` on. */
static void add_distances(const HeadScores *h, const float *products, int place, int low, int count, float *scores) {
    if (h->bias) {
        const float *bias = h->bias + low - place + h->most - 1;
        for (int t = 0; t < count; t++) scores[t] += bias[t];
    }
    if (!h->rows) return;
    const int32_t *rows = h->rows + place - low + h->most - 1;
    for (int t = 0; t < count; t++) {
        int column = rows[-t] - h->first_row;
        if (h->distance_keys) scores[t] += products[column];
        if (h->key_products) scores[t] += h->key_products[(long)(low + t) * h->columns + column];
    }
}

static void hide_outside(const HeadScores *h, int place, int low, int count, float *scores) {
    for (int t = 0; t < place - h->half - low; t++) scores[t] = -INFINITY;
    for (int t = place + h->half + 1 - low; t < count; t++) scores[t] = -INFINITY;
}

/* Rows [count][size], `stride` apart, times panels of `columns` vectors: [count][columns]. */
static void multiply_panels(
    const float *x, int stride, int count, const float *panels, int size, int columns, float *result) {
    Tile tile;
    for (int start = 0; start < count; start += TILE_ROWS) {
        int rows = count - start < TILE_ROWS ? count - start : TILE_ROWS;
        for (int first = 0; first < columns; first += PANEL) {
            floats_tile(rows, x + (long)start * stride, stride, panels + (long)first * size, PANEL, size, &tile);
            for (int r = 0; r < rows; r++)
                memcpy(result + (long)(start + r) * columns + first, tile.sums[r], sizeof tile.sums[r]);
        }
    }
}

/* Attention of `queries` rows, with keys in panels as transpose_keys makes them, to `tokens` values.
 *
 * Query, value and result rows have `size` columns; scores are exponents of two (see Encoder). The places of the queries
 * in their sequence are ascending: `places`, or where that is NULL counted from `place`. `scratch` has room for
 * TILE_ROWS rows of the tokens, filled up to whole panels.
 */
static void attend(
    const HeadScores *head, const int32_t *places, int place,
    const float *query, int query_stride, int queries, const float *panels, const float *values, int value_stride,
    int tokens, int size, float *scratch, float *result, int result_stride) {
    int tiles = (queries + TILE_ROWS - 1) / TILE_ROWS, low = 0, end = tokens;
    for (int t = 0; t < tiles; t++) {
        int start = (int)((long)queries * t / tiles), rows = (int)((long)queries * (t + 1) / tiles) - start;
        const float *q = query + (long)start * query_stride;
        int at[TILE_ROWS];
        for (int r = 0; r < rows; r++) at[r] = places ? places[start + r] : place + start + r;
        if (head->half >= 0) {
            low = at[0] - head->half > 0 ? (at[0] - head->half) / PANEL * PANEL : 0;
            end = at[rows - 1] + head->half + 1 < tokens ? at[rows - 1] + head->half + 1 : tokens;
        }
        int count = end - low, width = round_up(count, PANEL);
        Tile tile;
        for (int first = 0; first < width; first += PANEL) {
            floats_tile(rows, q, query_stride, panels + (long)(low + first) * size, PANEL, size, &tile);
            for (int r = 0; r < rows; r++) memcpy(scratch + (long)r * width + first, tile.sums[r], sizeof tile.sums[r]);
        }
        if (head->distance_keys)
            multiply_panels(q, query_stride, rows, head->distance_keys, size, head->columns, head->query_products);
        float inverse[TILE_ROWS];
        for (int r = 0; r < rows; r++) {
            float *scores = scratch + (long)r * width;
            if (head->bias || head->rows)
                add_distances(head, head->query_products + (long)r * head->columns, at[r], low, count, scores);
            if (head->half >= 0) hide_outside(head, at[r], low, count, scores);
            inverse[r] = softmax_row(scores, count);
        }
        for (int column = 0; column < size; column += PANEL) {
            int here = size - column < PANEL ? size - column : PANEL;
            floats_tile(rows, scratch, width, values + (long)low * value_stride + column, value_stride, count, &tile);
            for (int r = 0; r < rows; r++) {
                float *out = result + (long)(start + r) * result_stride + column;
                for (int c = 0; c < here; c++) out[c] = tile.sums[r][c] * inverse[r];
            }
        }
    }
}

/* Turn the pairs of numbers i and i + size / 2 of a head by the angles of a place; see Positions. */
static void turn(float *x, const float *angles, int size) {
    int half = size / 2;
    const float *cosines = angles, *sines = angles + half;
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = b * cosines[i] + a * sines[i];
    }
}

#endif
