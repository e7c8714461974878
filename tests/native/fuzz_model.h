/* A random encoder: its shape, its weights of one kind, and what its scores depend on; for fuzz.c. */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include <math.h>

#include "fuzz_random.h"

/* Layers, distances, and tokens of a sequence are at most so many. */
enum { LAYERS = 4, DISTANCES = 40, LONGEST = 139 };

/* Of a stored layer; `set` 0: nothing is said of it. */
typedef struct {
    int set, half_window, rotary, keys, queries;
} Attention;

typedef struct {
    bertkit_shape shape;
    int32_t order[LAYERS];
    int kind;
    float *weights[4], *biases[4], *scales, *smooth, *norm[2];
    int8_t *bytes[4];
    uint16_t *halves[4]; /* of BF16, whose weights are these numbers as well */
    int outliers[3], narrow, shifts; /* of I8 */
    int bare, final_norm; /* of gated layers: the lowest reads rows as they are; the top one is normalized */
    Attention attention[LAYERS];
    int num_distances;
    float *distance_rows[2]; /* keys and queries, [num_distances][width] */
    bertkit_positions positions;
    float *tables[3]; /* both of angles, and the bias */
    int32_t *distances;
} Model;

static int sizes_of(const Model *m, int which, int *inputs) {
    const bertkit_shape *s = &m->shape;
    int up = s->gated ? 2 * s->inner : s->inner;
    int outputs[] = {3 * s->width, s->width, up, s->width};
    *inputs = which == BERTKIT_DOWN ? s->inner : s->width;
    return outputs[which];
}

static void draw_shape(Model *m) {
    int heads = 1 + (int)drawn(4), size = 1 + (int)drawn(26), layers = 1 + (int)drawn(LAYERS);
    m->shape = (bertkit_shape){sizeof m->shape, layers, layers, NULL, heads * size, heads, 1 + (int)drawn(90),
                               1 + (int)drawn(3), 1e-6f, (int)drawn(2), (int)drawn(5)};
    if (drawn(2)) m->shape.num_stored = 1 + (int)drawn(LAYERS);
    for (int i = 0; i < layers; i++) m->order[i] = (int32_t)drawn((uint32_t)m->shape.num_stored);
    if (m->shape.num_stored != layers || drawn(2)) m->shape.order = m->order;
    /* Further up a layer that reads rows as they are would make large numbers of them, and chance of differences. */
    m->bare = !m->shape.order && drawn(2), m->final_norm = drawn(2);
}

/* Windows, angles, biases and distances, each in half of the encoders; a sixteenth has none of them. */
static void draw_attention(Model *m) {
    const bertkit_shape *s = &m->shape;
    int size = s->width / s->heads, windows = drawn(2), rotary = drawn(2) && size % 2 == 0, bias = drawn(2);
    m->num_distances = drawn(2) ? 1 + (int)drawn(DISTANCES) : 0;
    for (int i = 0; i < s->num_stored; i++) {
        Attention *a = &m->attention[i];
        a->half_window = windows && drawn(3) ? (int)drawn(12) : -1;
        a->rotary = rotary ? (int)drawn(3) - 1 : -1;
        a->keys = m->num_distances && drawn(3), a->queries = m->num_distances && drawn(3);
        a->set = m->num_distances || a->half_window >= 0 || a->rotary >= 0 || drawn(2);
    }
    for (int i = 0; i < 2; i++) m->distance_rows[i] = numbers((size_t)m->num_distances * s->width, 0.5f);
    int longest = LONGEST + (int)drawn(9), all = 2 * longest - 1;
    m->positions = (bertkit_positions){.struct_size = sizeof m->positions, .longest = longest};
    for (int table = 0; rotary && table < 2; table++) {
        float *angles = m->tables[table] = numbers((size_t)longest * size, 3.0f);
        for (int row = 0; row < longest; row++, angles += size)
            for (int i = 0; i < size / 2; i++) {
                float angle = angles[i];
                angles[i] = cosf(angle), angles[i + size / 2] = sinf(angle);
            }
        m->positions.angles[table] = m->tables[table];
    }
    if (bias) m->positions.bias = m->tables[2] = numbers((size_t)s->heads * all, 2.0f);
    m->distances = malloc((size_t)all * sizeof *m->distances);
    int32_t row = 0;
    for (int i = 0; i < all; i++) {
        if (!drawn(3)) row += (int32_t)drawn(4);
        m->distances[i] = row < m->num_distances ? row : m->num_distances - 1;
    }
    if (m->num_distances) m->positions.distances = m->distances;
}

static Model new_model(void) {
    Model m = {0};
    draw_shape(&m);
    draw_attention(&m);
    m.narrow = drawn(2), m.shifts = drawn(2);
    m.kind = (int)drawn(BERTKIT_NUM_KINDS);
    int most = m.shape.width > m.shape.inner ? m.shape.width : m.shape.inner;
    m.scales = numbers((size_t)3 * most + 64, 0.0f);
    for (int i = 0; i < 3 * most + 64; i++) m.scales[i] = 0.02f;
    m.smooth = numbers(most, 0.0f);
    for (int i = 1; i < most; i++) m.smooth[i] = 0.02f; /* the first is an outlier */
    for (int n = 0; n < 2; n++) m.norm[n] = numbers(m.shape.width, 1.0f);
    for (int which = 0; which < 4; which++) {
        int inputs, outputs = sizes_of(&m, which, &inputs);
        size_t count = (size_t)outputs * inputs;
        m.weights[which] = numbers(count, 0.5f);
        m.biases[which] = numbers(outputs, 0.3f);
        m.bytes[which] = malloc(4 * count); /* as many bytes as any kind would read */
        memset(m.bytes[which], 0, 4 * count);
        for (size_t i = 0; i < count; i++)
            m.bytes[which][i] = (int8_t)(m.narrow ? (int)drawn(127) - 63 : (int)drawn(256) - 128);
        m.halves[which] = calloc(count, 4);
        for (size_t i = 0; m.kind == BERTKIT_BF16 && i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &m.weights[which][i], 4);
            m.halves[which][i] = (uint16_t)(bits >> 16), bits &= 0xffff0000u;
            memcpy(&m.weights[which][i], &bits, 4);
        }
        if (m.kind == BERTKIT_F16)
            for (size_t i = 0; i < count; i++)
                ((uint16_t *)m.weights[which])[i] = (uint16_t)(drawn(0x3c00) | drawn(2) << 15);
    }
    return m;
}

static void free_model(Model *m) {
    for (int which = 0; which < 4; which++)
        free(m->weights[which]), free(m->biases[which]), free(m->bytes[which]), free(m->halves[which]);
    free(m->scales), free(m->smooth), free(m->norm[0]), free(m->norm[1]);
    free(m->distance_rows[0]), free(m->distance_rows[1]), free(m->distances);
    for (int i = 0; i < 3; i++) free(m->tables[i]);
}

/* `kinds`: of the variant; one without BF16 gets the same numbers as F32. */
static bertkit_matrix matrix_of(const Model *m, int which, int kinds) {
    bertkit_matrix made = {.struct_size = sizeof made, .unit = 1.0f};
    made.kind = kinds >> m->kind & 1 ? m->kind : BERTKIT_F32;
    made.outputs = sizes_of(m, which, &made.inputs);
    made.weights = m->weights[which];
    if (made.kind == BERTKIT_I8) made.weights = m->bytes[which];
    if (made.kind == BERTKIT_BF16) made.weights = m->halves[which];
    made.bias = m->biases[which], made.scale = m->scales, made.smooth = m->smooth, made.narrow = m->narrow;
    made.shift = m->shifts ? m->scales : NULL;
    made.num_outliers = 1, made.outliers = m->outliers, made.outlier_weights = m->scales;
    return made;
}

/* `added`: one more matrix, or NULL. */
static bertkit_encoder *encoder_of(
    const Model *m, const bertkit_variant_info *info, int variant, const bertkit_matrix *added) {
    bertkit_error error;
    bertkit_builder *builder = NULL;
    bertkit_encoder *encoder = NULL;
    bertkit_shape shape = m->shape;
    shape.order = shape.order ? m->order : NULL; /* the model may have been copied */
    DONE(bertkit_builder_new(&shape, variant, &builder, &error));
    for (int layer = 0; layer < shape.num_stored; layer++) {
        const Attention *a = &m->attention[layer];
        const float *const *rows = (const float *const *)m->distance_rows;
        for (int which = 0; which < 4; which++) {
            bertkit_matrix matrix = matrix_of(m, which, info->kinds);
            DONE(bertkit_builder_set_matrix(builder, layer, which, &matrix, &error));
        }
        for (int n = 0; n < 2; n++) {
            if (shape.gated && n == BERTKIT_NORM_FFN && m->bare && !layer) continue;
            DONE(bertkit_builder_set_norm(builder, layer, n, m->norm[0], m->norm[1], &error));
        }
        if (a->set)
            DONE(bertkit_builder_set_attention(
                builder, layer, a->half_window, a->rotary, m->num_distances, a->keys ? rows[0] : NULL,
                a->queries ? rows[1] : NULL, &error));
    }
    if (shape.gated && m->final_norm) DONE(bertkit_builder_set_norm(builder, -1, 0, m->norm[0], m->norm[1], &error));
    int32_t number;
    if (added) DONE(bertkit_builder_add_matrix(builder, added, &number, &error));
    DONE(bertkit_builder_seal(&builder, &encoder, &error));
    return encoder;
}

#endif
