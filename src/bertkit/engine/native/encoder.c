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
#include "threads.h"
#include "workspaces.h"

#define VERSION 1

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

static void share(int total, int member, int members, int *first, int *last) {
    *first = (int)((long)total * member / members);
    *last = (int)((long)total * (member + 1) / members);
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
    long keys = round_up(c->space->sizes.longest, PANEL);
    float *panels = c->space->scratch + p->member * keys * (size + TILE_ROWS);
    const float *key = qkv + (long)start * stride + e->width + head * size;
    transpose_keys(key, stride, tokens, size, panels);
    attend(queries + (long)first * query_stride + head * size, query_stride, last - first, panels,
           key + e->width, stride, tokens, size, panels + keys * size,
           result + (long)first * out_stride + head * size, out_stride);
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

/* What attention reads of these rows: query, key and value; in the top layer the last two, if few rows are wanted. */
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
    float *inner_rows = (float *)inner.rows;
    product(p, &layer->up, x, first, last, 0, panels_of(&layer->up), e->activation, NULL, inner_rows, inner_stride);
    prepare_rows(p, NULL, &layer->down, &inner, first, last);
    product(p, &layer->down, &inner, first, last, 0, panels_of(&layer->down), NO_ACTIVATION, rows, rows, x->stride);
    prepare_rows(p, layer->norm + 2, next ? &next->qkv : NULL, x, first, last);
}

/* The chosen rows of the top layer's input, and their queries: this member's share, or all, divided by columns. */
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
        /* NaN, if the last call had one in this row. */
        memset(row + e->width, 0, (x.stride - e->width) * sizeof(float));
    }
    if (p->by_columns) first = 0, last = c->tokens, meet(team);
    prepare_rows(p, NULL, &e->layers[e->order[0]].qkv, &x, first, last);
    project(p, 0, &x, first, last, w->qkv[0]);
    for (int depth = 0; depth < e->num_layers; depth++) {
        const Layer *layer = &e->layers[e->order[depth]];
        const Layer *next = depth + 1 < e->num_layers ? &e->layers[e->order[depth + 1]] : NULL;
        float *qkv = w->qkv[several && depth % 2]; /* others may still read the last layer's while this is written */
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

/* An encoder without weights, which model.h's functions set; NULL: no memory. */
Encoder *bertkit_new(
    int layers, int stored, const int32_t *order, int width, int heads, int inner, int activation, float eps) {
    Encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->num_layers = layers, e->num_stored = stored, e->width = width, e->heads = heads, e->inner = inner;
    e->activation = activation, e->eps = eps;
    e->order = calloc(layers, sizeof *e->order);
    e->layers = calloc(stored, sizeof *e->layers);
    if (!e->order || !e->layers) {
        bertkit_free(e);
        return NULL;
    }
    memcpy(e->order, order, layers * sizeof *order);
    return e;
}

/* Rows of `num_tables` tables, added up and normalized: [tokens][width]. A table is in float32, where its scales are
 * NULL, or in 8 bits with scales for each row and each column. -1: done; otherwise the number of a table that lacks one
 * of its ids; the result is then undefined.
 */
int bertkit_embed(
    int num_tables, const void *const *tables, const float *const *row_scales, const float *const *column_scales,
    const int64_t *sizes, const int64_t *const *ids, int tokens, int width, float eps, const float *scale,
    const float *shift, float *result) {
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
    call.space = take_workspace(e, (Sizes){call.tokens, longest, threads, call.num_rows});
    if (!call.space) return 0;
    run_team(compute, &call, threads);
    give_workspace(e, call.space);
    return 1;
}
