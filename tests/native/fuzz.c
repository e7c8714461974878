/* Random encoders and batches: every variant beside the plain one, callers in several threads beside one, vectors of
 * sequences and embeddings beside double precision, products of whole numbers, which must be exact, and wrong
 * arguments, which must be refused.
 *
 *     fuzz SEED COUNT
 *
 * Buffers of results end at a page that nobody may touch. Prints what it did; a fault or a difference ends it with 1.
 */
#include "fuzz_model.h"

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
    shape.order = NULL;
    spoil(&shape, offsetof(bertkit_shape, order));
    shape.width = drawn(3) ? shape.width : (int)drawn(1 << 20);
    if (bertkit_builder_new(&shape, (int)drawn(12) - 3, &builder, &error)) refused++;
    bertkit_builder_free(builder);
    builder = NULL;
    shape = m->shape, shape.order = shape.order ? m->order : NULL;
    if (bertkit_builder_new(&shape, -1, &builder, &error)) return;
    bertkit_matrix matrix = matrix_of(m, drawn(4), -1);
    spoil(&matrix, offsetof(bertkit_matrix, weights));
    if (!drawn(4)) matrix.weights = NULL;
    if (bertkit_builder_set_matrix(builder, (int)drawn(5) - 1, drawn(6), &matrix, &error)) refused++;
    const float *shift = drawn(2) ? m->norm[1] : NULL;
    if (bertkit_builder_set_norm(builder, (int)drawn(5) - 2, drawn(3), m->norm[0], shift, &error)) refused++;
    int layer = (int)drawn(4) - 1, window = (int)drawn(9) - 3, rotary = (int)drawn(5) - 2;
    if (bertkit_builder_set_attention(builder, layer, window, rotary, 0, NULL, NULL, &error)) refused++;
    bertkit_encoder *encoder = NULL;
    if (bertkit_builder_seal(&builder, &encoder, &error)) refused++;
    bertkit_builder_free(builder);
    bertkit_encoder_free(encoder);
}

/* How far answers may differ, by the kind of weights: in all but the first three, rows are rounded in every layer. */
static const double TOLERANCES[] = {5e-5, 5e-5, 5e-5, 0.1, 0.02};

/* Of two results; relative where numbers are large, and NaN is equal to NaN. */
static double largest_difference(const float *found, const float *known, int count) {
    double largest = 1.0, worst = 0.0;
    for (int i = 0; i < count; i++)
        if (fabs(known[i]) > largest) largest = fabs(known[i]);
    for (int i = 0; i < count; i++) {
        double difference = fabs((double)found[i] - known[i]) / largest;
        if (!(difference <= worst) && !(isnan(found[i]) && isnan(known[i]))) worst = difference;
    }
    return worst;
}

/* Whether the answer of several threads is not that of one. It is the same to the last bit; but if queries see a window
 * of the keys, what is added up first depends on which queries a thread has.
 */
static int differs(const Model *m, const float *found, const float *alone, int count) {
    for (int i = 0; i < m->shape.num_stored; i++)
        if (m->attention[i].half_window >= 0) return !(largest_difference(found, alone, count) <= TOLERANCES[m->kind]);
    return memcmp(found, alone, count * sizeof *found) != 0;
}

/* One of several callers of one encoder; `wrong`: how often its answer was not that of one thread. */
typedef struct {
    const Model *model;
    const bertkit_encoder *encoder;
    const bertkit_batch *batch;
    const float *alone;
    float *result;
    int count, threads, wrong;
} Caller;

static Ended THREAD_FUNCTION call_often(void *job) {
    Caller *c = job;
    for (int i = 0; i < 3; i++) {
        memset(c->result, 0xff, c->count * sizeof *c->result);
        int failed = bertkit_encode(c->encoder, c->batch, c->result, c->threads, NULL) != BERTKIT_OK;
        c->wrong += failed || differs(c->model, c->result, c->alone, c->count);
    }
    return 0;
}

static int calls_at_once; /* how many calls were made beside others */

/* Whether two to four threads that compute with an encoder at once all get the answer of one. */
static int agree_at_once(
    const Model *m, const bertkit_encoder *encoder, const bertkit_batch *batch, const float *alone, int count) {
    Caller callers[4];
    int several = 2 + (int)drawn(3), wrong = 0;
    for (int i = 0; i < several; i++)
        callers[i] = (Caller){m, encoder, batch, alone, malloc(count * sizeof *alone + 1), count, 1 + (int)drawn(3), 0};
    at_once(call_often, callers, sizeof *callers, several);
    for (int i = 0; i < several; i++) wrong += callers[i].wrong, free(callers[i].result);
    calls_at_once += 3 * several;
    return !wrong;
}

/* Whether an encoder that reads positions refuses to be without them, and with too few. */
static int refuses_positions(const Model *m, const bertkit_encoder *encoder, const bertkit_batch *batch, int longest) {
    static float untouched;
    bertkit_positions few = m->positions;
    bertkit_batch without = *batch, with_few = *batch;
    int needed = m->num_distances > 0;
    for (int i = 0; i < m->shape.num_stored; i++) needed = needed || m->attention[i].rotary >= 0;
    few.longest = longest - 1, with_few.positions = &few, without.positions = NULL;
    if (!bertkit_encode(encoder, &with_few, &untouched, 1, NULL)) return 0;
    refused++;
    if (needed && !bertkit_encode(encoder, &without, &untouched, 1, NULL)) return 0;
    return 1;
}

static double compare(const Model *m) {
    bertkit_error error;
    int32_t starts[6] = {0}, sequences = 1 + drawn(5), wanted[6], wanted_starts[6] = {0}, some = drawn(2), longest = 0;
    for (int b = 0; b < sequences; b++) {
        int length = (int)drawn(drawn(4) ? 9 : LONGEST + 1);
        if (length > longest) longest = length;
        starts[b + 1] = starts[b] + length;
        wanted_starts[b + 1] = wanted_starts[b] + (length > 0);
        if (length) wanted[wanted_starts[b]] = starts[b] + (int)drawn(length);
    }
    int rows = starts[sequences], width = m->shape.width, results = some ? wanted_starts[sequences] : rows;
    int count = results * width;
    float *x = numbers((size_t)rows * width, 1.0f), *plain = NULL, *alone = malloc(count * sizeof *alone + 1);
    bertkit_batch batch = {sizeof batch, sequences, starts, x, NULL, NULL, &m->positions};
    if (some) batch.wanted = wanted, batch.wanted_starts = wanted_starts;
    double worst = 0.0;
    for (int variant = bertkit_num_variants() - 1; variant >= 0; variant--) { /* the plain one is the last */
        bertkit_variant_info info = {.struct_size = sizeof info};
        DONE(bertkit_variant_info_of(variant, &info, &error));
        if (!info.runs) continue;
        bertkit_encoder *encoder = encoder_of(m, &info, variant, NULL);
        ran |= (uint64_t)1 << variant;
        void *base;
        size_t size;
        float *result = guarded(count, &base, &size);
        DONE(bertkit_encode(encoder, &batch, result, 1 + drawn(3), &error));
        DONE(bertkit_encode(encoder, &batch, alone, 1, &error));
        int agree = !differs(m, result, alone, count) && (drawn(3) || agree_at_once(m, encoder, &batch, alone, count));
        if (!agree) printf("%s: threads change the answer\n", info.name), worst = INFINITY;
        if (longest && !refuses_positions(m, encoder, &batch, longest))
            printf("%s: wrong positions were not refused\n", info.name), worst = INFINITY;
        if (!plain) plain = memcpy(malloc(count * sizeof *plain + 1), alone, count * sizeof *plain);
        double difference = largest_difference(result, plain, count);
        if (difference > worst) worst = difference;
        bertkit_batch spoiled = batch;
        spoil(&spoiled, offsetof(bertkit_batch, starts));
        if (spoiled.num_sequences <= sequences && bertkit_encode(encoder, &spoiled, result, 1, &error)) refused++;
        free_guarded(base, size);
        bertkit_encoder_free(encoder);
    }
    free(x), free(plain), free(alone);
    return worst;
}

/* A number of the vector of rows first ... count - 1, in double precision. */
static double pooled(int mode, const float *rows, int first, int count, int width) {
    double sum = 0.0, weights = 0.0, most = -INFINITY;
    for (int r = first; r < count; r++) {
        double weight = mode == BERTKIT_POOL_WEIGHTED_MEAN ? r + 1.0 : 1.0, value = rows[r * width];
        sum += weight * value, weights += weight;
        if (value > most) most = value;
    }
    switch (mode) {
    case BERTKIT_POOL_FIRST: return rows[first * width];
    case BERTKIT_POOL_LAST: return rows[(count - 1) * width];
    case BERTKIT_POOL_MAX: return most;
    case BERTKIT_POOL_MEAN_SQRT: return sum / sqrt(weights);
    default: return sum / weights;
    }
}

/* The largest difference of a vector of a sequence from double precision. */
static double pool(void) {
    bertkit_error error;
    int32_t starts[6] = {0}, sequences = 1 + drawn(5), width = 1 + drawn(100), skipped = drawn(3), mode = 1 + drawn(6);
    for (int b = 0; b < sequences; b++) starts[b + 1] = starts[b] + skipped + 1 + (int)drawn(30);
    float *rows = numbers((size_t)starts[sequences] * width, 2.0f);
    void *base;
    size_t size;
    float *result = guarded((size_t)sequences * width, &base, &size);
    DONE(bertkit_pool(mode, sequences, starts, rows, skipped, width, result, &error));
    double worst = 0.0;
    for (int b = 0; b < sequences; b++)
        for (int c = 0; c < width; c++) {
            const float *column = rows + (size_t)starts[b] * width + c;
            double right = pooled(mode, column, skipped, starts[b + 1] - starts[b], width);
            double difference = fabs(result[b * width + c] - right);
            if (!(difference <= worst)) worst = difference;
        }
    refused += bertkit_pool(mode, sequences, starts, rows, skipped + 40, width, result, &error) != BERTKIT_OK;
    refused += bertkit_pool(drawn(2) ? 0 : 7, sequences, starts, rows, skipped, width, result, &error) != BERTKIT_OK;
    free(rows), free_guarded(base, size);
    return worst;
}

/* Of every variant, the largest difference of an embedding from double precision. */
static double embed(void) {
    bertkit_error error;
    enum { ROWS = 20, TOKENS = 30 };
    int num_tables = 1 + (int)drawn(3), tokens = 1 + (int)drawn(TOKENS), width = 1 + (int)drawn(100);
    float *floats = numbers((size_t)3 * ROWS * width, 1.0f), *scales = numbers(ROWS + width, 0.1f);
    float *norm = numbers((size_t)2 * width, 1.0f);
    int8_t *bytes = malloc((size_t)3 * ROWS * width);
    for (int i = 0; i < 3 * ROWS * width; i++) bytes[i] = (int8_t)((int)drawn(256) - 128);
    int64_t ids[3][TOKENS];
    const int64_t *given[] = {ids[0], ids[1], ids[2]};
    bertkit_table tables[3];
    for (int t = 0; t < num_tables; t++) {
        tables[t] = (bertkit_table){floats + t * ROWS * width, NULL, NULL, ROWS};
        if (drawn(2)) tables[t] = (bertkit_table){bytes + t * ROWS * width, scales, scales + ROWS, ROWS};
        for (int i = 0; i < tokens; i++) ids[t][i] = drawn(ROWS);
    }
    double worst = 0.0, row[100];
    for (int variant = 0; variant < bertkit_num_variants(); variant++) {
        bertkit_variant_info info = {.struct_size = sizeof info};
        DONE(bertkit_variant_info_of(variant, &info, &error));
        if (!info.runs) continue;
        void *base;
        size_t size;
        float *result = guarded((size_t)tokens * width, &base, &size);
        const float *shift = norm + width;
        DONE(bertkit_embed(variant, num_tables, tables, given, tokens, width, 1e-3f, norm, shift, result, &error));
        for (int i = 0; i < tokens; i++) {
            double mean = 0.0, square = 0.0;
            for (int c = 0; c < width; c++) {
                row[c] = 0.0;
                for (int t = 0; t < num_tables; t++) {
                    size_t at = (size_t)ids[t][i] * width + c;
                    if (tables[t].row_scale)
                        row[c] += (double)((const int8_t *)tables[t].rows)[at] * scales[ids[t][i]] * scales[ROWS + c];
                    else
                        row[c] += ((const float *)tables[t].rows)[at];
                }
                mean += row[c] / width;
            }
            for (int c = 0; c < width; c++) square += (row[c] - mean) * (row[c] - mean) / width;
            for (int c = 0; c < width; c++) {
                double right = (row[c] - mean) / sqrt(square + 1e-3f) * norm[c] + shift[c];
                double difference = fabs(result[i * width + c] - right);
                if (!(difference <= worst)) worst = difference;
            }
        }
        int64_t before = ids[0][0];
        ids[0][0] = drawn(2) ? ROWS : -1;
        if (bertkit_embed(variant, num_tables, tables, given, tokens, width, 0, norm, norm, result, &error)) refused++;
        ids[0][0] = before;
        free_guarded(base, size);
    }
    free(floats), free(scales), free(norm), free(bytes);
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
    double worst[5] = {0}, worst_pooled = 0.0, worst_embedded = 0.0;
    for (int round = 0; round < rounds; round++) {
        unsigned long long here = seed + round;
        state = here * 0x9e3779b97f4a7c15u + 1;
        Model m = new_model();
        wrong_arguments(&m);
        double difference = compare(&m), vectors = pool(), embedded = embed();
        if (difference > worst[m.kind]) worst[m.kind] = difference;
        if (vectors > worst_pooled) worst_pooled = vectors;
        if (embedded > worst_embedded) worst_embedded = embedded;
        int exact = exact_products(&m);
        free_model(&m);
        if (!exact) printf("seed %llu: products of whole numbers are wrong\n", here);
        if (difference > TOLERANCES[m.kind]) printf("seed %llu: kind %d differs by %g\n", here, m.kind, difference);
        if (!(vectors < 2e-5)) printf("seed %llu: vectors of sequences differ by %g\n", here, vectors);
        if (!(embedded < 2e-5)) printf("seed %llu: embeddings differ by %g\n", here, embedded);
        if (!exact || difference > TOLERANCES[m.kind] || !(vectors < 2e-5) || !(embedded < 2e-5)) return 1;
    }
    printf("seed %llu: %d encoders, %d wrong arguments refused, %d calls beside others; largest differences: ",
           (unsigned long long)seed, rounds, refused, calls_at_once);
    printf("F32 %.2g, F24 %.2g, F16 %.2g, BF16 %.2g, I8 %.2g, ", worst[0], worst[1], worst[2], worst[3], worst[4]);
    printf("vectors %.2g, embeddings %.2g\n", worst_pooled, worst_embedded);
    for (int variant = 0; variant < bertkit_num_variants(); variant++) {
        bertkit_variant_info info = {.struct_size = sizeof info};
        bertkit_error error;
        DONE(bertkit_variant_info_of(variant, &info, &error));
        printf("%s %s\n", ran >> variant & 1 ? "ran:" : "lacking:", info.name);
    }
    return 0;
}
