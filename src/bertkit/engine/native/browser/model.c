#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"

static const char MAGIC[8] = "BERTKIT1";
#define LONGEST_WORD 100 /* characters, as everywhere in BERT */
#define MOST_LAYERS 48
#define MOST_NUMBER (1 << 20)
#define MOST_BYTES ((size_t)1 << 30) /* of a file; a size_t of 32 bits holds all that is made of it */

/* Numbers of the matrices that are added to the encoder, in this order. */
enum { BEFORE_WORDS, WORDS, VECTOR };

struct model {
    model_sizes sizes;
    float eps;
    const uint16_t *words; /* [words][width], in the file */
    float *kept;           /* what the pointers below point into */
    float *positions, *segments, *scale, *shift, *words_scale, *words_shift;
    bertkit_encoder *encoder;
    wordpiece *tokenizer;
    int64_t *ids;                          /* [3][positions]: rows of the tables, below */
    float *rows, *hidden, *logits;         /* of one text: [positions][width] twice; [words] */
};

/* ---- Reading ---- */

/* What is left of the weights, and the floats that they become. */
typedef struct {
    const uint16_t *halves;
    float *floats;
} Reader;

static float as_float(uint16_t half) {
    uint32_t size = half & 0x7fffu, bits = size << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p112f; /* the biases of exponents differ by 112; small numbers come out right as well */
    return half >> 15 ? -value : value;
}

/* The next floats. */
static float *take(Reader *r, size_t count) {
    float *taken = r->floats;
    for (size_t i = 0; i < count; i++) taken[i] = as_float(r->halves[i]);
    r->halves += count, r->floats += count;
    return taken;
}

static bertkit_matrix take_matrix(Reader *r, int32_t outputs, int32_t inputs) {
    float *weights = take(r, (size_t)outputs * inputs), *bias = take(r, outputs);
    return (bertkit_matrix){
        .struct_size = sizeof(bertkit_matrix), .kind = BERTKIT_F32, .outputs = outputs, .inputs = inputs,
        .weights = weights, .bias = bias, .unit = 1.0f};
}

static uint64_t layer_weights(const model_sizes *s) {
    uint64_t width = s->width, inner = s->inner;
    return (3 * width + 1) * width + 2 * width + (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width;
}

/* Weights besides the rows of words, which stay where they are. */
static uint64_t other_weights(const model_sizes *s) {
    uint64_t width = s->width;
    return (s->positions + (uint64_t)s->segments) * width + 2 * width + s->layers * layer_weights(s) + (width + 1) * width +
        2 * width + s->words + (2 * width + 1) * s->vector;
}

static bertkit_status check_sizes(const model_sizes *s, bertkit_error *error) {
    FORWARD(check_range(s->layers, 1, MOST_LAYERS, "layers of the model's file", error));
    FORWARD(check_range(s->width, 1, 1 << 12, "width of the model's file", error));
    FORWARD(check_range(s->inner, 1, 1 << 14, "inner of the model's file", error));
    FORWARD(check_range(s->words, NUM_SPECIAL, MOST_NUMBER, "words of the model's file", error));
    FORWARD(check_range(s->positions, 3, MOST_NUMBER, "positions of the model's file", error));
    FORWARD(check_range(s->segments, 1, 16, "segments of the model's file", error));
    FORWARD(check_range(s->vector, 1, 1 << 14, "vector of the model's file", error));
    FORWARD(check_range(s->vector_tokens, 3, s->positions, "vector_tokens of the model's file", error));
    FORWARD(check_range(s->entry_bytes, 1, 1 << 26, "entry_bytes of the model's file", error));
    for (int i = 0; i < NUM_SPECIAL; i++)
        FORWARD(check_range(s->special[i], 0, s->words - 1, "special of the model's file", error));
    return BERTKIT_OK;
}

/* Queries become exponents of two: scores are multiplied with log2(e) / sqrt(width of a head). */
static void scale_queries(const model_sizes *s, bertkit_matrix *qkv) {
    float factor = (float)(1.4426950408889634 / sqrt((double)s->width / s->heads));
    float *weights = (float *)qkv->weights, *bias = (float *)qkv->bias;
    for (size_t i = 0; i < (size_t)s->width * s->width; i++) weights[i] *= factor;
    for (int i = 0; i < s->width; i++) bias[i] *= factor;
}

static bertkit_status set_layer(
    const model_sizes *s, bertkit_builder *builder, int32_t layer, Reader *r, bertkit_error *error) {
    const int32_t sizes[BERTKIT_NUM_MATRICES][2] = {
        [BERTKIT_QKV] = {3 * s->width, s->width}, [BERTKIT_OUT] = {s->width, s->width},
        [BERTKIT_UP] = {s->inner, s->width}, [BERTKIT_DOWN] = {s->width, s->inner}};
    for (int32_t which = 0; which < BERTKIT_NUM_MATRICES; which++) {
        bertkit_matrix matrix = take_matrix(r, sizes[which][0], sizes[which][1]);
        if (which == BERTKIT_QKV) scale_queries(s, &matrix);
        FORWARD(bertkit_builder_set_matrix(builder, layer, which, &matrix, error));
    }
    for (int32_t which = 0; which < BERTKIT_NUM_NORMS; which++) {
        float *scale = take(r, s->width), *shift = take(r, s->width);
        FORWARD(bertkit_builder_set_norm(builder, layer, which, scale, shift, error));
    }
    return BERTKIT_OK;
}

static bertkit_status set_weights(model *m, bertkit_builder *builder, Reader *r, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    int32_t number;
    m->positions = take(r, (size_t)s->positions * s->width);
    m->segments = take(r, (size_t)s->segments * s->width);
    m->scale = take(r, s->width), m->shift = take(r, s->width);
    for (int32_t layer = 0; layer < s->layers; layer++) FORWARD(set_layer(s, builder, layer, r, error));
    bertkit_matrix before = take_matrix(r, s->width, s->width);
    FORWARD(bertkit_builder_add_matrix(builder, &before, &number, error));
    m->words_scale = take(r, s->width), m->words_shift = take(r, s->width);
    bertkit_matrix words = {
        .struct_size = sizeof words, .kind = BERTKIT_F16, .outputs = s->words, .inputs = s->width, .weights = m->words,
        .bias = take(r, s->words), .unit = 1.0f};
    FORWARD(bertkit_builder_add_matrix(builder, &words, &number, error));
    bertkit_matrix vector = take_matrix(r, s->vector, 2 * s->width);
    return bertkit_builder_add_matrix(builder, &vector, &number, error);
}

static bertkit_status build(model *m, const uint16_t *halves, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    bertkit_shape shape = {
        .struct_size = sizeof shape, .num_layers = s->layers, .num_stored = s->layers, .width = s->width,
        .heads = s->heads, .inner = s->inner, .activation = BERTKIT_GELU, .eps = m->eps};
    bertkit_builder *builder;
    FORWARD(bertkit_builder_new(&shape, -1, &builder, error));
    Reader reader = {halves, m->kept};
    bertkit_status status = set_weights(m, builder, &reader, error);
    if (!status) status = bertkit_builder_seal(&builder, &m->encoder, error);
    if (status) bertkit_builder_free(builder);
    return status;
}

static int allocate(model *m) {
    const model_sizes *s = &m->sizes;
    size_t rows = (size_t)s->positions * s->width;
    m->kept = malloc(other_weights(s) * sizeof(float));
    m->ids = calloc((size_t)3 * s->positions, sizeof *m->ids);
    m->rows = malloc(rows * sizeof(float)), m->hidden = malloc(rows * sizeof(float));
    m->logits = malloc((size_t)s->words * sizeof(float));
    return m->kept && m->ids && m->rows && m->hidden && m->logits;
}

static bertkit_status read_model(model *m, const char *file, size_t size, bertkit_error *error) {
    const size_t header = sizeof MAGIC + sizeof m->sizes + sizeof m->eps;
    REQUIRE(size >= header && !memcmp(file, MAGIC, sizeof MAGIC), BERTKIT_SHAPE, "this is not a model's file");
    memcpy(&m->sizes, file + sizeof MAGIC, sizeof m->sizes);
    memcpy(&m->eps, file + header - sizeof m->eps, sizeof m->eps);
    const model_sizes *s = &m->sizes;
    FORWARD(check_sizes(s, error));
    uint64_t word_weights = (uint64_t)s->words * s->width, weights = word_weights + other_weights(s);
    uint64_t expected = header + weights * sizeof(uint16_t) + s->entry_bytes;
    REQUIRE(
        size == expected && size < MOST_BYTES, BERTKIT_SHAPE, "the model's file has %zu bytes, expected %llu", size,
        (unsigned long long)expected);
    REQUIRE(allocate(m), BERTKIT_NO_MEMORY, "no memory for the model");
    m->words = (const uint16_t *)(file + header);
    FORWARD(build(m, m->words + word_weights, error));
    wordpiece_options options = {
        .entries = (const char *)(m->words + weights), .size = s->entry_bytes, .lower = 1, .strip_accents = 1,
        .chinese = 1, .longest_word = LONGEST_WORD, .unknown = s->special[UNK], .num_whole = NUM_SPECIAL,
        .whole = s->special};
    FORWARD(wordpiece_new(&options, &m->tokenizer, error));
    REQUIRE(
        wordpiece_num_entries(m->tokenizer) == s->words, BERTKIT_SHAPE, "the model's file has %d entries, expected %d",
        wordpiece_num_entries(m->tokenizer), s->words);
    return BERTKIT_OK;
}

bertkit_status model_new(const void *file, size_t size, model **made, bertkit_error *error) {
    FORWARD(check_pointer(file, sizeof(int32_t), "file", error));
    FORWARD(check_pointer(made, sizeof(void *), "made", error));
    model *m = calloc(1, sizeof *m);
    REQUIRE(m, BERTKIT_NO_MEMORY, "no memory for the model");
    bertkit_status status = read_model(m, file, size, error);
    if (status) model_free(m);
    else *made = m;
    return status;
}

void model_free(model *m) {
    if (!m) return;
    bertkit_encoder_free(m->encoder), wordpiece_free(m->tokenizer);
    free(m->kept), free(m->ids), free(m->rows), free(m->hidden), free(m->logits);
    free(m);
}

const model_sizes *model_sizes_of(const model *m) { return &m->sizes; }

wordpiece *model_tokenizer(const model *m) { return m->tokenizer; }

/* ---- Computing ---- */

/* Embeddings of [CLS], some pieces and [SEP] in `rows`. Only the rows of these words are made floats, so that the row of
 * each token in that table has its own place as its number. */
static bertkit_status embed(model *m, const wordpiece_piece *pieces, int32_t tokens, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    int64_t *places = m->ids, *segments = m->ids + s->positions; /* the latter stay 0 */
    for (int32_t t = 0; t < tokens; t++) {
        int32_t id = t == 0 ? s->special[CLS] : t == tokens - 1 ? s->special[SEP] : pieces[t - 1].id;
        const uint16_t *row = m->words + (size_t)id * s->width;
        for (int32_t i = 0; i < s->width; i++) m->hidden[(size_t)t * s->width + i] = as_float(row[i]);
        places[t] = t;
    }
    const bertkit_table tables[] = {
        {.rows = m->hidden, .num_rows = tokens}, {.rows = m->positions, .num_rows = s->positions},
        {.rows = m->segments, .num_rows = s->segments}};
    const int64_t *ids[] = {places, places, segments};
    return bertkit_embed(-1, 3, tables, ids, tokens, s->width, m->eps, m->scale, m->shift, m->rows, error);
}

/* The top layer in `hidden`. */
static bertkit_status encode(model *m, const wordpiece_piece *pieces, int32_t tokens, bertkit_error *error) {
    FORWARD(embed(m, pieces, tokens, error));
    const int32_t starts[] = {0, tokens};
    bertkit_batch batch = {.struct_size = sizeof batch, .num_sequences = 1, .starts = starts, .rows = m->rows};
    return bertkit_encode(m->encoder, &batch, m->hidden, 1, error);
}

static bertkit_status check_length(int32_t tokens, int32_t most, bertkit_error *error) {
    REQUIRE(
        tokens <= most, BERTKIT_TOO_LONG, "it has %d tokens, special tokens included; the limit is %d: shorten it", tokens, most);
    return BERTKIT_OK;
}

static void normalize(float *vector, int32_t size) {
    double squares = 0.0;
    for (int32_t i = 0; i < size; i++) squares += (double)vector[i] * vector[i];
    float length = (float)sqrt(squares);
    for (int32_t i = 0; i < size; i++) vector[i] /= length > 1e-12f ? length : 1e-12f;
}

bertkit_status model_vector(model *m, const char *text, size_t size, float *vector, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    const wordpiece_piece *pieces;
    int32_t count;
    FORWARD(wordpiece_cut(m->tokenizer, text, size, &pieces, &count, error));
    int32_t tokens = count + 2;
    FORWARD(check_length(tokens, s->vector_tokens, error));
    FORWARD(encode(m, pieces, tokens, error));
    const int32_t starts[] = {0, tokens};
    float *pooled = m->rows;
    memcpy(pooled, m->hidden, s->width * sizeof *pooled);
    FORWARD(bertkit_pool(BERTKIT_POOL_MEAN, 1, starts, m->hidden, 0, s->width, pooled + s->width, error));
    FORWARD(bertkit_multiply(m->encoder, VECTOR, pooled, 1, 0, vector, error));
    normalize(vector, s->vector);
    return BERTKIT_OK;
}

/* The words with the largest logits, and their share of all exponentials. */
static void likeliest(const float *logits, int32_t words, int32_t most, candidate *result) {
    int32_t count = 0;
    for (int32_t id = 0; id < words; id++) {
        if (count == most && !(logits[id] > result[most - 1].probability)) continue;
        int32_t place = count < most ? count++ : most - 1;
        for (; place > 0 && logits[id] > result[place - 1].probability; place--) result[place] = result[place - 1];
        result[place] = (candidate){id, logits[id]};
    }
    float top = result[0].probability;
    double sum = 0.0;
    for (int32_t id = 0; id < words; id++) sum += exp((double)logits[id] - top);
    for (int32_t i = 0; i < most; i++) result[i].probability = (float)(exp((double)result[i].probability - top) / sum);
}

/* Of the token whose vector is `hidden`. */
static bertkit_status fill_one(model *m, const float *hidden, int32_t most, candidate *result, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    const bertkit_table table = {.rows = m->rows, .num_rows = 1};
    const int64_t *zero = m->ids + s->positions;
    FORWARD(bertkit_multiply(m->encoder, BEFORE_WORDS, hidden, 1, BERTKIT_GELU, m->rows, error));
    float *normed = m->rows + s->width; /* a table of one row "embeds" it: normalization alone */
    FORWARD(bertkit_embed(-1, 1, &table, &zero, 1, s->width, m->eps, m->words_scale, m->words_shift, normed, error));
    FORWARD(bertkit_multiply(m->encoder, WORDS, normed, 1, 0, m->logits, error));
    likeliest(m->logits, s->words, most, result);
    return BERTKIT_OK;
}

bertkit_status model_fill(
    model *m, const char *text, size_t size, int32_t most, candidate *result, int32_t *masks, bertkit_error *error) {
    const model_sizes *s = &m->sizes;
    const wordpiece_piece *pieces;
    int32_t count, found = 0;
    FORWARD(check_range(most, 1, s->words, "most", error));
    FORWARD(wordpiece_cut(m->tokenizer, text, size, &pieces, &count, error));
    FORWARD(check_length(count + 2, s->positions, error));
    for (int32_t i = 0; i < count; i++) found += pieces[i].id == s->special[MASK];
    REQUIRE(found, BERTKIT_RANGE, "it has no [MASK]; write [MASK] in place of a word");
    FORWARD(encode(m, pieces, count + 2, error));
    *masks = 0;
    for (int32_t i = 0; i < count; i++)
        if (pieces[i].id == s->special[MASK])
            FORWARD(fill_one(m, m->hidden + (size_t)(i + 1) * s->width, most, result + most * (*masks)++, error));
    return BERTKIT_OK;
}
