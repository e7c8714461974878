/* Attention of the queries of one sequence and one head to all of its tokens, in float32. */
#ifndef BERTKIT_KERNELS_ATTENTION_H
#define BERTKIT_KERNELS_ATTENTION_H

#include "products.h"

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

/* Add to the scores of one query, at `position` of its sequence, what depends on its distance from the keys from `low` on. */
static void add_distances(const HeadScores *h, const float *products, int position, int low, int count, float *scores) {
    if (h->bias) {
        const float *bias = h->bias + (low - position + h->longest - 1);
        for (int t = 0; t < count; t++) scores[t] += bias[t];
    }
    if (!h->distances) return;
    const int32_t *rows = h->distances + (position - low + h->longest - 1);
    for (int t = 0; t < count; t++) {
        int column = rows[-t] - h->first_row;
        if (h->distance_keys) scores[t] += products[column];
        if (h->key_products) scores[t] += h->key_products[(ptrdiff_t)(low + t) * h->columns + column];
    }
}

static void hide_outside(const HeadScores *h, int position, int low, int count, float *scores) {
    for (int t = 0; t < position - h->half_window - low; t++) scores[t] = -INFINITY;
    for (int t = position + h->half_window + 1 - low; t < count; t++) scores[t] = -INFINITY;
}

/* Rows [count][size], `stride` apart, times panels of `columns` vectors: [count][columns]. */
static void multiply_panels(
    const float *x, ptrdiff_t stride, int count, const float *panels, int size, int columns, float *result) {
    Tile tile;
    for (int start = 0; start < count; start += TILE_ROWS) {
        int rows = count - start < TILE_ROWS ? count - start : TILE_ROWS;
        for (int first = 0; first < columns; first += PANEL) {
            floats_tile(rows, x + (ptrdiff_t)start * stride, stride, panels + (ptrdiff_t)first * size, PANEL, size, &tile);
            for (int r = 0; r < rows; r++)
                memcpy(result + (ptrdiff_t)(start + r) * columns + first, tile.sums[r], sizeof tile.sums[r]);
        }
    }
}

static void attend(
    const HeadScores *head, const Queries *queries, const KeysAndValues *known, float *scratch, float *result,
    ptrdiff_t result_stride) {
    int tokens = known->tokens, size = known->size, low = 0, end = tokens;
    int tiles = (queries->count + TILE_ROWS - 1) / TILE_ROWS;
    for (int t = 0; t < tiles; t++) {
        int start = first_row(0, queries->count, t, tiles), rows = first_row(0, queries->count, t + 1, tiles) - start;
        const float *q = queries->rows + start * queries->stride;
        int at[TILE_ROWS];
        for (int r = 0; r < rows; r++)
            at[r] = queries->positions ? queries->positions[start + r] : queries->position + start + r;
        if (head->half_window >= 0) {
            int first = at[0] - head->half_window, after = at[rows - 1] + head->half_window + 1;
            low = first > 0 ? first / PANEL * PANEL : 0;
            end = after < tokens ? after : tokens;
        }
        int count = end - low, width = round_up(count, PANEL);
        Tile tile;
        for (int first = 0; first < width; first += PANEL) {
            const float *panel = known->panels + (ptrdiff_t)(low + first) * size;
            floats_tile(rows, q, queries->stride, panel, PANEL, size, &tile);
            for (int r = 0; r < rows; r++)
                memcpy(scratch + (ptrdiff_t)r * width + first, tile.sums[r], sizeof tile.sums[r]);
        }
        if (head->distance_keys)
            multiply_panels(q, queries->stride, rows, head->distance_keys, size, head->columns, head->query_products);
        float inverse[TILE_ROWS];
        for (int r = 0; r < rows; r++) {
            float *scores = scratch + (ptrdiff_t)r * width;
            const float *products = head->query_products ? head->query_products + (ptrdiff_t)r * head->columns : NULL;
            if (head->bias || head->distances) add_distances(head, products, at[r], low, count, scores);
            if (head->half_window >= 0) hide_outside(head, at[r], low, count, scores);
            inverse[r] = softmax_row(scores, count);
        }
        for (int column = 0; column < size; column += PANEL) {
            int here = size - column < PANEL ? size - column : PANEL;
            const float *values = known->values + low * known->value_stride + column;
            floats_tile(rows, scratch, width, values, known->value_stride, count, &tile);
            for (int r = 0; r < rows; r++) {
                float *out = result + (start + r) * result_stride + column;
                for (int c = 0; c < here; c++) out[c] = tile.sums[r][c] * inverse[r];
            }
        }
    }
}

#endif
