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

/* Scores in powers of two become weights before division by their sum, whose inverse is returned. */
static float softmax_row(float *scores, int tokens) {
    int width = round_up(tokens, PANEL);
    for (int t = tokens; t < width; t++) scores[t] = -INFINITY;
    vec most = load(scores);
    for (int t = LANES; t < width; t += LANES) most = max_(most, load(scores + t));
    vec top = splat(max_of(most)), sums = splat(0.0f);
    for (int t = 0; t < width; t += LANES) {
        vec weight = exp2_(load(scores + t) - top);
        store(scores + t, weight);
        sums = sums + weight;
    }
    return 1.0f / sum_of(sums); /* a token that is not there adds 2^-126, which is nothing beside 1 */
}

/* Attention of `queries` rows, with keys in panels as transpose_keys makes them, to `tokens` values.
 *
 * Query, value and result rows have `size` columns; scores are exponents of two (see Encoder). `scratch` has room for
 * TILE_ROWS rows of the tokens, filled up to whole panels.
 */
static void attend(
    const float *query, int query_stride, int queries, const float *panels, const float *values, int value_stride,
    int tokens, int size, float *scratch, float *result, int result_stride) {
    int width = round_up(tokens, PANEL), tiles = (queries + TILE_ROWS - 1) / TILE_ROWS;
    for (int t = 0; t < tiles; t++) {
        int start = (int)((long)queries * t / tiles), rows = (int)((long)queries * (t + 1) / tiles) - start;
        const float *q = query + (long)start * query_stride;
        Tile tile;
        for (int first = 0; first < width; first += PANEL) {
            floats_tile(rows, q, query_stride, panels + (long)first * size, PANEL, size, &tile);
            for (int r = 0; r < rows; r++) memcpy(scratch + (long)r * width + first, tile.sums[r], sizeof tile.sums[r]);
        }
        float inverse[TILE_ROWS];
        for (int r = 0; r < rows; r++) inverse[r] = softmax_row(scratch + (long)r * width, tokens);
        for (int column = 0; column < size; column += PANEL) {
            int here = size - column < PANEL ? size - column : PANEL;
            floats_tile(rows, scratch, width, values + column, value_stride, tokens, &tile);
            for (int r = 0; r < rows; r++) {
                float *out = result + (long)(start + r) * result_stride + column;
                for (int c = 0; c < here; c++) out[c] = tile.sums[r][c] * inverse[r];
            }
        }
    }
}

#endif
