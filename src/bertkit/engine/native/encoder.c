/* The layers of a BERT encoder over sequences without padding, computed in one call.
 *
 *   x = norm(x + attention(x)), then x = norm(x + ffn(x)), in each layer (Devlin et al. 2019)
 *
 * A team of threads divides a call in one of two ways. With few tokens, reading the weights takes the time: all members
 * compute all rows, each its share of a matrix's columns, and meet after every step. With many, each takes its own rows
 * through a whole layer, in blocks that stay in its cache, and the team meets once a layer, before attention, which
 * reads the keys and values of other rows.
 */
#include "attention.h"
#include "products.h"
#include "threads.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define VERSION 1
/* Rows that go through the feed-forward block together. */
#define BLOCK_ROWS 96
/* Up to so many rows for each thread, a team divides matrices by columns. */
#define FEW_ROWS 48

typedef struct {
    Matrix qkv, out, up, down;
    float *norm[4]; /* scale and shift after attention, scale and shift after the feed-forward block */
} Layer;

/* Buffers of one call; kept for the next one. */
typedef struct Workspace {
    struct Workspace *next;
    int tokens, longest, members;
    float *x, *qkv[2], *attended, *chosen_x, *chosen_q, *inner, *scratch;
    void *x_converted, *attended_converted, *inner_converted;
    float *x_scales, *attended_scales, *inner_scales;
} Workspace;

typedef struct {
    int num_layers, num_stored, width, heads, inner, activation;
    float eps;
    int *order; /* the stored layer at each depth */
    Layer *layers;
    pthread_mutex_t lock;
    Workspace *idle;
} Encoder;

/* One call: B sequences end to end, and the rows of the top layer that are wanted (NULL: all). */
typedef struct {
    const Encoder *encoder;
    const float *x;
    const int32_t *starts; /* [sequences + 1] */
    const int32_t *rows, *row_starts;
    float *result;
    int sequences, tokens, num_rows;
    Workspace *space;
} Call;

/* One member's part in a call. */
typedef struct {
    const Call *call;
    Team *team;
    int member, by_columns;
} Part;

static int stride_of(int width) { return round_up(width, PANEL) + PANEL; } /* no power of two: rows would share cache sets */

static void share(int total, int member, int members, int *first, int *last) {
    *first = (int)((long)total * member / members);
    *last = (int)((long)total * (member + 1) / members);
}

/* Memory that is aligned and 0, in huge pages where there are any: weights are read from front to back in every call. */
static void *zeros(size_t bytes) {
    size_t step = bytes >= (4u << 20) ? (2u << 20) : 64;
    void *memory = NULL;
    bytes = (bytes + step - 1) / step * step;
    if (posix_memalign(&memory, step, bytes ? bytes : step)) return NULL;
#if defined(MADV_HUGEPAGE)
    if (step > 64) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 0, bytes);
    return memory;
}

static void free_workspace(Workspace *w) {
    void *all[] = {w->x, w->qkv[0], w->qkv[1], w->attended, w->chosen_x, w->chosen_q, w->inner, w->scratch,
                   w->x_converted, w->attended_converted, w->inner_converted,
                   w->x_scales, w->attended_scales, w->inner_scales, w};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static Workspace *new_workspace(const Encoder *e, int tokens, int longest, int members) {
    Workspace *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    size_t rows = tokens, wide = stride_of(e->width), inner = stride_of(e->inner), triple = stride_of(3 * e->width);
    size_t blocks = members * BLOCK_ROWS > FEW_ROWS * members ? (size_t)members * BLOCK_ROWS : (size_t)members * FEW_ROWS;
    size_t head = e->width / e->heads, keys = round_up(longest, PANEL);
    w->tokens = tokens, w->longest = longest, w->members = members;
    int complete = (w->x = zeros(rows * wide * 4)) && (w->qkv[0] = zeros((rows * triple + PANEL) * 4)) &&
        (w->qkv[1] = members > 1 ? zeros((rows * triple + PANEL) * 4) : zeros(64)) &&
        (w->attended = zeros(rows * wide * 4)) && (w->chosen_x = zeros(rows * wide * 4)) &&
        (w->chosen_q = zeros(rows * wide * 4)) && (w->inner = zeros(blocks * inner * 4)) &&
        (w->scratch = zeros(members * keys * (head + TILE_ROWS) * 4)) && (w->x_converted = zeros(rows * wide * 2)) &&
        (w->attended_converted = zeros(rows * wide * 2)) && (w->inner_converted = zeros(blocks * inner * 2)) &&
        (w->x_scales = zeros(rows * 4)) && (w->attended_scales = zeros(rows * 4)) && (w->inner_scales = zeros(blocks * 4));
    if (complete) return w;
    free_workspace(w);
    return NULL;
}

/* An idle workspace that is large enough, or a new one in its place. */
static Workspace *take_workspace(Encoder *e, int tokens, int longest, int members) {
    pthread_mutex_lock(&e->lock);
    Workspace *found = e->idle;
    if (found) e->idle = found->next;
    pthread_mutex_unlock(&e->lock);
    if (found && found->tokens >= tokens && found->longest >= longest && found->members >= members) return found;
    if (found) {
        if (tokens < found->tokens) tokens = found->tokens;
        if (longest < found->longest) longest = found->longest;
        if (members < found->members) members = found->members;
        free_workspace(found);
    }
    return new_workspace(e, tokens, longest, members);
}

static void give_workspace(Encoder *e, Workspace *w) {
    pthread_mutex_lock(&e->lock);
    w->next = e->idle;
    e->idle = w;
    pthread_mutex_unlock(&e->lock);
}

static void normalize_row(float *x, int width, float eps, const float *scale, const float *shift) {
    int whole = width / LANES * LANES;
    vec sums = splat(0.0f), squares = splat(0.0f);
    float sum = 0.0f, square = 0.0f;
    for (int c = 0; c < whole; c += LANES) sums = sums + load(x + c);
    for (int c = whole; c < width; c++) sum += x[c];
    float mean = (sum_of(sums) + sum) / width;
    for (int c = 0; c < whole; c += LANES) {
        vec d = load(x + c) - splat(mean);
        squares = fma_(d, d, squares);
    }
    for (int c = whole; c < width; c++) square += (x[c] - mean) * (x[c] - mean);
    float factor = 1.0f / sqrtf((sum_of(squares) + square) / width + eps);
    for (int c = 0; c < whole; c += LANES)
        store(x + c, fma_((load(x + c) - splat(mean)) * splat(factor), load(scale + c), load(shift + c)));
    for (int c = whole; c < width; c++) x[c] = (x[c] - mean) * factor * scale[c] + shift[c];
}

/* A step over whole rows, divided by rows: the normalization of x, if any, and its conversion for the next product. */
static void prepare_rows(const Part *p, float *const *norm, const Matrix *next, Rows *x, int first, int last) {
    const Encoder *e = p->call->encoder;
    int from = 0, to = last - first;
    if (p->by_columns) share(last - first, p->member, p->team->size, &from, &to);
    for (int r = first + from; norm && r < first + to; r++)
        normalize_row((float *)x->rows + (long)r * x->stride, e->width, e->eps, norm[0], norm[1]);
    if (next) convert_rows(next, x, first + from, first + to);
    if (p->by_columns && (norm || (next && is_converted(next)))) meet(p->team);
}

/* A product, divided by columns or computed by each member for its own rows. */
static void product(
    const Part *p, const Matrix *m, const Rows *x, int first, int last, int from, int to, int activation,
    const float *residual, float *y, int y_stride) {
    int before = from;
    if (p->by_columns) {
        share(to - before, p->member, p->team->size, &from, &to);
        from += before, to += before;
    }
    multiply(m, x, first, last, from, to, activation, residual, y, y_stride);
    if (p->by_columns) meet(p->team);
}

/* One sequence and head, for the queries first ... last - 1 of it. */
static void attend_head(
    const Part *p, int sequence, int head, const float *queries, int query_stride, int first, int last,
    const float *qkv, float *result) {
    const Call *c = p->call;
    const Encoder *e = c->encoder;
    int start = c->starts[sequence], tokens = c->starts[sequence + 1] - start, size = e->width / e->heads;
    int stride = stride_of(3 * e->width), out_stride = stride_of(e->width);
    long keys = round_up(c->space->longest, PANEL);
    float *panels = c->space->scratch + p->member * keys * (size + TILE_ROWS);
    const float *key = qkv + (long)start * stride + e->width + head * size;
    transpose_keys(key, stride, tokens, size, panels);
    attend(queries + (long)first * query_stride + head * size, query_stride, last - first, panels, key + e->width, stride,
           tokens, size, panels + keys * size, result + (long)first * out_stride + head * size, out_stride);
}

/* Attention of the queries first ... last - 1, which belong to the sequences as query_starts says. */
static void attention(
    const Part *p, const int32_t *query_starts, const float *queries, int query_stride, int first, int last,
    const float *qkv, float *result) {
    const Call *c = p->call;
    int heads = c->encoder->heads;
    for (int b = 0; b < c->sequences; b++) {
        int from = query_starts[b] > first ? query_starts[b] : first;
        int to = query_starts[b + 1] < last ? query_starts[b + 1] : last;
        if (from >= to) continue;
        for (int h = 0; h < heads; h++)
            if (!p->by_columns || (b * heads + h) % p->team->size == p->member)
                attend_head(p, b, h, queries, query_stride, from, to, qkv, result);
    }
    if (p->by_columns) meet(p->team);
}

/* What attention reads of these rows: query, key and value, or of the top layer, where few rows are wanted, the last two. */
static void project(const Part *p, int depth, Rows *x, int first, int last, float *qkv) {
    const Encoder *e = p->call->encoder;
    const Matrix *m = &e->layers[e->order[depth]].qkv;
    int from = p->call->rows && depth + 1 == e->num_layers ? e->width / PANEL : 0;
    product(p, m, x, first, last, from, panels_of(m), NO_ACTIVATION, NULL, qkv, stride_of(3 * e->width));
}

/* The rows of a block, from attention's result to the layer's, converted for the next layer if there is one. */
static void finish_block(const Part *p, const Layer *layer, const Layer *next, Rows *x, int first, int last) {
    const Encoder *e = p->call->encoder;
    Workspace *w = p->call->space;
    float *rows = (float *)x->rows;
    int inner_stride = stride_of(e->inner);
    /* The inner rows of every block lie at the member's place. */
    long place = p->by_columns ? 0 : (long)p->member * BLOCK_ROWS - first;
    Rows attended = {w->attended, x->stride, w->attended_converted, w->attended_scales};
    Rows inner = {w->inner + place * inner_stride, inner_stride, NULL, w->inner_scales + place};
    inner.converted = (char *)w->inner_converted + place * inner_stride * (layer->down.kind == WEIGHTS_I8 ? 1 : 2);
    prepare_rows(p, NULL, &layer->out, &attended, first, last);
    product(p, &layer->out, &attended, first, last, 0, panels_of(&layer->out), NO_ACTIVATION, rows, rows, x->stride);
    prepare_rows(p, layer->norm, &layer->up, x, first, last);
    product(p, &layer->up, x, first, last, 0, panels_of(&layer->up), e->activation, NULL, (float *)inner.rows, inner_stride);
    prepare_rows(p, NULL, &layer->down, &inner, first, last);
    product(p, &layer->down, &inner, first, last, 0, panels_of(&layer->down), NO_ACTIVATION, rows, rows, x->stride);
    prepare_rows(p, layer->norm + 2, next ? &next->qkv : NULL, x, first, last);
}

/* The chosen rows of the top layer's input, and their queries; this member's share, or all of them divided by columns. */
static void choose_rows(const Part *p, const Matrix *qkv, Rows *x, int *first, int *last) {
    const Call *c = p->call;
    Workspace *w = c->space;
    share(c->num_rows, p->member, p->team->size, first, last);
    for (int r = *first; r < *last; r++)
        memcpy(w->chosen_x + (long)r * x->stride, w->x + (long)c->rows[r] * x->stride, x->stride * sizeof(float));
    if (p->by_columns) *first = 0, *last = c->num_rows, meet(p->team);
    x->rows = w->chosen_x;
    prepare_rows(p, NULL, qkv, x, *first, *last);
    int panels = round_up(c->encoder->width, PANEL) / PANEL;
    product(p, qkv, x, *first, *last, 0, panels, NO_ACTIVATION, NULL, w->chosen_q, x->stride);
}

static void compute(void *job, Team *team, int member) {
    Call *c = job;
    const Encoder *e = c->encoder;
    Workspace *w = c->space;
    Part part = {c, team, member, team->size > 1 && c->tokens <= FEW_ROWS * team->size}, *p = &part;
    Rows x = {w->x, stride_of(e->width), w->x_converted, w->x_scales};
    int first, last, several = team->size > 1;
    share(c->tokens, member, team->size, &first, &last);
    for (int r = first; r < last; r++) {
        float *row = w->x + (long)r * x.stride;
        memcpy(row, c->x + (long)r * e->width, e->width * sizeof(float));
        memset(row + e->width, 0, (x.stride - e->width) * sizeof(float)); /* NaN, if the last call had one in this row */
    }
    if (p->by_columns) first = 0, last = c->tokens, meet(team);
    prepare_rows(p, NULL, &e->layers[e->order[0]].qkv, &x, first, last);
    project(p, 0, &x, first, last, w->qkv[0]);
    for (int depth = 0; depth < e->num_layers; depth++) {
        const Layer *layer = &e->layers[e->order[depth]];
        const Layer *next = depth + 1 < e->num_layers ? &e->layers[e->order[depth + 1]] : NULL;
        float *qkv = w->qkv[several && depth % 2]; /* others may still read the last layer's while this one is written */
        if (!p->by_columns) meet(team);
        if (c->rows && !next) {
            choose_rows(p, &layer->qkv, &x, &first, &last);
            attention(p, c->row_starts, w->chosen_q, x.stride, first, last, qkv, w->attended);
        } else {
            attention(p, c->starts, qkv, stride_of(3 * e->width), first, last, qkv, w->attended);
        }
        int step = p->by_columns && last > first ? last - first : BLOCK_ROWS;
        for (int block = first; block < last; block += step) {
            int end = block + step < last ? block + step : last;
            finish_block(p, layer, next, &x, block, end);
            if (next) project(p, depth + 1, &x, block, end, w->qkv[several && (depth + 1) % 2]);
        }
    }
    if (p->by_columns) share(c->rows ? c->num_rows : c->tokens, member, team->size, &first, &last);
    for (int r = first; r < last; r++)
        memcpy(c->result + (long)r * e->width, x.rows + (long)r * x.stride, e->width * sizeof(float));
}

/* ---- What the library offers ---- */

int bertkit_version(void) { return VERSION; }

/* Floats of a vector; plus 32 with fast byte products, 64 with bf16 ones. */
int bertkit_features(void) {
    int found = LANES;
#ifdef HAS_FAST_BYTES
    found += 32;
#endif
#ifdef HAS_BF16
    found += 64;
#endif
    return found;
}

Encoder *bertkit_new(int layers, int stored, const int32_t *order, int width, int heads, int inner, int activation, float eps) {
    Encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->num_layers = layers, e->num_stored = stored, e->width = width, e->heads = heads, e->inner = inner;
    e->activation = activation, e->eps = eps;
    e->order = calloc(layers + 1, sizeof *e->order);
    e->layers = calloc(stored + 1, sizeof *e->layers);
    pthread_mutex_init(&e->lock, NULL);
    for (int i = 0; e->order && i < layers; i++) e->order[i] = order[i];
    return e;
}

static void free_matrix(Matrix *m) {
    void *all[] = {m->panels, m->bias, m->scale, m->offset, m->smooth, m->shift, m->apart, m->apart_weights};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

void bertkit_free(Encoder *e) {
    for (int i = 0; e->layers && i < e->num_stored; i++) {
        Layer *layer = &e->layers[i];
        free_matrix(&layer->qkv), free_matrix(&layer->out), free_matrix(&layer->up), free_matrix(&layer->down);
        for (int j = 0; j < 4; j++) free(layer->norm[j]);
    }
    while (e->idle) {
        Workspace *next = e->idle->next;
        free_workspace(e->idle);
        e->idle = next;
    }
    free(e->order), free(e->layers), free(e);
}

static float *filled_up(const float *values, int count) {
    float *copy = zeros((size_t)round_up(count, PANEL) * sizeof(float));
    if (copy && values) memcpy(copy, values, count * sizeof(float));
    return copy;
}

static Matrix *matrix_at(Encoder *e, int layer, int which) {
    Layer *found = &e->layers[layer];
    Matrix *all[] = {&found->qkv, &found->out, &found->up, &found->down};
    return all[which];
}

/* Where the weight of an output and an input stands in the panels, which keep `group` inputs of an output together. */
static size_t place_of(const Matrix *m, int output, int input) {
    int group = m->kind == WEIGHTS_BF16 ? 2 : m->kind == WEIGHTS_I8 ? 4 : 1, panel = output / PANEL, column = output % PANEL;
    return (size_t)panel * round_up(m->inputs, 4) * PANEL + (size_t)(input / group * PANEL + column) * group + input % group;
}

static void start_matrix(Matrix *m, int kind, int outputs, int inputs, const float *bias) {
    m->kind = kind, m->outputs = outputs, m->inputs = inputs, m->unit = 1.0f;
    /* Vectors of three-byte weights are read with what stands behind them. */
    m->panels = zeros((size_t)round_up(outputs, PANEL) * round_up(inputs, 4) * WEIGHT_SIZE[kind] + 64);
    m->bias = filled_up(bias, outputs);
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
    Encoder *e, int layer, int which, int kind, int outputs, int inputs, const void *weights, const float *bias, float unit) {
    Matrix *m = matrix_at(e, layer, which);
    start_matrix(m, kind, outputs, inputs, bias);
    if (!m->panels || !m->bias) return 0;
    m->unit = unit;
    for (int o = 0; o < outputs; o++) {
        for (int i = 0; i < inputs; i++) {
            size_t place = place_of(m, o, i), from = (size_t)o * inputs + i;
            if (kind == WEIGHTS_F32) ((uint32_t *)m->panels)[place] = ((const uint32_t *)weights)[from];
            else if (kind == WEIGHTS_F24) store_three_bytes((uint8_t *)m->panels + 3 * place, ((const uint32_t *)weights)[from]);
            else ((uint16_t *)m->panels)[place] = ((const uint16_t *)weights)[from];
        }
    }
    return 1;
}

/* Weights in 8 bits; see Matrix. shift: NULL, or for each input; apart_weights: [num_apart][outputs]. 0: no memory. */
int bertkit_set_bytes(
    Encoder *e, int layer, int which, int outputs, int inputs, const int8_t *weights, const float *bias, const float *scale,
    const float *smooth, const float *shift, int narrow, int num_apart, const int32_t *apart, const float *apart_weights) {
    Matrix *m = matrix_at(e, layer, which);
    int width = round_up(outputs, PANEL);
    start_matrix(m, WEIGHTS_I8, outputs, inputs, bias);
    m->scale = filled_up(scale, outputs);
    m->smooth = filled_up(smooth, inputs);
    m->shift = shift ? filled_up(shift, inputs) : NULL;
    m->offset = shift ? NULL : zeros((size_t)width * sizeof(int32_t));
    m->narrow = narrow, m->num_apart = num_apart;
    m->apart = zeros((size_t)num_apart * sizeof(int32_t));
    m->apart_weights = zeros((size_t)num_apart * width * sizeof(float));
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

int bertkit_set_norm(Encoder *e, int layer, int which, const float *scale, const float *shift) {
    float **norm = e->layers[layer].norm + 2 * which;
    norm[0] = filled_up(scale, e->width);
    norm[1] = filled_up(shift, e->width);
    return norm[0] && norm[1];
}

/* Rows of `num_tables` tables, added up and normalized: [tokens][width]. A table is in float32, or in 8 bits with scales
 * for each row and each column (NULL: in float32). -1: done; otherwise the number of a table whose ids leave it; nothing is promised of the result then.
 */
int bertkit_embed(
    int num_tables, const void *const *tables, const float *const *row_scales, const float *const *column_scales,
    const int64_t *sizes, const int64_t *const *ids, int tokens, int width, float eps, const float *scale, const float *shift, float *result) {
    for (int t = 0; t < num_tables; t++)
        for (int i = 0; i < tokens; i++)
            if (ids[t][i] < 0 || ids[t][i] >= sizes[t]) return t;
    for (int i = 0; i < tokens; i++) {
        float *row = result + (long)i * width;
        for (int t = 0; t < num_tables; t++) {
            const float *values = (const float *)tables[t] + ids[t][i] * width;
            const int8_t *bytes = (const int8_t *)tables[t] + ids[t][i] * width;
            const float *units = column_scales[t];
            float unit = units ? row_scales[t][ids[t][i]] : 1.0f;
            if (units) for (int c = 0; c < width; c++) row[c] = (t ? row[c] : 0.0f) + bytes[c] * unit * units[c];
            else for (int c = 0; c < width; c++) row[c] = (t ? row[c] : 0.0f) + values[c];
        }
        normalize_row(row, width, eps, scale, shift);
    }
    return -1;
}

/* Embeddings [tokens][width] to the top layer's rows, all or the chosen ones. 0: no memory. Any threads may call. */
int bertkit_encode(
    Encoder *e, const float *x, int sequences, const int32_t *starts, const int32_t *rows, const int32_t *row_starts,
    float *result, int threads) {
    int longest = 0;
    for (int b = 0; b < sequences; b++)
        if (starts[b + 1] - starts[b] > longest) longest = starts[b + 1] - starts[b];
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    Call call = {.encoder = e, .x = x, .starts = starts, .rows = rows, .row_starts = row_starts, .result = result,
                 .sequences = sequences, .tokens = starts[sequences], .num_rows = rows ? row_starts[sequences] : 0};
    call.space = take_workspace(e, call.tokens, longest, threads);
    if (!call.space) return 0;
    run_team(compute, &call, threads);
    give_workspace(e, call.space);
    return 1;
}
