/* One vector of each sequence's rows, which are added in their order, whatever the processor. */
#include <math.h>
#include <string.h>

#include "check.h"

static void add_row(float *sum, const float *row, int32_t width) {
    for (int32_t c = 0; c < width; c++) sum[c] += row[c];
}

static void add_weighted(float *sum, const float *row, float weight, int32_t width) {
    for (int32_t c = 0; c < width; c++) sum[c] += weight * row[c];
}

/* A value that is not a number stays. */
static void keep_largest(float *most, const float *row, int32_t width) {
    for (int32_t c = 0; c < width; c++) most[c] = row[c] > most[c] || row[c] != row[c] ? row[c] : most[c];
}

static void divide(float *x, float by, int32_t width) {
    for (int32_t c = 0; c < width; c++) x[c] /= by;
}

static void pool_sequence(int32_t mode, const float *rows, int32_t first, int32_t count, int32_t width, float *result) {
    const float *row = rows + (ptrdiff_t)first * width, *end = rows + (ptrdiff_t)count * width;
    float size = (float)(count - first), all = 0.5f * ((float)count * (count + 1.0f) - (float)first * (first + 1.0f));
    if (mode == BERTKIT_POOL_LAST) row = end - width;
    if (mode == BERTKIT_POOL_WEIGHTED_MEAN)
        memset(result, 0, width * sizeof *result);
    else
        memcpy(result, row, width * sizeof *result), row += width;
    switch (mode) {
    case BERTKIT_POOL_MAX:
        for (; row < end; row += width) keep_largest(result, row, width);
        break;
    case BERTKIT_POOL_WEIGHTED_MEAN:
        for (int32_t i = first; i < count; i++, row += width) add_weighted(result, row, (float)(i + 1) / all, width);
        break;
    case BERTKIT_POOL_MEAN:
    case BERTKIT_POOL_MEAN_SQRT:
        for (; row < end; row += width) add_row(result, row, width);
        divide(result, mode == BERTKIT_POOL_MEAN ? size : sqrtf(size), width);
        break;
    default: break; /* one row, which is there */
    }
}

bertkit_status bertkit_pool(
    int32_t mode, int32_t num_sequences, const int32_t *starts, const float *rows, int32_t skipped, int32_t width,
    float *result, bertkit_error *error) {
    FORWARD(check_range(mode, BERTKIT_POOL_FIRST, BERTKIT_POOL_WEIGHTED_MEAN, "mode", error));
    FORWARD(check_range(num_sequences, 1, INT32_MAX - 1, "num_sequences", error));
    FORWARD(check_range(skipped, 0, INT32_MAX, "skipped", error));
    FORWARD(check_range(width, 1, 1 << 20, "width", error));
    FORWARD(check_pointer(starts, sizeof *starts, "starts", error));
    FORWARD(check_starts(starts, num_sequences, "starts", error));
    for (int32_t b = 0; b < num_sequences; b++)
        REQUIRE(
            starts[b + 1] - starts[b] > skipped, BERTKIT_RANGE, "sequence %d has %d rows, and %d are skipped", b,
            starts[b + 1] - starts[b], skipped);
    FORWARD(check_pointer(rows, sizeof *rows, "rows", error));
    FORWARD(check_pointer(result, sizeof *result, "result", error));
    for (int32_t b = 0; b < num_sequences; b++)
        pool_sequence(
            mode, rows + (ptrdiff_t)starts[b] * width, skipped, starts[b + 1] - starts[b], width,
            result + (ptrdiff_t)b * width);
    return BERTKIT_OK;
}
