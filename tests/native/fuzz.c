/* Random encoders and batches: every variant beside the plain one, products of whole numbers, which must be exact, and
 * wrong arguments, which must be refused.
 *
 *     fuzz SEED COUNT
 *
 * Buffers of results end at a page that nobody may touch. Prints what it did; a fault or a difference ends it with 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif !defined(__wasm__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "bertkit.h"

static uint64_t state;

static uint32_t drawn(uint32_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static float number(void) { return ((float)drawn(1 << 20) / (1 << 20) - 0.5f) * 2.0f; }

static float *numbers(size_t count, float scale) {
    float *made = malloc(count * sizeof *made);
    for (size_t i = 0; i < count; i++) made[i] = number() * scale;
    return made;
}

/* Floats that end where a page begins that may not be touched; WebAssembly has no such pages. */
#if defined(_WIN32)
static float *guarded(size_t count, void **base, size_t *size) {
    size_t page = 4096, bytes = count * sizeof(float);
    DWORD before;
    *size = (bytes + page - 1) / page * page + page;
    *base = VirtualAlloc(NULL, *size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    VirtualProtect((char *)*base + *size - page, page, PAGE_NOACCESS, &before);
    return (float *)((char *)*base + *size - page - bytes);
}
static void free_guarded(void *base, size_t size) { (void)size, VirtualFree(base, 0, MEM_RELEASE); }
#elif defined(__wasm__)
static float *guarded(size_t count, void **base, size_t *size) {
    *size = count * sizeof(float);
    return *base = calloc(count + 1, sizeof(float));
}
static void free_guarded(void *base, size_t size) { (void)size, free(base); }
#else
static float *guarded(size_t count, void **base, size_t *size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * sizeof(float);
    *size = (bytes + page - 1) / page * page + page;
    *base = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect((char *)*base + *size - page, page, PROT_NONE);
    return (float *)((char *)*base + *size - page - bytes);
}
static void free_guarded(void *base, size_t size) { munmap(base, size); }
#endif

#define DONE(CALL) \
    do { \
        if (CALL) { \
            printf("%s: %s\n", bertkit_status_name(error.status), error.text); \
            exit(1); \
        } \
    } while (0)

typedef struct {
    bertkit_shape shape;
    int kind;
    float *weights[4], *biases[4], *scales, *smooth, *norm[2];
    int8_t *bytes[4];
    uint16_t *halves[4]; /* of BF16, whose weights are these numbers as well */
    int outliers[3], narrow, shifts; /* of I8 */
} Model;

static int sizes_of(const Model *m, int which, int *inputs) {
    const bertkit_shape *s = &m->shape;
    int up = s->gated ? 2 * s->inner : s->inner;
    int outputs[] = {3 * s->width, s->width, up, s->width};
    *inputs = which == BERTKIT_DOWN ? s->inner : s->width;
    return outputs[which];
}

static Model new_model(void) {
    Model m = {.shape = {sizeof(bertkit_shape), 1 + (int)drawn(3), 1, NULL, 0, 1 + (int)drawn(4), 1 + (int)drawn(90),
                         1 + (int)drawn(3), 1e-6f, (int)drawn(2)}};
    m.shape.width = m.shape.heads * (2 + 2 * (int)drawn(12));
    m.shape.num_stored = m.shape.num_layers;
    m.narrow = drawn(2), m.shifts = drawn(2);
    m.kind = (int)drawn(BERTKIT_NUM_KINDS);
    int most = m.shape.width > m.shape.inner ? m.shape.width : m.shape.inner;
    m.scales = numbers((size_t)3 * most + 64, 0.0f);
    for (int i = 0; i < 3 * most + 64; i++) m.scales[i] = 0.02f;
    m.smooth = numbers(most, 0.0f);
    for (int i = 1; i < most; i++) m.smooth[i] = 0.02f; /* the first is an outlier */
    for (int n = 0; n < 2; n++) m.norm[n] = numbers(m.shape.width, 1.0f);
    for (int i = 0; i < 3; i++) m.outliers[i] = 0;
    for (int which = 0; which < 4; which++) {
        int inputs, outputs = sizes_of(&m, which, &inputs);
        size_t count = (size_t)outputs * inputs;
        m.weights[which] = numbers(count, 0.5f);
        m.biases[which] = numbers(outputs, 0.3f);
        m.bytes[which] = malloc(4 * count); /* as many bytes as any kind would read */
        memset(m.bytes[which], 0, 4 * count);
        for (size_t i = 0; i < count; i++) m.bytes[which][i] = (int8_t)(m.narrow ? (int)drawn(127) - 63 : (int)drawn(256) - 128);
        m.halves[which] = calloc(count, 4);
        for (size_t i = 0; m.kind == BERTKIT_BF16 && i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &m.weights[which][i], 4);
            m.halves[which][i] = (uint16_t)(bits >> 16), bits &= 0xffff0000u;
            memcpy(&m.weights[which][i], &bits, 4);
        }
        if (m.kind == BERTKIT_F16)
            for (size_t i = 0; i < count; i++) ((uint16_t *)m.weights[which])[i] = (uint16_t)(drawn(0x3c00) | drawn(2) << 15);
    }
    return m;
}

static void free_model(Model *m) {
    for (int which = 0; which < 4; which++)
        free(m->weights[which]), free(m->biases[which]), free(m->bytes[which]), free(m->halves[which]);
    free(m->scales), free(m->smooth), free(m->norm[0]), free(m->norm[1]);
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
    DONE(bertkit_builder_new(&m->shape, variant, &builder, &error));
    for (int layer = 0; layer < m->shape.num_stored; layer++) {
        for (int which = 0; which < 4; which++) {
            bertkit_matrix matrix = matrix_of(m, which, info->kinds);
            DONE(bertkit_builder_set_matrix(builder, layer, which, &matrix, &error));
        }
        for (int n = 0; n < 2; n++) DONE(bertkit_builder_set_norm(builder, layer, n, m->norm[0], m->norm[1], &error));
    }
    int32_t number;
    if (added) DONE(bertkit_builder_add_matrix(builder, added, &number, &error));
    DONE(bertkit_builder_seal(&builder, &encoder, &error));
    return encoder;
}

/* Changes one argument; what is then passed must be refused or computed, and never fault. */
static void spoil(void *structure, size_t size) {
    uint32_t *words = structure;
    static const uint32_t values[] = {0, 1, 0xffffffffu, 0x7fffffffu, 0x80000000u, 3, 1000};
    words[drawn((uint32_t)(size / sizeof *words))] = values[drawn(7)];
}

static int refused;
static uint64_t ran; /* bits of variants */

static void wrong_arguments(const Model *m) {
    bertkit_error error;
    bertkit_builder *builder = NULL;
    bertkit_shape shape = m->shape;
    spoil(&shape, offsetof(bertkit_shape, order));
    shape.width = drawn(3) ? shape.width : (int)drawn(1 << 20);
    if (bertkit_builder_new(&shape, (int)drawn(12) - 3, &builder, &error)) refused++;
    bertkit_builder_free(builder);
    builder = NULL;
    if (bertkit_builder_new(&m->shape, -1, &builder, &error)) return;
    bertkit_matrix matrix = matrix_of(m, drawn(4), -1);
    spoil(&matrix, offsetof(bertkit_matrix, weights));
    if (!drawn(4)) matrix.weights = NULL;
    if (bertkit_builder_set_matrix(builder, (int)drawn(5) - 1, drawn(6), &matrix, &error)) refused++;
    if (bertkit_builder_set_norm(builder, (int)drawn(5) - 2, drawn(3), m->norm[0], drawn(2) ? m->norm[1] : NULL, &error)) refused++;
    if (bertkit_builder_set_attention(builder, (int)drawn(4) - 1, (int)drawn(9) - 3, (int)drawn(5) - 2, 0, NULL, NULL, &error)) refused++;
    bertkit_encoder *encoder = NULL;
    if (bertkit_builder_seal(&builder, &encoder, &error)) refused++;
    bertkit_builder_free(builder);
    bertkit_encoder_free(encoder);
}

static double compare(const Model *m) {
    bertkit_error error;
    int32_t starts[6] = {0}, sequences = 1 + drawn(5), wanted[6], wanted_starts[6] = {0}, some = drawn(2);
    for (int b = 0; b < sequences; b++) {
        int length = (int)drawn(drawn(4) ? 9 : 140);
        starts[b + 1] = starts[b] + length;
        wanted_starts[b + 1] = wanted_starts[b] + (length > 0);
        if (length) wanted[wanted_starts[b]] = starts[b] + (int)drawn(length);
    }
    int rows = starts[sequences], width = m->shape.width, results = some ? wanted_starts[sequences] : rows;
    float *x = numbers((size_t)rows * width + 1, 1.0f), *known = NULL;
    bertkit_batch batch = {sizeof batch, sequences, starts, x, some ? wanted : NULL, some ? wanted_starts : NULL, NULL};
    double worst = 0.0;
    for (int variant = bertkit_num_variants() - 1; variant >= 0; variant--) { /* the plain one is the last */
        bertkit_variant_info info = {.struct_size = sizeof info};
        DONE(bertkit_variant_info_of(variant, &info, &error));
        if (!info.runs) continue;
        bertkit_encoder *encoder = encoder_of(m, &info, variant, NULL);
        ran |= (uint64_t)1 << variant;
        void *base;
        size_t size;
        float *result = guarded((size_t)results * width, &base, &size);
        DONE(bertkit_encode(encoder, &batch, result, 1 + drawn(3), &error));
        double largest = 1.0; /* so differences are relative where numbers are large */
        for (int i = 0; known && i < results * width; i++)
            if (fabs(known[i]) > largest) largest = fabs(known[i]);
        for (int i = 0; known && i < results * width; i++) {
            double difference = fabs((double)result[i] - known[i]) / largest;
            if (!(difference <= worst) && !(isnan(result[i]) && isnan(known[i]))) worst = difference;
        }
        bertkit_batch spoiled = batch;
        spoil(&spoiled, offsetof(bertkit_batch, starts));
        if (spoiled.num_sequences <= sequences && bertkit_encode(encoder, &spoiled, result, 1, &error)) refused++;
        if (!known) {
            known = malloc((size_t)results * width * sizeof *known + 1);
            DONE(bertkit_encode(encoder, &batch, known, 1, &error));
        }
        free_guarded(base, size);
        bertkit_encoder_free(encoder);
    }
    free(x), free(known);
    return worst;
}

/* Products of whole numbers that every kind keeps as they are: any order of sums, of floats or of bytes, gives the same. */
typedef struct {
    int rows, inputs, outputs, shifts;
    float *x, *expected, *ones, *zeros;
    void *weights[BERTKIT_NUM_KINDS];
} WholeNumbers;

static WholeNumbers new_whole_numbers(int kind) {
    WholeNumbers w = {.rows = 1 + (int)drawn(40), .inputs = 1 + (int)drawn(250), .outputs = 1 + (int)drawn(40), .shifts = (int)drawn(2)};
    int bytes = kind == BERTKIT_I8, low = bytes && !w.shifts ? -127 : 0, most = bytes ? w.shifts ? 255 : 127 : 15;
    size_t count = (size_t)w.inputs * w.outputs;
    w.x = malloc((size_t)w.rows * w.inputs * sizeof(float));
    for (int i = 0; i < w.rows * w.inputs; i++) /* the first of a row is the largest, so that a byte is worth 1 */
        w.x[i] = (float)(i % w.inputs ? (int)drawn(most - low + 1) + low : most);
    w.weights[BERTKIT_I8] = calloc(count, 1), w.weights[BERTKIT_F32] = calloc(count, 4);
    w.weights[BERTKIT_F24] = w.weights[BERTKIT_F32];
    w.weights[BERTKIT_F16] = calloc(count, 2), w.weights[BERTKIT_BF16] = calloc(count, 2);
    for (size_t i = 0; i < count; i++) {
        int weight = (int)drawn(bytes ? 256 : 17) - (bytes ? 128 : 8);
        float value = (float)weight;
        uint32_t bits, size = (uint32_t)abs(weight), exponent = 0;
        memcpy(&bits, &value, 4);
        while (size >> (exponent + 1)) exponent++;
        ((int8_t *)w.weights[BERTKIT_I8])[i] = (int8_t)weight;
        ((float *)w.weights[BERTKIT_F32])[i] = value;
        ((uint16_t *)w.weights[BERTKIT_BF16])[i] = (uint16_t)(bits >> 16);
        if (!weight) continue; /* and of halves the sign, the exponent above 15 and ten bits of the fraction */
        ((uint16_t *)w.weights[BERTKIT_F16])[i] =
            (uint16_t)((weight < 0 ? 0x8000u : 0) | (15 + exponent) << 10 | ((size << 10 >> exponent) & 0x3ff));
    }
    w.expected = malloc((size_t)w.rows * w.outputs * sizeof(float));
    for (int r = 0; r < w.rows; r++)
        for (int o = 0; o < w.outputs; o++) {
            int64_t sum = 0;
            for (int i = 0; i < w.inputs; i++)
                sum += (int64_t)w.x[r * w.inputs + i] * (int64_t)((float *)w.weights[BERTKIT_F32])[o * w.inputs + i];
            w.expected[r * w.outputs + o] = (float)sum;
        }
    w.ones = numbers(256, 0.0f), w.zeros = numbers(256, 0.0f);
    for (int i = 0; i < 256; i++) w.ones[i] = 1.0f;
    return w;
}

/* Whether every variant computes them to the last bit; what differs is printed. */
static int exact_products(const Model *m) {
    bertkit_error error;
    WholeNumbers w = new_whole_numbers(m->kind);
    int wrong = 0;
    for (int variant = 0; variant < bertkit_num_variants() && !wrong; variant++) {
        bertkit_variant_info info = {.struct_size = sizeof info};
        DONE(bertkit_variant_info_of(variant, &info, &error));
        if (!info.runs || !(info.kinds >> m->kind & 1)) continue;
        bertkit_matrix matrix = {.struct_size = sizeof matrix, .kind = m->kind, .outputs = w.outputs, .inputs = w.inputs,
                                 .weights = w.weights[m->kind], .bias = w.zeros, .unit = 1.0f, .scale = w.ones,
                                 .smooth = w.ones, .shift = w.shifts ? w.zeros : NULL};
        bertkit_encoder *encoder = encoder_of(m, &info, variant, &matrix);
        void *base;
        size_t size;
        float *result = guarded((size_t)w.rows * w.outputs, &base, &size);
        DONE(bertkit_multiply(encoder, 0, w.x, w.rows, 0, result, &error));
        for (int i = 0; i < w.rows * w.outputs && !wrong; i++)
            if (result[i] != w.expected[i]) {
                printf("%s, kind %d, %d x %d x %d: row %d, output %d is %g, expected %g\n", info.name, m->kind, w.rows, w.inputs,
                       w.outputs, i / w.outputs, i % w.outputs, result[i], w.expected[i]);
                wrong = 1;
            }
        free_guarded(base, size);
        bertkit_encoder_free(encoder);
    }
    free(w.x), free(w.expected), free(w.ones), free(w.zeros);
    for (int kind = 0; kind < BERTKIT_NUM_KINDS; kind++)
        if (kind != BERTKIT_F24) free(w.weights[kind]);
    return !wrong;
}

int main(int count, char **words) {
    uint64_t seed = count > 1 ? strtoull(words[1], NULL, 10) : 1;
    int rounds = count > 2 ? atoi(words[2]) : 100;
    static const double tolerances[] = {2e-5, 2e-5, 2e-5, 0.1, 0.02};
    double worst[5] = {0};
    for (int round = 0; round < rounds; round++) {
        state = (seed + round) * 0x9e3779b97f4a7c15u + 1;
        Model m = new_model();
        wrong_arguments(&m);
        double difference = compare(&m);
        if (difference > worst[m.kind]) worst[m.kind] = difference;
        int exact = exact_products(&m);
        free_model(&m);
        if (!exact) {
            printf("seed %llu: products of whole numbers are wrong\n", (unsigned long long)(seed + round));
            return 1;
        }
        if (difference > tolerances[m.kind]) {
            printf("seed %llu: kind %d differs by %g\n", (unsigned long long)(seed + round), m.kind, difference);
            return 1;
        }
    }
    printf("%d encoders, %d wrong arguments refused; largest differences: ", rounds, refused);
    printf("F32 %.2g, F24 %.2g, F16 %.2g, BF16 %.2g, I8 %.2g\n", worst[0], worst[1], worst[2], worst[3], worst[4]);
    for (int variant = 0; variant < bertkit_num_variants(); variant++) {
        bertkit_variant_info info = {.struct_size = sizeof info};
        bertkit_error error;
        DONE(bertkit_variant_info_of(variant, &info, &error));
        printf("%s %s\n", ran >> variant & 1 ? "ran:" : "lacking:", info.name);
    }
    return 0;
}
