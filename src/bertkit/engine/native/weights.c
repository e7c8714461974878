#include "weights.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu.h"
#include "dispatch.h"
#include "threads.h"
#include "workspace.h"

/* No encoder is wider; products of two sizes fit 32 bits. */
#define MOST_WIDTH 16384
#define MOST_LAYERS 4096
/* Of a matrix that is added; more than any vocabulary has words. */
#define MOST_OUTPUTS (1 << 24)
/* A smaller matrix is packed by one thread before others would have begun. */
#define LEAST_SHARED_BYTES (1 << 16)

static const char *const MATRIX_NAMES[] = {"BERTKIT_QKV", "BERTKIT_OUT", "BERTKIT_UP", "BERTKIT_DOWN"};
static const char *const NORM_NAMES[] = {"BERTKIT_NORM_ATTENTION", "BERTKIT_NORM_FFN"};

static bertkit_status check_shape(const bertkit_shape *shape, bertkit_error *error) {
    FORWARD(check_pointer(shape, sizeof(void *), "shape", error));
    FORWARD(check_size(shape->struct_size, sizeof *shape, "shape", error));
    FORWARD(check_range(shape->num_layers, 1, MOST_LAYERS, "shape.num_layers", error));
    FORWARD(check_range(shape->num_stored, 1, MOST_LAYERS, "shape.num_stored", error));
    FORWARD(check_range(shape->width, 1, MOST_WIDTH, "shape.width", error));
    FORWARD(check_range(shape->heads, 1, shape->width, "shape.heads", error));
    FORWARD(check_range(shape->inner, 1, 4 * MOST_WIDTH, "shape.inner", error));
    FORWARD(check_range(shape->activation, BERTKIT_GELU, BERTKIT_RELU, "shape.activation", error));
    REQUIRE(
        shape->width % shape->heads == 0, BERTKIT_SHAPE, "shape.width is %d, no multiple of the %d heads", shape->width,
        shape->heads);
    REQUIRE(shape->eps >= 0.0f && isfinite(shape->eps), BERTKIT_RANGE, "shape.eps is %g, expected 0 or more", shape->eps);
    REQUIRE(
        shape->order || shape->num_stored == shape->num_layers, BERTKIT_SHAPE,
        "shape.order is NULL, but %d layers are not the %d stored ones", shape->num_layers, shape->num_stored);
    if (shape->order) FORWARD(check_pointer(shape->order, sizeof *shape->order, "shape.order", error));
    for (int i = 0; shape->order && i < shape->num_layers; i++)
        REQUIRE(
            0 <= shape->order[i] && shape->order[i] < shape->num_stored, BERTKIT_RANGE,
            "shape.order[%d] is %d, expected 0 to %d", i, shape->order[i], shape->num_stored - 1);
    return BERTKIT_OK;
}

bertkit_status bertkit_builder_new(
    const bertkit_shape *shape, int32_t variant, bertkit_builder **builder, bertkit_error *error) {
    const Kernels *kernels;
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    FORWARD(check_shape(shape, error));
    FORWARD(kernels_of(variant, &kernels, error));
    register_fork_handlers();
    bertkit_builder *made = calloc(1, sizeof *made);
    Encoder *e = calloc(1, sizeof *e);
    if (e) {
        e->kernels = kernels, e->part_steps = part_steps_here();
        e->packing_threads = shape->threads;
        e->num_layers = shape->num_layers, e->num_stored = shape->num_stored;
        e->width = shape->width, e->heads = shape->heads, e->inner = shape->inner;
        e->activation = shape->activation, e->eps = shape->eps, e->gated = shape->gated != 0;
        e->order = zeros(&e->memory, e->num_layers, sizeof *e->order);
        e->layers = zeros(&e->memory, e->num_stored, sizeof *e->layers);
    }
    if (!made || !e || !e->order || !e->layers) {
        free(made);
        bertkit_encoder_free(e);
        return fail(error, BERTKIT_NO_MEMORY, "no memory for an encoder of %d layers", shape->num_layers);
    }
    for (int i = 0; i < e->num_layers; i++) e->order[i] = shape->order ? shape->order[i] : i;
    for (int i = 0; i < e->num_stored; i++) e->layers[i].half_window = e->layers[i].rotary = -1;
    made->encoder = e;
    *builder = made;
    return BERTKIT_OK;
}

/* A copy that is filled up with zeros to whole panels; of NULL zeros alone. */
static float *filled_up(Encoder *e, const float *values, int count) {
    float *copy = zeros(&e->memory, round_up(count, e->kernels->panel), sizeof *copy);
    if (copy && values) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

/* The sizes that a matrix has in an encoder. */
static void sizes_of(const Encoder *e, int which, int *outputs, int *inputs) {
    int up = e->gated ? 2 * e->inner : e->inner;
    const int all[][2] = {{3 * e->width, e->width}, {e->width, e->width}, {up, e->width}, {e->width, e->inner}};
    *outputs = all[which][0], *inputs = all[which][1];
}

static bertkit_status check_bytes(const bertkit_matrix *m, bertkit_error *error) {
    FORWARD(check_pointer(m->scale, sizeof(float), "matrix.scale", error));
    FORWARD(check_pointer(m->smooth, sizeof(float), "matrix.smooth", error));
    FORWARD(check_range(m->num_outliers, 0, m->inputs, "matrix.num_outliers", error));
    if (m->shift) FORWARD(check_pointer(m->shift, sizeof(float), "matrix.shift", error));
    /* Some variants add products of two neighbours in 16 bits, which wider weights would leave. */
    const int8_t *weights = m->weights;
    for (size_t i = 0, count = m->narrow ? (size_t)m->outputs * m->inputs : 0; i < count; i++)
        REQUIRE(
            -63 <= weights[i] && weights[i] <= 63, BERTKIT_RANGE, "matrix.weights[%zu] is %d; narrow ones are -63 to 63", i,
            weights[i]);
    if (!m->num_outliers) return BERTKIT_OK;
    FORWARD(check_pointer(m->outliers, sizeof(int32_t), "matrix.outliers", error));
    FORWARD(check_pointer(m->outlier_weights, sizeof(float), "matrix.outlier_weights", error));
    for (int i = 0; i < m->num_outliers; i++) {
        REQUIRE(
            0 <= m->outliers[i] && m->outliers[i] < m->inputs, BERTKIT_RANGE, "matrix.outliers[%d] is %d, expected 0 to %d",
            i, m->outliers[i], m->inputs - 1);
        REQUIRE(
            m->smooth[m->outliers[i]] == 0.0f, BERTKIT_RANGE, "matrix.smooth[%d] is %g, expected 0: it is an outlier",
            m->outliers[i], m->smooth[m->outliers[i]]);
    }
    return BERTKIT_OK;
}

/* What a matrix needs wherever it is. */
static bertkit_status check_kind(const Encoder *e, const bertkit_matrix *m, bertkit_error *error) {
    FORWARD(check_pointer(m, sizeof(void *), "matrix", error));
    FORWARD(check_size(m->struct_size, sizeof *m, "matrix", error));
    FORWARD(check_range(m->kind, 0, BERTKIT_NUM_KINDS - 1, "matrix.kind", error));
    REQUIRE(
        e->kernels->kinds >> m->kind & 1, BERTKIT_NO_KIND, "variant %s does not multiply weights of kind %d",
        e->kernels->name, m->kind);
    return BERTKIT_OK;
}

/* Of a matrix whose sizes are right. */
static bertkit_status check_arrays(const bertkit_matrix *m, bertkit_error *error) {
    size_t alignment = m->kind == BERTKIT_I8 ? 1 : WEIGHT_SIZE[m->kind] == 2 ? 2 : 4;
    FORWARD(check_pointer(m->weights, alignment, "matrix.weights", error));
    FORWARD(check_pointer(m->bias, sizeof(float), "matrix.bias", error));
    REQUIRE(
        m->kind == BERTKIT_I8 || (isfinite(m->unit) && m->unit > 0.0f), BERTKIT_RANGE,
        "matrix.unit is %g, expected 1, or of F16 a power of two", m->unit);
    return m->kind == BERTKIT_I8 ? check_bytes(m, error) : BERTKIT_OK;
}

static bertkit_status check_matrix(
    const Encoder *e, int32_t layer, int32_t which, const bertkit_matrix *m, bertkit_error *error) {
    int outputs, inputs;
    FORWARD(check_kind(e, m, error));
    FORWARD(check_range(layer, 0, e->num_stored - 1, "layer", error));
    FORWARD(check_range(which, 0, BERTKIT_NUM_MATRICES - 1, "which", error));
    sizes_of(e, which, &outputs, &inputs);
    REQUIRE(
        m->outputs == outputs && m->inputs == inputs, BERTKIT_SHAPE, "%s of layer %d has shape (%d, %d), expected (%d, %d)",
        MATRIX_NAMES[which], layer, m->outputs, m->inputs, outputs, inputs);
    FORWARD(check_arrays(m, error));
    REQUIRE(!e->layers[layer].matrices[which].panels, BERTKIT_TWICE, "%s of layer %d is set", MATRIX_NAMES[which], layer);
    return BERTKIT_OK;
}

/* Of I8, what belongs to a matrix besides its weights. */
static int copy_scales(Encoder *e, Matrix *m, const bertkit_matrix *given) {
    int width = round_up(m->outputs, e->kernels->panel), count = given->num_outliers;
    int stands_for_signed = !given->shift, differs = stands_for_signed != e->kernels->signed_bytes;
    m->scale = filled_up(e, given->scale, m->outputs);
    m->smooth = filled_up(e, given->smooth, m->inputs);
    m->shift = given->shift ? filled_up(e, given->shift, m->inputs) : NULL;
    m->offset = differs ? zeros(&e->memory, width, sizeof *m->offset) : NULL;
    m->narrow = given->narrow != 0, m->num_outliers = count;
    m->outliers = zeros(&e->memory, count, sizeof *m->outliers);
    m->outlier_weights = zeros(&e->memory, (size_t)count * width, sizeof *m->outlier_weights);
    if ((given->shift && !m->shift) || (differs && !m->offset)) return 0;
    if (!m->scale || !m->smooth || !m->outliers || !m->outlier_weights) return 0;
    for (int i = 0; i < count; i++) {
        const float *from = given->outlier_weights + (size_t)i * m->outputs;
        m->outliers[i] = given->outliers[i];
        memcpy(m->outlier_weights + (size_t)i * width, from, m->outputs * sizeof *from);
    }
    return 1;
}

typedef struct {
    const Kernels *kernels;
    Matrix *matrix;
    const void *weights;
} Packing;

/* A member's share of the panels. */
static void pack_share(void *job, Team *team, int member) {
    const Packing *p = job;
    int panels = (p->matrix->outputs + p->kernels->panel - 1) / p->kernels->panel;
    int from = (int)((int64_t)panels * member / team->size), to = (int)((int64_t)panels * (member + 1) / team->size);
    p->kernels->pack_weights(p->matrix, p->weights, from, to);
}

/* A packed copy; 0: no memory. */
static int pack_matrix(Encoder *e, const bertkit_matrix *given, Matrix *packed) {
    Matrix made = {.kind = given->kind, .outputs = given->outputs, .inputs = given->inputs, .unit = 1.0f};
    size_t columns = round_up(made.outputs, e->kernels->panel), rows = round_up(made.inputs, MOST_STEP_INPUTS), bytes;
    made.part_steps = e->part_steps;
    if (made.kind != BERTKIT_I8) made.unit = given->unit;
    /* Vectors of three-byte weights are read with what stands behind them. */
    if (!multiplied(columns, rows * WEIGHT_SIZE[made.kind], &bytes) || bytes > SIZE_MAX - 64) return 0;
    made.panels = zeros(&e->memory, bytes + 64, 1);
    made.bias = filled_up(e, given->bias, made.outputs);
    if (!made.panels || !made.bias || (made.kind == BERTKIT_I8 && !copy_scales(e, &made, given))) return 0;
    Packing job = {e->kernels, &made, given->weights};
    run_team(pack_share, &job, bytes < LEAST_SHARED_BYTES ? 1 : e->packing_threads);
    *packed = made;
    return 1;
}

bertkit_status bertkit_builder_set_matrix(
    bertkit_builder *builder, int32_t layer, int32_t which, const bertkit_matrix *matrix, bertkit_error *error) {
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    Encoder *e = builder->encoder;
    FORWARD(check_matrix(e, layer, which, matrix, error));
    int packed = pack_matrix(e, matrix, &e->layers[layer].matrices[which]);
    REQUIRE(packed, BERTKIT_NO_MEMORY, "no memory for %s of layer %d", MATRIX_NAMES[which], layer);
    return BERTKIT_OK;
}

bertkit_status bertkit_builder_add_matrix(
    bertkit_builder *builder, const bertkit_matrix *matrix, int32_t *number, bertkit_error *error) {
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    FORWARD(check_pointer(number, sizeof *number, "number", error));
    Encoder *e = builder->encoder;
    FORWARD(check_kind(e, matrix, error));
    FORWARD(check_range(matrix->outputs, 1, MOST_OUTPUTS, "matrix.outputs", error));
    FORWARD(check_range(matrix->inputs, 1, 4 * MOST_WIDTH, "matrix.inputs", error));
    FORWARD(check_arrays(matrix, error));
    FORWARD(check_range(e->num_added, 0, MOST_ADDED - 1, "the number of matrices that were added", error));
    REQUIRE(pack_matrix(e, matrix, &e->added[e->num_added]), BERTKIT_NO_MEMORY, "no memory for matrix %d", e->num_added);
    *number = e->num_added++;
    return BERTKIT_OK;
}

bertkit_status bertkit_builder_set_norm(
    bertkit_builder *builder, int32_t layer, int32_t which, const float *scale, const float *shift,
    bertkit_error *error) {
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    Encoder *e = builder->encoder;
    FORWARD(check_range(layer, -1, e->num_stored - 1, "layer", error));
    REQUIRE(
        layer >= 0 || e->gated, BERTKIT_SHAPE,
        "layer is -1, but only gated layers have a normalization after the top one");
    FORWARD(check_range(which, 0, layer < 0 ? 0 : BERTKIT_NUM_NORMS - 1, "which", error));
    FORWARD(check_pointer(scale, sizeof *scale, "scale", error));
    FORWARD(check_pointer(shift, sizeof *shift, "shift", error));
    float **norm = layer < 0 ? e->final_norm : e->layers[layer].norm[which];
    REQUIRE(!norm[0], BERTKIT_TWICE, "normalization %d of layer %d is set", which, layer);
    float *copies[] = {filled_up(e, scale, e->width), filled_up(e, shift, e->width)};
    REQUIRE(copies[0] && copies[1], BERTKIT_NO_MEMORY, "no memory for a normalization of layer %d", layer);
    memcpy(norm, copies, sizeof copies);
    return BERTKIT_OK;
}

static float *head_panels(Encoder *e, const float *rows, int num_rows) {
    int size = e->width / e->heads;
    size_t filled = round_up(num_rows, e->kernels->panel), step = filled * size;
    float *panels = zeros(&e->memory, filled, e->width * sizeof *panels);
    for (int h = 0; panels && h < e->heads; h++)
        e->kernels->pack_rows(rows + h * size, e->width, num_rows, size, panels + h * step);
    return panels;
}

bertkit_status bertkit_builder_set_attention(
    bertkit_builder *builder, int32_t layer, int32_t half_window, int32_t rotary, int32_t num_distances,
    const float *keys, const float *queries, bertkit_error *error) {
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    Encoder *e = builder->encoder;
    FORWARD(check_range(layer, 0, e->num_stored - 1, "layer", error));
    FORWARD(check_range(half_window, -1, INT32_MAX / 4, "half_window", error));
    FORWARD(check_range(rotary, -1, 1, "rotary", error));
    FORWARD(check_range(num_distances, 0, 1 << 20, "num_distances", error));
    REQUIRE(
        num_distances || (!keys && !queries), BERTKIT_SHAPE, "num_distances is 0, but keys or queries of distances are given");
    if (keys) FORWARD(check_pointer(keys, sizeof *keys, "keys", error));
    if (queries) FORWARD(check_pointer(queries, sizeof *queries, "queries", error));
    REQUIRE(
        rotary < 0 || e->width / e->heads % 2 == 0, BERTKIT_SHAPE, "rotary positions need heads of even width, got %d",
        e->width / e->heads);
    Layer *l = &e->layers[layer];
    REQUIRE(!l->has_attention, BERTKIT_TWICE, "attention of layer %d is set", layer);
    float *packed_keys = keys ? head_panels(e, keys, num_distances) : NULL;
    float *packed_queries = queries ? head_panels(e, queries, num_distances) : NULL;
    REQUIRE(
        (!keys || packed_keys) && (!queries || packed_queries), BERTKIT_NO_MEMORY, "no memory for distances of layer %d",
        layer);
    l->half_window = half_window, l->rotary = rotary, l->num_distances = num_distances, l->has_attention = 1;
    l->distance_keys = packed_keys, l->distance_queries = packed_queries;
    return BERTKIT_OK;
}

static bertkit_status check_layer(const Encoder *e, int number, bertkit_error *error) {
    const Layer *l = &e->layers[number];
    for (int which = 0; which < BERTKIT_NUM_MATRICES; which++)
        REQUIRE(
            l->matrices[which].panels, BERTKIT_INCOMPLETE, "%s of layer %d is not set", MATRIX_NAMES[which], number);
    for (int which = 0; which < BERTKIT_NUM_NORMS; which++)
        REQUIRE(
            l->norm[which][0] || (e->gated && which == BERTKIT_NORM_FFN), BERTKIT_INCOMPLETE, "%s of layer %d is not set",
            NORM_NAMES[which], number);
    REQUIRE(
        l->num_distances == e->layers[0].num_distances, BERTKIT_SHAPE, "layer %d has %d distances, layer 0 has %d", number,
        l->num_distances, e->layers[0].num_distances);
    return BERTKIT_OK;
}

bertkit_status bertkit_builder_seal(bertkit_builder **builder, bertkit_encoder **encoder, bertkit_error *error) {
    FORWARD(check_pointer(builder, sizeof(void *), "builder", error));
    FORWARD(check_pointer(*builder, sizeof(void *), "*builder", error));
    FORWARD(check_pointer(encoder, sizeof(void *), "encoder", error));
    Encoder *e = (*builder)->encoder;
    for (int i = 0; i < e->num_stored; i++) {
        FORWARD(check_layer(e, i, error));
        if (e->layers[i].rotary >= 0) e->rotary_tables |= 1 << e->layers[i].rotary;
        if (e->layers[i].num_distances) e->has_distances = 1;
    }
    *encoder = e;
    free(*builder);
    *builder = NULL;
    return BERTKIT_OK;
}

void bertkit_builder_free(bertkit_builder *builder) {
    if (builder) bertkit_encoder_free(builder->encoder);
    free(builder);
}

void bertkit_encoder_free(bertkit_encoder *e) {
    if (!e) return;
    free_idle(e);
    free_all(e->memory);
    free(e);
}
