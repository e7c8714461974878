/* The layers of a BERT encoder over sequences without padding, computed in one call.
 *
 *   x = norm(x + attention(x)), then x = norm(x + ffn(x)), in each layer (Devlin et al. 2019), or
 *   x = x + attention(norm(x)), then x = x + ffn(norm(x)), in each gated one (Warner et al. 2024)
 *
 * A team of threads divides a call in one of two ways. With few tokens, reading the weights takes the time: all members
 * compute all rows, each its share of a matrix's columns, and meet after every step. With many, each takes its own rows
 * through a whole layer, in blocks that stay in its cache, and the team meets once a layer, before attention, which
 * reads the keys and values of other rows.
 */
#include "threads.h"
#include "workspaces.h"

#define VERSION 2

/* One call: B sequences end to end, and the rows of the top layer that are wanted (NULL: all). */
typedef struct {
    const Encoder *encoder;
    const float *x;
    const int32_t *starts; /* [sequences + 1] */
    const int32_t *rows, *row_starts;
    const Positions *positions; /* NULL where attention does not ask for them */
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

/* A step over whole rows, divided by rows: x, or a copy of `source`, is normalized, if at all, and converted for the
 * next product. */
static void prepare_rows(
    const Part *p, const Rows *source, float *const *norm, const Matrix *next, Rows *x, int first, int last) {
    const Encoder *e = p->call->encoder;
    int from = 0, to = last - first;
    if (p->by_columns) share(last - first, p->member, p->team->size, &from, &to);
    for (int r = first + from; r < first + to && (source || norm); r++) {
        float *row = (float *)x->rows + (long)r * x->stride;
        if (source) memcpy(row, source->rows + (long)r * x->stride, x->stride * sizeof(float));
        if (norm && norm[0]) normalize_row(row, e->width, e->eps, norm[0], norm[1]);
    }
    if (next) convert_rows(next, x, first + from, first + to);
    if (p->by_columns && (source || norm || (next && is_converted(next)))) meet(p->team);
}

/* The same for the product with `next` by which a layer begins, or its feed-forward block. */
static Rows *read_rows(const Part *p, float *const *norm, const Matrix *next, Rows *x, Rows *normed, int first, int last) {
    Rows *read = p->call->encoder->gated ? normed : x;
    prepare_rows(p, read == x ? NULL : x, norm, next, read, first, last);
    return read;
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

/* Inner rows become those that the second product reads: activation(a) * b, with a and b side by side. */
static void gate_rows(const Part *p, Rows *inner, int first, int last) {
    const Encoder *e = p->call->encoder;
    int from = 0, to = last - first, whole = e->inner / LANES * LANES, width = round_up(e->inner, PANEL);
    if (p->by_columns) share(last - first, p->member, p->team->size, &from, &to);
    for (int r = first + from; r < first + to; r++) {
        float *a = (float *)inner->rows + (long)r * inner->stride, *b = a + e->inner;
        switch (e->activation) {
#define CASE(A) \
    case A: \
        for (int c = 0; c < whole; c += LANES) store(a + c, activated(load(a + c), A) * load(b + c)); \
        if (whole < e->inner) { \
            float rest[LANES]; \
            store(rest, activated(load(a + whole), A) * load(b + whole)); \
            memcpy(a + whole, rest, (e->inner - whole) * sizeof(float)); \
        } \
        break;
            CASE(GELU) CASE(GELU_TANH) CASE(RELU)
#undef CASE
        }
        memset(a + e->inner, 0, (width - e->inner) * sizeof(float)); /* which a conversion reads */
    }
    if (p->by_columns) meet(p->team);
}

/* Turn the keys of rows, and the queries before them unless `only_keys`, by the angles of their places. */
static void rotate_rows(
    const Part *p, const Layer *layer, const int32_t *places, float *x, int stride, int parts, int only_keys, int first,
    int last) {
    const Encoder *e = p->call->encoder;
    int from = 0, to = last - first, size = e->width / e->heads;
    if (layer->base < 0) return;
    if (p->by_columns) share(last - first, p->member, p->team->size, &from, &to);
    for (int r = first + from; r < first + to; r++) {
        const float *angles = p->call->positions->angles[layer->base] + (long)places[r] * size;
        for (int head = only_keys ? e->heads : 0; head < parts * e->heads; head++)
            turn(x + (long)r * stride + head * size, angles, size);
    }
    if (p->by_columns) meet(p->team);
}

/* What the scores of a head depend on besides content, in a sequence whose keys these are; `room`: see scratch_of. */
static HeadScores head_scores(
    const Part *p, const Layer *layer, int head, const float *keys, int stride, int tokens, float *room) {
    const Encoder *e = p->call->encoder;
    const Positions *known = p->call->positions;
    HeadScores found = {.half = layer->half};
    if (!known) return found;
    found.most = known->most;
    if (known->bias) found.bias = known->bias + (long)head * (2 * known->most - 1);
    if (!layer->num_distances) return found;
    int size = e->width / e->heads, middle = known->most - 1;
    long step = (long)round_up(layer->num_distances, PANEL) * size;
    found.rows = known->rows;
    found.first_row = known->rows[middle - (tokens - 1)] / PANEL * PANEL;
    found.columns = round_up(known->rows[middle + tokens - 1] + 1 - found.first_row, PANEL);
    long skipped = head * step + (long)found.first_row * size;
    if (layer->distance_keys) found.distance_keys = layer->distance_keys + skipped;
    found.query_products = room;
    if (layer->distance_queries) {
        float *products = room + TILE_ROWS * found.columns;
        multiply_panels(keys, stride, tokens, layer->distance_queries + skipped, size, found.columns, products);
        found.key_products = products;
    }
    return found;
}

/* One sequence and head, for the queries first ... last - 1 of it; places: of all queries, NULL if they are all rows. */
static void attend_head(
    const Part *p, const Layer *layer, int sequence, int head, const float *queries, int query_stride, int first,
    int last, const int32_t *places, const float *qkv, float *result) {
    const Call *c = p->call;
    const Encoder *e = c->encoder;
    int start = c->starts[sequence], tokens = c->starts[sequence + 1] - start, size = e->width / e->heads;
    int stride = stride_of(3 * e->width), out_stride = stride_of(e->width);
    long keys = round_up(c->space->sizes.longest, PANEL);
    float *panels = c->space->scratch + p->member * scratch_of(e, c->space->sizes.longest);
    float *room = panels + keys * size;
    const float *key = qkv + (long)start * stride + e->width + head * size;
    transpose_keys(key, stride, tokens, size, panels);
    HeadScores scores = head_scores(p, layer, head, key, stride, tokens, room + keys * TILE_ROWS);
    attend(&scores, places ? places + first : NULL, first - start,
           queries + (long)first * query_stride + head * size, query_stride, last - first, panels,
           key + e->width, stride, tokens, size, room,
           result + (long)first * out_stride + head * size, out_stride);
}

/* Attention of the queries first ... last - 1, which belong to the sequences as query_starts says. */
static void attention(
    const Part *p, const Layer *layer, const int32_t *query_starts, const int32_t *places, const float *queries, int query_stride, int first, int last,
    const float *qkv, float *result) {
    const Call *c = p->call;
    int heads = c->encoder->heads;
    for (int b = 0; b < c->sequences; b++) {
        int from = query_starts[b] > first ? query_starts[b] : first;
        int to = query_starts[b + 1] < last ? query_starts[b + 1] : last;
        if (from >= to) continue;
        for (int h = 0; h < heads; h++)
            if (!p->by_columns || (b * heads + h) % p->team->size == p->member)
                attend_head(p, layer, b, h, queries, query_stride, from, to, places, qkv, result);
    }
    if (p->by_columns) meet(p->team);
}

/* What attention reads of these rows: query, key and value; in the top layer the last two, if few rows are wanted. */
static void project(const Part *p, int depth, Rows *x, int first, int last, float *qkv) {
    const Encoder *e = p->call->encoder;
    const Layer *layer = &e->layers[e->order[depth]];
    const Matrix *m = &layer->qkv;
    int only_keys = p->call->rows && depth + 1 == e->num_layers, stride = stride_of(3 * e->width);
    product(p, m, x, first, last, only_keys ? e->width / PANEL : 0, panels_of(m), NO_ACTIVATION, NULL, qkv, stride);
    rotate_rows(p, layer, p->call->space->places, qkv, stride, 2, only_keys, first, last);
}

/* The rows of a block, from attention's result to the layer's, converted for the next layer if there is one. */
static Rows *finish_block(
    const Part *p, const Layer *layer, const Layer *next, Rows *x, Rows *normed, int first, int last) {
    const Encoder *e = p->call->encoder;
    Workspace *w = p->call->space;
    float *rows = (float *)x->rows;
    int inner_stride = inner_stride_of(e);
    /* The inner rows of every block lie at the member's place. */
    long place = p->by_columns ? 0 : (long)p->member * BLOCK_ROWS - first;
    Rows attended = {w->attended, x->stride, w->attended_converted, w->attended_scales};
    Rows inner = {w->inner + place * inner_stride, inner_stride, NULL, w->inner_scales + place};
    inner.converted = (char *)w->inner_converted + place * inner_stride * (layer->down.kind == WEIGHTS_I8 ? 1 : 2);
    prepare_rows(p, NULL, NULL, &layer->out, &attended, first, last);
    product(p, &layer->out, &attended, first, last, 0, panels_of(&layer->out), NO_ACTIVATION, rows, rows, x->stride);
    Rows *read = read_rows(p, layer->norm, &layer->up, x, normed, first, last);
    float *inner_rows = (float *)inner.rows;
    int activation = e->gated ? NO_ACTIVATION : e->activation;
    product(p, &layer->up, read, first, last, 0, panels_of(&layer->up), activation, NULL, inner_rows, inner_stride);
    if (e->gated) gate_rows(p, &inner, first, last);
    prepare_rows(p, NULL, NULL, &layer->down, &inner, first, last);
    product(p, &layer->down, &inner, first, last, 0, panels_of(&layer->down), NO_ACTIVATION, rows, rows, x->stride);
    float *const *norm = e->gated ? next ? next->norm + 2 : e->final_norm : layer->norm + 2;
    if (next) return read_rows(p, norm, &next->qkv, x, normed, first, last);
    prepare_rows(p, NULL, norm, NULL, x, first, last);
    return x;
}

/* The chosen rows of the top layer's input, and their queries: this member's share, or all, divided by columns. */
static void choose_rows(const Part *p, const Layer *layer, Rows *x, Rows *normed, int *first, int *last) {
    const Call *c = p->call;
    Workspace *w = c->space;
    share(c->num_rows, p->member, p->team->size, first, last);
    for (int r = *first; r < *last; r++)
        memcpy(w->chosen_x + (long)r * x->stride, w->x + (long)c->rows[r] * x->stride, x->stride * sizeof(float));
    if (p->by_columns) *first = 0, *last = c->num_rows, meet(p->team);
    x->rows = w->chosen_x;
    /* In layers that normalize what they return, the rows are ready. */
    Rows *read = read_rows(p, c->encoder->gated ? layer->norm + 2 : NULL, &layer->qkv, x, normed, *first, *last);
    int panels = round_up(c->encoder->width, PANEL) / PANEL;
    product(p, &layer->qkv, read, *first, *last, 0, panels, NO_ACTIVATION, NULL, w->chosen_q, x->stride);
    rotate_rows(p, layer, w->places + c->tokens, w->chosen_q, x->stride, 1, 0, *first, *last);
}

static void compute(void *job, Team *team, int member) {
    Call *c = job;
    const Encoder *e = c->encoder;
    Workspace *w = c->space;
    Part part = {c, team, member, team->size > 1 && c->tokens <= FEW_ROWS * team->size}, *p = &part;
    Rows x = {w->x, stride_of(e->width), w->x_converted, w->x_scales};
    Rows normed = {w->normed, x.stride, w->x_converted, w->x_scales};
    int first, last, several = team->size > 1;
    share(c->tokens, member, team->size, &first, &last);
    for (int r = first; r < last; r++) {
        float *row = w->x + (long)r * x.stride;
        memcpy(row, c->x + (long)r * e->width, e->width * sizeof(float));
        /* NaN, if the last call had one in this row. */
        memset(row + e->width, 0, (x.stride - e->width) * sizeof(float));
    }
    if (p->by_columns) first = 0, last = c->tokens, meet(team);
    const Layer *lowest = &e->layers[e->order[0]];
    Rows *read = read_rows(p, e->gated ? lowest->norm + 2 : NULL, &lowest->qkv, &x, &normed, first, last);
    project(p, 0, read, first, last, w->qkv[0]);
    for (int depth = 0; depth < e->num_layers; depth++) {
        const Layer *layer = &e->layers[e->order[depth]];
        const Layer *next = depth + 1 < e->num_layers ? &e->layers[e->order[depth + 1]] : NULL;
        float *qkv = w->qkv[several && depth % 2]; /* others may still read the last layer's while this is written */
        if (!p->by_columns) meet(team);
        if (c->rows && !next) {
            choose_rows(p, layer, &x, &normed, &first, &last);
            const int32_t *places = w->places + c->tokens;
            attention(p, layer, c->row_starts, places, w->chosen_q, x.stride, first, last, qkv, w->attended);
        } else {
            attention(p, layer, c->starts, NULL, qkv, stride_of(3 * e->width), first, last, qkv, w->attended);
        }
        int step = p->by_columns && last > first ? last - first : BLOCK_ROWS;
        for (int block = first; block < last; block += step) {
            int end = block + step < last ? block + step : last;
            read = finish_block(p, layer, next, &x, &normed, block, end);
            if (next) project(p, depth + 1, read, block, end, w->qkv[several && (depth + 1) % 2]);
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
    while (e->idle) {
        Workspace *next = e->idle->next;
        free_workspace(e->idle);
        e->idle = next;
    }
    free_all(e->memory);
    free(e);
}

/* An encoder without weights, which model.h's functions set; NULL: no memory. */
Encoder *bertkit_new(
    int layers, int stored, const int32_t *order, int width, int heads, int inner, int activation, float eps, int gated) {
    Encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->num_layers = layers, e->num_stored = stored, e->width = width, e->heads = heads, e->inner = inner;
    e->activation = activation, e->eps = eps, e->gated = gated;
    e->order = zeros(&e->memory, layers * sizeof *e->order);
    e->layers = zeros(&e->memory, stored * sizeof *e->layers);
    if (!e->order || !e->layers) {
        bertkit_free(e);
        return NULL;
    }
    memcpy(e->order, order, layers * sizeof *order);
    for (int i = 0; i < stored; i++) e->layers[i].half = e->layers[i].base = -1;
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
    const Positions *positions, float *result, int threads) {
    int longest = 0;
    for (int b = 0; b < sequences; b++)
        if (starts[b + 1] - starts[b] > longest) longest = starts[b + 1] - starts[b];
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    Call call = {.encoder = e, .x = x, .starts = starts, .rows = rows, .row_starts = row_starts,
                 .positions = positions, .result = result, .sequences = sequences, .tokens = starts[sequences],
                 .num_rows = rows ? row_starts[sequences] : 0};
    call.space = take_workspace(e, (Sizes){call.tokens, longest, threads, call.num_rows});
    if (!call.space) return 0;
    int32_t *place = call.space->places;
    for (int b = 0; b < sequences; b++)
        for (int t = starts[b]; t < starts[b + 1]; t++) *place++ = t - starts[b];
    for (int r = 0; r < call.num_rows; r++) place[r] = call.space->places[rows[r]];
    run_team(compute, &call, threads);
    give_workspace(e, call.space);
    return 1;
}
