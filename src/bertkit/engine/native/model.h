/* The weights of an encoder: given one by one, packed as products.h reads them, and freed. */
#ifndef BERTKIT_MODEL_H
#define BERTKIT_MODEL_H

#include "attention.h"
#include "memory.h"

typedef struct {
    Matrix qkv, out, up, down;
    /* Scale and shift after attention, scale and shift after the feed-forward block; or before the feed-forward block
     * and before attention, where layers normalize what they read (NULL: not). */
    float *norm[4];
    int half, base;         /* tokens seen on each side, -1: all; the table of rotary angles, -1: none */
    int num_distances;      /* rows of the table of distances; 0: none */
    float *distance_keys, *distance_queries; /* of each head [panels][size][PANEL], or NULL */
} Layer;

/* The weights of the queries are such that scores are exponents of two: softmax(x) is 2^(x log2 e), scaled. */
typedef struct {
    int num_layers, num_stored, width, heads, inner, activation;
    float eps;
    int gated;            /* layers normalize what they read, and multiply one half of the inner rows with the other */
    float *final_norm[2]; /* after the top layer; NULL: none */
    int *order; /* the stored layer at each depth */
    Layer *layers;
    Block *memory; /* of all of these */
    struct Workspace *idle; /* see workspaces.h */
    int num_idle;
} Encoder;

static float *filled_up(Encoder *e, const float *values, int count) {
    float *copy = zeros(&e->memory, (size_t)round_up(count, PANEL) * sizeof(float));
    if (copy && values) memcpy(copy, values, count * sizeof(float));
    return copy;
}

static Matrix *matrix_at(Encoder *e, int layer, int which) {
    Layer *found = &e->layers[layer];
    Matrix *all[] = {&found->qkv, &found->out, &found->up, &found->down};
    return all[which];
}

/* Where the weight of an output and an input stands in the panels, which keep STEP_INPUTS inputs together. */
static size_t place_of(const Matrix *m, int output, int input) {
    int group = STEP_INPUTS[m->kind];
    size_t panel = (size_t)(output / PANEL) * round_up(m->inputs, 4) * PANEL;
    return panel + (size_t)(input / group * PANEL + output % PANEL) * group + input % group;
}

static void start_matrix(Encoder *e, Matrix *m, int kind, int outputs, int inputs, const float *bias) {
    m->kind = kind, m->outputs = outputs, m->inputs = inputs, m->unit = 1.0f;
    /* Vectors of three-byte weights are read with what stands behind them. */
    m->panels = zeros(&e->memory, (size_t)round_up(outputs, PANEL) * round_up(inputs, 4) * WEIGHT_SIZE[kind] + 64);
    m->bias = filled_up(e, bias, outputs);
}

/* The upper 24 bits of a float, to the nearest; infinity and NaN stay what they are. */
static void store_three_bytes(uint8_t *p, uint32_t bits) {
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x7f + (bits >> 8 & 1);
    else if (bits & 0x7fffffu) bits |= 0x400000u; /* a NaN whose bits are all lower ones */
    for (int i = 0; i < 3; i++) p[i] = (uint8_t)(bits >> 8 * (i + 1));
}

/* Weights as bits of 32-bit floats, of 16-bit ones that are multiples of `unit`, or of bf16 ones: [outputs][inputs].
 * WEIGHTS_F24 are given in 32 bits. 0: no memory.
 */
int bertkit_set_matrix(
    Encoder *e, int layer, int which, int kind, int outputs, int inputs, const void *weights, const float *bias,
    float unit) {
    Matrix *m = matrix_at(e, layer, which);
    start_matrix(e, m, kind, outputs, inputs, bias);
    if (!m->panels || !m->bias) return 0;
    m->unit = unit;
    const uint32_t *wide = weights;
    const uint16_t *half = weights;
    for (int o = 0; o < outputs; o++) {
        for (int i = 0; i < inputs; i++) {
            size_t place = place_of(m, o, i), from = (size_t)o * inputs + i;
            if (kind == WEIGHTS_F32) ((uint32_t *)m->panels)[place] = wide[from];
            else if (kind == WEIGHTS_F24) store_three_bytes((uint8_t *)m->panels + 3 * place, wide[from]);
            else ((uint16_t *)m->panels)[place] = half[from];
        }
    }
    return 1;
}

/* Weights in 8 bits; see Matrix. shift: NULL, or for each input; apart_weights: [num_apart][outputs]. 0: no memory. */
int bertkit_set_bytes(
    Encoder *e, int layer, int which, int outputs, int inputs, const int8_t *weights, const float *bias,
    const float *scale, const float *smooth, const float *shift, int narrow, int num_apart, const int32_t *apart,
    const float *apart_weights) {
    Matrix *m = matrix_at(e, layer, which);
    int width = round_up(outputs, PANEL);
    start_matrix(e, m, WEIGHTS_I8, outputs, inputs, bias);
    m->scale = filled_up(e, scale, outputs);
    m->smooth = filled_up(e, smooth, inputs);
    m->shift = shift ? filled_up(e, shift, inputs) : NULL;
    m->offset = shift ? NULL : zeros(&e->memory, (size_t)width * sizeof(int32_t));
    m->narrow = narrow, m->num_apart = num_apart;
    m->apart = zeros(&e->memory, (size_t)num_apart * sizeof(int32_t));
    m->apart_weights = zeros(&e->memory, (size_t)num_apart * width * sizeof(float));
    if (!m->panels || !m->bias || !m->scale || !m->smooth || !(m->shift || m->offset) || !m->apart || !m->apart_weights)
        return 0;
    for (int o = 0; o < outputs; o++) {
        for (int i = 0; i < inputs; i++) {
            int8_t weight = weights[(size_t)o * inputs + i];
            ((int8_t *)m->panels)[place_of(m, o, i)] = weight;
            if (m->offset) m->offset[o] += 128 * weight;
        }
    }
    for (int a = 0; a < num_apart; a++) {
        m->apart[a] = apart[a];
        memcpy(m->apart_weights + (size_t)a * width, apart_weights + (size_t)a * outputs, outputs * sizeof(float));
    }
    return 1;
}

/* `which`: see Layer; of layer -1: after the top layer. 0: no memory. */
int bertkit_set_norm(Encoder *e, int layer, int which, const float *scale, const float *shift) {
    float **norm = layer < 0 ? e->final_norm : e->layers[layer].norm + 2 * which;
    norm[0] = filled_up(e, scale, e->width);
    norm[1] = filled_up(e, shift, e->width);
    return norm[0] && norm[1];
}

/* What a layer's scores depend on besides content; see Layer. */
void bertkit_set_scores(Encoder *e, int layer, int half, int base) {
    e->layers[layer].half = half, e->layers[layer].base = base;
}

static float *head_panels(Encoder *e, const float *rows, int num_rows) {
    int size = e->width / e->heads;
    long step = (long)round_up(num_rows, PANEL) * size;
    float *panels = zeros(&e->memory, e->heads * step * sizeof(float));
    for (int h = 0; panels && h < e->heads; h++) transpose_keys(rows + h * size, e->width, num_rows, size, panels + h * step);
    return panels;
}

/* Keys and queries of distances, [num_rows][width], either may be NULL; the queries as scores want them. 0: no memory. */
int bertkit_set_distances(Encoder *e, int layer, int num_rows, const float *keys, const float *queries) {
    Layer *l = &e->layers[layer];
    l->num_distances = num_rows;
    l->distance_keys = keys ? head_panels(e, keys, num_rows) : NULL;
    l->distance_queries = queries ? head_panels(e, queries, num_rows) : NULL;
    return (!keys || l->distance_keys) && (!queries || l->distance_queries);
}

#endif
