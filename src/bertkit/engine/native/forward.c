/* The layers of a BERT encoder over sequences without padding, computed in one call.
 *
 * A team of threads divides a call in one of two ways. With few tokens, reading the weights takes the time: all members
 * compute all rows, each its share of a matrix's columns, and meet after every step. With many, each takes its own rows
 * through a whole layer, in blocks that stay in its cache, and the team meets once a layer, before attention, which
 * reads the keys and values of other rows.
 */
#include "forward.h"

#include <string.h>

#include "threads.h"

/* One member's part in a call. */
typedef struct {
    const Call *call;
    Team *team;
    int member, by_columns;
} Part;

static void split_range(int total, int member, int members, int *first, int *last) {
    *first = (int)((int64_t)total * member / members);
    *last = (int)((int64_t)total * (member + 1) / members);
}

/* Of rows first ... last - 1 those that this member takes in a step over whole rows. */
static void own_rows(const Part *p, int *first, int *last) {
    int from = 0, to = *last - *first;
    if (p->by_columns) split_range(to, p->member, p->team->size, &from, &to);
    *last = *first + to;
    *first += from;
}

static void meet_by_columns(const Part *p) {
    if (p->by_columns) meet(p->team);
}

/* A step over whole rows, divided by rows: x, or a copy of `source`, is normalized, if at all, and converted for the
 * next product. */
static void prepare_rows(
    const Part *p, const Rows *source, float *const *norm, const Matrix *next, Rows *x, int first, int last) {
    const Encoder *e = p->call->encoder;
    own_rows(p, &first, &last);
    float *rows = (float *)x->rows + first * x->stride;
    if (last > first && source)
        memcpy(rows, source->rows + first * x->stride, (size_t)(last - first) * x->stride * sizeof *rows);
    if (norm && norm[0]) e->kernels->normalize_rows(rows, x->stride, last - first, e->width, e->eps, norm[0], norm[1]);
    if (next) e->kernels->convert_rows(next, x, first, last);
    if (source || norm || (next && is_converted(next))) meet_by_columns(p);
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
    const float *residual, float *y, ptrdiff_t y_stride) {
    int before = from;
    if (p->by_columns) {
        split_range(to - before, p->member, p->team->size, &from, &to);
        from += before, to += before;
    }
    p->call->encoder->kernels->multiply(m, x, first, last, from, to, activation, residual, y, y_stride);
    meet_by_columns(p);
}

/* Inner rows become those that the second product reads: activation(a) * b, with a and b side by side. */
static void gate_rows(const Part *p, Rows *inner, int first, int last) {
    const Encoder *e = p->call->encoder;
    own_rows(p, &first, &last);
    float *rows = (float *)inner->rows + first * inner->stride;
    e->kernels->gate_rows(rows, inner->stride, last - first, e->inner, e->activation);
    meet_by_columns(p);
}

/* Rotate the keys of rows, and the queries before them unless `only_keys`, by the angles of their positions. */
static void rotate_rows(
    const Part *p, const Layer *layer, const int32_t *positions, float *x, ptrdiff_t stride, int parts, int only_keys,
    int first, int last) {
    const Encoder *e = p->call->encoder;
    int size = e->width / e->heads, skipped = only_keys ? e->heads : 0;
    if (layer->rotary < 0) return;
    const float *angles = p->call->batch->positions->angles[layer->rotary];
    own_rows(p, &first, &last);
    for (int r = first; r < last; r++) {
        float *heads = x + r * stride + skipped * size;
        e->kernels->rotate_row(heads, parts * e->heads - skipped, angles + (ptrdiff_t)positions[r] * size, size);
    }
    meet_by_columns(p);
}

/* What the scores of a head depend on besides content, in a sequence whose keys these are; `scratch`: see scratch_of. */
static HeadScores head_scores(
    const Part *p, const Layer *layer, int head, const float *keys, ptrdiff_t stride, int tokens, float *scratch) {
    const Encoder *e = p->call->encoder;
    const bertkit_positions *known = p->call->batch->positions;
    HeadScores found = {.half_window = layer->half_window};
    if (!known) return found;
    found.longest = known->longest;
    if (known->bias) found.bias = known->bias + (ptrdiff_t)head * (2 * known->longest - 1);
    if (!layer->num_distances) return found;
    int size = e->width / e->heads, middle = known->longest - 1, panel = e->kernels->panel;
    ptrdiff_t step = (ptrdiff_t)round_up(layer->num_distances, panel) * size;
    found.distances = known->distances;
    found.first_row = known->distances[middle - (tokens - 1)] / panel * panel;
    found.columns = round_up(known->distances[middle + tokens - 1] + 1 - found.first_row, panel);
    ptrdiff_t skipped = head * step + (ptrdiff_t)found.first_row * size;
    if (layer->distance_keys) found.distance_keys = layer->distance_keys + skipped;
    found.query_products = scratch;
    if (layer->distance_queries) {
        float *products = scratch + e->kernels->tile_rows * found.columns;
        const float *queries = layer->distance_queries + skipped;
        e->kernels->multiply_panels(keys, stride, tokens, queries, size, found.columns, products);
        found.key_products = products;
    }
    return found;
}

/* One sequence and head, for the queries first ... last - 1 of the call. */
static void attend_head(
    const Part *p, const Layer *layer, int sequence, int head, const Queries *all, int first, int last, const float *qkv,
    float *result) {
    const Call *c = p->call;
    const Encoder *e = c->encoder;
    const Kernels *k = e->kernels;
    int start = c->batch->starts[sequence], tokens = c->batch->starts[sequence + 1] - start, size = e->width / e->heads;
    ptrdiff_t stride = stride_of(e, 3 * e->width), out_stride = stride_of(e, e->width);
    ptrdiff_t keys = round_up(c->space->sizes.longest, k->panel);
    float *panels = c->space->scratch + p->member * scratch_of(e, c->space->sizes.longest);
    float *scratch = panels + keys * size;
    const float *key = qkv + start * stride + e->width + head * size;
    k->pack_rows(key, stride, tokens, size, panels);
    HeadScores scores = head_scores(p, layer, head, key, stride, tokens, scratch + keys * k->tile_rows);
    KeysAndValues known = {panels, key + e->width, stride, tokens, size};
    Queries queries = {all->rows + first * all->stride + head * size, all->stride, last - first, first - start,
                       all->positions ? all->positions + first : NULL};
    k->attend(&scores, &queries, &known, scratch, result + first * out_stride + head * size, out_stride);
}

/* Attention of the queries first ... last - 1, which belong to the sequences as query_starts says. */
static void attention(
    const Part *p, const Layer *layer, const int32_t *query_starts, const Queries *queries, int first, int last,
    const float *qkv, float *result) {
    int heads = p->call->encoder->heads;
    for (int b = 0; b < p->call->batch->num_sequences; b++) {
        int from = query_starts[b] > first ? query_starts[b] : first;
        int to = query_starts[b + 1] < last ? query_starts[b + 1] : last;
        if (from >= to) continue;
        for (int h = 0; h < heads; h++)
            if (!p->by_columns || ((int64_t)b * heads + h) % p->team->size == p->member)
                attend_head(p, layer, b, h, queries, from, to, qkv, result);
    }
    meet_by_columns(p);
}

static int wants_some(const Call *c) { return c->batch->wanted != NULL; }

/* What attention reads of these rows: query, key and value; in the top layer the last two, if few rows are wanted. */
static void project(const Part *p, int depth, Rows *x, int first, int last, float *qkv) {
    const Encoder *e = p->call->encoder;
    const Layer *layer = &e->layers[e->order[depth]];
    const Matrix *m = &layer->matrices[BERTKIT_QKV];
    int only_keys = wants_some(p->call) && depth + 1 == e->num_layers;
    int from = only_keys ? e->width / e->kernels->panel : 0;
    ptrdiff_t stride = stride_of(e, 3 * e->width);
    product(p, m, x, first, last, from, panels_of(e->kernels, m), NO_ACTIVATION, NULL, qkv, stride);
    rotate_rows(p, layer, p->call->space->positions, qkv, stride, 2, only_keys, first, last);
}

/* The rows of a block, from attention's result to the layer's, converted for the next layer if there is one. */
static Rows *finish_block(
    const Part *p, const Layer *layer, const Layer *next, Rows *x, Rows *normed, int first, int last) {
    const Encoder *e = p->call->encoder;
    Workspace *w = p->call->space;
    const Matrix *out = &layer->matrices[BERTKIT_OUT], *up = &layer->matrices[BERTKIT_UP];
    const Matrix *down = &layer->matrices[BERTKIT_DOWN];
    float *rows = (float *)x->rows;
    ptrdiff_t inner_stride = inner_stride_of(e);
    /* The inner rows of every block lie at the member's place; they are numbered as the rows are. */
    int skipped = p->by_columns ? 0 : first, at = p->by_columns ? 0 : p->member * BLOCK_ROWS;
    Rows attended = {w->attended, x->stride, w->attended_converted, w->attended_scales};
    Rows inner = {w->inner + at * inner_stride, inner_stride, NULL, w->inner_scales + at};
    inner.converted = (char *)w->inner_converted + at * inner_stride * (down->kind == BERTKIT_I8 ? 1 : 2);
    prepare_rows(p, NULL, NULL, out, &attended, first, last);
    product(p, out, &attended, first, last, 0, panels_of(e->kernels, out), NO_ACTIVATION, rows, rows, x->stride);
    Rows *read = read_rows(p, layer->norm[BERTKIT_NORM_ATTENTION], up, x, normed, first, last);
    int activation = e->gated ? NO_ACTIVATION : e->activation, count = last - skipped;
    Rows block = *read;
    block.rows += skipped * read->stride;
    if (block.converted)
        block.converted = (char *)block.converted + skipped * read->stride * (up->kind == BERTKIT_I8 ? 1 : 2);
    if (block.scales) block.scales += skipped;
    int from = first - skipped;
    product(p, up, &block, from, count, 0, panels_of(e->kernels, up), activation, NULL, (float *)inner.rows, inner_stride);
    if (e->gated) gate_rows(p, &inner, from, count);
    prepare_rows(p, NULL, NULL, down, &inner, from, count);
    float *block_rows = rows + skipped * x->stride;
    product(
        p, down, &inner, from, count, 0, panels_of(e->kernels, down), NO_ACTIVATION, block_rows, block_rows, x->stride);
    float *const *norm = layer->norm[BERTKIT_NORM_FFN];
    if (e->gated) norm = next ? next->norm[BERTKIT_NORM_FFN] : e->final_norm;
    if (next) return read_rows(p, norm, &next->matrices[BERTKIT_QKV], x, normed, first, last);
    prepare_rows(p, NULL, norm, NULL, x, first, last);
    return x;
}

/* The wanted rows of the top layer's input, and their queries: this member's share, or all, divided by columns. */
static void select_rows(const Part *p, const Layer *layer, Rows *x, Rows *normed, int *first, int *last) {
    const Call *c = p->call;
    const Encoder *e = c->encoder;
    Workspace *w = c->space;
    split_range(c->num_wanted, p->member, p->team->size, first, last);
    for (int r = *first; r < *last; r++)
        memcpy(w->wanted_x + r * x->stride, w->x + c->batch->wanted[r] * x->stride, x->stride * sizeof(float));
    if (p->by_columns) *first = 0, *last = c->num_wanted, meet(p->team);
    x->rows = w->wanted_x;
    /* In layers that normalize what they return, the rows are ready. */
    const Matrix *m = &layer->matrices[BERTKIT_QKV];
    Rows *read = read_rows(p, e->gated ? layer->norm[BERTKIT_NORM_FFN] : NULL, m, x, normed, *first, *last);
    int panels = round_up(e->width, e->kernels->panel) / e->kernels->panel;
    product(p, m, read, *first, *last, 0, panels, NO_ACTIVATION, NULL, w->wanted_queries, x->stride);
    rotate_rows(p, layer, w->positions + c->tokens, w->wanted_queries, x->stride, 1, 0, *first, *last);
}

static void copy_input(const Part *p, Rows *x, int first, int last) {
    const Encoder *e = p->call->encoder;
    for (int r = first; r < last; r++) {
        float *row = (float *)x->rows + r * x->stride;
        memcpy(row, p->call->batch->rows + (ptrdiff_t)r * e->width, e->width * sizeof *row);
        /* NaN, if the last call had one in this row. */
        memset(row + e->width, 0, (x->stride - e->width) * sizeof *row);
    }
}

static void compute(void *job, Team *team, int member) {
    Call *c = job;
    const Encoder *e = c->encoder;
    Workspace *w = c->space;
    Part part = {c, team, member, team->size > 1 && c->tokens <= FEW_ROWS * team->size}, *p = &part;
    Rows x = {w->x, stride_of(e, e->width), w->x_converted, w->x_scales};
    Rows normed = {w->normed, x.stride, w->x_converted, w->x_scales};
    int first, last, several = team->size > 1;
    split_range(c->tokens, member, team->size, &first, &last);
    copy_input(p, &x, first, last);
    if (p->by_columns) first = 0, last = c->tokens, meet(team);
    const Layer *lowest = &e->layers[e->order[0]];
    float *const *norm = e->gated ? lowest->norm[BERTKIT_NORM_FFN] : NULL;
    Rows *read = read_rows(p, norm, &lowest->matrices[BERTKIT_QKV], &x, &normed, first, last);
    project(p, 0, read, first, last, w->qkv[0]);
    for (int depth = 0; depth < e->num_layers; depth++) {
        const Layer *layer = &e->layers[e->order[depth]];
        const Layer *next = depth + 1 < e->num_layers ? &e->layers[e->order[depth + 1]] : NULL;
        float *qkv = w->qkv[several && depth % 2]; /* others may still read the last layer's while this is written */
        if (!p->by_columns) meet(team);
        if (wants_some(c) && !next) {
            select_rows(p, layer, &x, &normed, &first, &last);
            Queries queries = {w->wanted_queries, x.stride, 0, 0, w->positions + c->tokens};
            attention(p, layer, c->batch->wanted_starts, &queries, first, last, qkv, w->attended);
        } else {
            Queries queries = {qkv, stride_of(e, 3 * e->width), 0, 0, NULL};
            attention(p, layer, c->batch->starts, &queries, first, last, qkv, w->attended);
        }
        int step = p->by_columns && last > first ? last - first : BLOCK_ROWS;
        for (int block = first; block < last; block += step) {
            int end = block + step < last ? block + step : last;
            read = finish_block(p, layer, next, &x, &normed, block, end);
            if (next) project(p, depth + 1, read, block, end, w->qkv[several && (depth + 1) % 2]);
        }
    }
    if (p->by_columns) split_range(wants_some(c) ? c->num_wanted : c->tokens, member, team->size, &first, &last);
    for (int r = first; r < last; r++)
        memcpy(c->result + (ptrdiff_t)r * e->width, x.rows + r * x.stride, e->width * sizeof(float));
}

void encode(Call *call, int threads) {
    const bertkit_batch *batch = call->batch;
    int32_t *position = call->space->positions;
    for (int b = 0; b < batch->num_sequences; b++)
        for (int t = batch->starts[b]; t < batch->starts[b + 1]; t++) *position++ = t - batch->starts[b];
    for (int r = 0; r < call->num_wanted; r++) position[r] = call->space->positions[batch->wanted[r]];
    run_team(compute, call, threads);
}
