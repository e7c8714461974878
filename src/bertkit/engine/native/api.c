/* What the library offers besides building (weights.c): versions, variants, embeddings, and a call of an encoder. */
#include <string.h>

#include "bertkit.h"
#include "check.h"
#include "dispatch.h"
#include "forward.h"
#include "threads.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

int32_t bertkit_api_version(void) { return BERTKIT_API_VERSION; }

const char *bertkit_build_info(void) { return COMPILER; }

const char *bertkit_status_name(bertkit_status status) {
    switch (status) {
#define CASE(NAME) \
    case NAME: return #NAME;
        CASE(BERTKIT_OK) CASE(BERTKIT_NULL) CASE(BERTKIT_RANGE) CASE(BERTKIT_SHAPE) CASE(BERTKIT_OVERFLOW)
        CASE(BERTKIT_ALIGNMENT) CASE(BERTKIT_STRUCT_SIZE) CASE(BERTKIT_TWICE) CASE(BERTKIT_INCOMPLETE)
        CASE(BERTKIT_NO_MEMORY) CASE(BERTKIT_NO_VARIANT) CASE(BERTKIT_CANNOT_RUN) CASE(BERTKIT_NO_KIND)
        CASE(BERTKIT_NO_ROW) CASE(BERTKIT_TOO_LONG)
#undef CASE
    default: return "unknown";
    }
}

int32_t bertkit_num_variants(void) { return num_variants(); }

bertkit_status bertkit_variant_info_of(int32_t number, bertkit_variant_info *info, bertkit_error *error) {
    FORWARD(check_range(number, 0, num_variants() - 1, "number", error));
    FORWARD(check_pointer(info, sizeof(void *), "info", error));
    FORWARD(check_size(info->struct_size, sizeof *info, "info", error));
    const Kernels *k = variant_at(number);
    const char *lacks = lacking(k);
    *info = (bertkit_variant_info){sizeof *info, k->name, !lacks[0], k->lanes, k->kinds, k->fast_bytes, lacks};
    return BERTKIT_OK;
}

bertkit_status bertkit_find_variant(const char *name, int32_t *number, bertkit_error *error) {
    const Kernels *found = NULL;
    FORWARD(check_pointer(number, sizeof *number, "number", error));
    if (!name) FORWARD(kernels_of(-1, &found, error));
    for (int32_t i = 0; i < num_variants(); i++) {
        if (name ? strcmp(variant_at(i)->name, name) : variant_at(i) != found) continue;
        FORWARD(kernels_of(i, &found, error));
        *number = i;
        return BERTKIT_OK;
    }
    return fail(error, BERTKIT_NO_VARIANT, "this library has no variant %.60s", name);
}

static bertkit_status check_table(const bertkit_table *table, int number, bertkit_error *error) {
    REQUIRE(table->rows, BERTKIT_NULL, "tables[%d].rows is NULL", number);
    REQUIRE(table->num_rows > 0, BERTKIT_RANGE, "tables[%d].num_rows is %lld", number, (long long)table->num_rows);
    REQUIRE(
        !table->row_scale == !table->column_scale, BERTKIT_NULL, "tables[%d] has one of row_scale and column_scale", number);
    if (!table->row_scale) return check_pointer(table->rows, sizeof(float), "rows of a table", error);
    FORWARD(check_pointer(table->row_scale, sizeof(float), "row_scale of a table", error));
    return check_pointer(table->column_scale, sizeof(float), "column_scale of a table", error);
}

bertkit_status bertkit_embed(
    int32_t variant, int32_t num_tables, const bertkit_table *tables, const int64_t *const *ids, int32_t tokens,
    int32_t width, float eps, const float *scale, const float *shift, float *result, bertkit_error *error) {
    const Kernels *k;
    FORWARD(kernels_of(variant, &k, error));
    FORWARD(check_range(num_tables, 1, 64, "num_tables", error));
    FORWARD(check_range(tokens, 0, INT32_MAX, "tokens", error));
    FORWARD(check_range(width, 1, 1 << 20, "width", error));
    if (!tokens) return BERTKIT_OK;
    FORWARD(check_pointer(tables, sizeof(void *), "tables", error));
    FORWARD(check_pointer(ids, sizeof(void *), "ids", error));
    FORWARD(check_pointer(scale, sizeof *scale, "scale", error));
    FORWARD(check_pointer(shift, sizeof *shift, "shift", error));
    FORWARD(check_pointer(result, sizeof *result, "result", error));
    for (int t = 0; t < num_tables; t++) {
        FORWARD(check_table(&tables[t], t, error));
        FORWARD(check_pointer(ids[t], sizeof **ids, "ids of a table", error));
        for (int i = 0; i < tokens; i++)
            REQUIRE(
                0 <= ids[t][i] && ids[t][i] < tables[t].num_rows, BERTKIT_NO_ROW,
                "id %lld of token %d is not among the %lld rows of table %d", (long long)ids[t][i], i,
                (long long)tables[t].num_rows, t);
    }
    for (int i = 0; i < tokens; i++) {
        float *row = result + (ptrdiff_t)i * width;
        for (int t = 0; t < num_tables; t++) {
            int64_t id = ids[t][i];
            if (tables[t].row_scale) {
                const int8_t *bytes = (const int8_t *)tables[t].rows + id * width;
                k->add_bytes(row, bytes, tables[t].row_scale[id], tables[t].column_scale, width, t > 0);
            } else {
                k->add_floats(row, (const float *)tables[t].rows + id * width, width, t > 0);
            }
        }
        k->normalize_rows(row, width, 1, width, eps, scale, shift);
    }
    return BERTKIT_OK;
}

static bertkit_status check_positions(
    const Encoder *e, const bertkit_positions *positions, int longest, bertkit_error *error) {
    if (!positions) {
        REQUIRE(!e->rotary_tables && !e->has_distances, BERTKIT_NULL, "batch.positions is NULL; this encoder reads them");
        return BERTKIT_OK;
    }
    FORWARD(check_pointer(positions, sizeof(void *), "batch.positions", error));
    FORWARD(check_size(positions->struct_size, sizeof *positions, "batch.positions", error));
    FORWARD(check_range(positions->longest, 1, INT32_MAX / 4, "batch.positions.longest", error));
    for (int table = 0; table < 2; table++) {
        REQUIRE(
            positions->angles[table] || !(e->rotary_tables >> table & 1), BERTKIT_NULL,
            "batch.positions.angles[%d] is NULL; a layer reads it", table);
        if (positions->angles[table])
            FORWARD(check_pointer(positions->angles[table], sizeof(float), "batch.positions.angles", error));
    }
    if (positions->bias) FORWARD(check_pointer(positions->bias, sizeof(float), "batch.positions.bias", error));
    REQUIRE(
        positions->distances || !e->has_distances, BERTKIT_NULL, "batch.positions.distances is NULL; the layers read it");
    if (positions->distances)
        FORWARD(check_pointer(positions->distances, sizeof(int32_t), "batch.positions.distances", error));
    REQUIRE(
        longest <= positions->longest, BERTKIT_TOO_LONG, "a sequence has %d tokens, batch.positions are for %d", longest,
        positions->longest);
    for (int i = 0; e->has_distances && i < 2 * positions->longest - 1; i++)
        REQUIRE(
            0 <= positions->distances[i] && positions->distances[i] < e->layers[0].num_distances, BERTKIT_RANGE,
            "batch.positions.distances[%d] is %d, expected 0 to %d", i, positions->distances[i],
            e->layers[0].num_distances - 1);
    /* A head computes products with the rows between those of the farthest tokens alone. */
    for (int i = positions->longest - longest + 1; e->has_distances && i < positions->longest + longest - 1; i++)
        REQUIRE(
            positions->distances[i - 1] <= positions->distances[i], BERTKIT_SHAPE,
            "batch.positions.distances[%d] is %d, less than the %d before it", i, positions->distances[i],
            positions->distances[i - 1]);
    return BERTKIT_OK;
}

static bertkit_status check_wanted(const bertkit_batch *batch, bertkit_error *error) {
    FORWARD(check_pointer(batch->wanted, sizeof *batch->wanted, "batch.wanted", error));
    FORWARD(check_starts(batch->wanted_starts, batch->num_sequences, "batch.wanted_starts", error));
    for (int b = 0; b < batch->num_sequences; b++) {
        int least = batch->starts[b];
        for (int r = batch->wanted_starts[b]; r < batch->wanted_starts[b + 1]; r++) {
            int row = batch->wanted[r];
            REQUIRE(
                least <= row && row < batch->starts[b + 1], BERTKIT_RANGE,
                "batch.wanted[%d] is %d, expected %d to %d of sequence %d", r, row, least, batch->starts[b + 1] - 1, b);
            least = row + 1; /* a row that is wanted twice would need room that no buffer has */
        }
    }
    return BERTKIT_OK;
}

bertkit_status bertkit_encode(
    const bertkit_encoder *encoder, const bertkit_batch *batch, float *result, int32_t threads, bertkit_error *error) {
    FORWARD(check_pointer(encoder, sizeof(void *), "encoder", error));
    FORWARD(check_pointer(batch, sizeof(void *), "batch", error));
    FORWARD(check_size(batch->struct_size, sizeof *batch, "batch", error));
    FORWARD(check_range(batch->num_sequences, 0, INT32_MAX - 1, "batch.num_sequences", error));
    FORWARD(check_starts(batch->starts, batch->num_sequences, "batch.starts", error));
    Encoder *e = (Encoder *)encoder; /* whose list of idle workspaces changes, under a lock */
    int sequences = batch->num_sequences, longest = 0;
    for (int b = 0; b < sequences; b++) {
        int tokens = batch->starts[b + 1] - batch->starts[b];
        if (tokens > longest) longest = tokens;
    }
    if (batch->wanted) FORWARD(check_wanted(batch, error));
    Call call = {.encoder = e, .batch = batch, .result = result, .tokens = batch->starts[sequences],
                 .num_wanted = batch->wanted ? batch->wanted_starts[sequences] : 0};
    if (!call.tokens || (batch->wanted && !call.num_wanted)) return BERTKIT_OK;
    FORWARD(check_pointer(batch->rows, sizeof *batch->rows, "batch.rows", error));
    FORWARD(check_pointer(result, sizeof *result, "result", error));
    FORWARD(check_positions(e, batch->positions, longest, error));
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    Sizes sizes = {call.tokens, longest, threads, call.num_wanted};
    REQUIRE(
        has_addresses(e, sizes), BERTKIT_OVERFLOW, "%d tokens in %d threads need more bytes than there are addresses",
        call.tokens, threads);
    call.space = take_workspace(e, sizes);
    REQUIRE(call.space, BERTKIT_NO_MEMORY, "no memory for %d tokens in %d threads", call.tokens, threads);
    encode(&call, threads);
    give_workspace(e, call.space);
    return BERTKIT_OK;
}
