/* The product of rows with a matrix that was added to an encoder: layers of heads. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "weights.h"
#include "workspace.h"

/* Buffers for a block of rows, in one piece: what the product reads and writes, filled up to whole panels. */
typedef struct {
    Rows x;
    float *y;
    ptrdiff_t y_stride;
    void *memory;
} Buffers;

static bertkit_status make_buffers(const Kernels *k, const Matrix *m, int rows, Buffers *b, bertkit_error *error) {
    size_t x_stride = round_up(m->inputs, k->panel) + k->panel, y_stride = round_up(m->outputs, k->panel);
    /* Floats, their conversion and its scale; then the result. */
    size_t a_row = (x_stride + y_stride + x_stride / 2 + 1) * sizeof(float), bytes;
    REQUIRE(
        multiplied(a_row, rows, &bytes) && bytes <= SIZE_MAX - 256, BERTKIT_OVERFLOW,
        "%d rows of a product need more bytes than there are addresses", rows);
    b->memory = calloc(1, bytes + 256);
    REQUIRE(b->memory, BERTKIT_NO_MEMORY, "no memory for %d rows of a product", rows);
    float *x = (float *)(((uintptr_t)b->memory + 63) & ~(uintptr_t)63);
    b->y = x + rows * x_stride;
    b->y_stride = y_stride;
    b->x = (Rows){x, x_stride, b->y + rows * y_stride, NULL};
    b->x.scales = (float *)b->x.converted + rows * (x_stride / 2);
    return BERTKIT_OK;
}

bertkit_status bertkit_multiply(
    const bertkit_encoder *encoder, int32_t number, const float *rows, int32_t num_rows, int32_t activation,
    float *result, bertkit_error *error) {
    FORWARD(check_pointer(encoder, sizeof(void *), "encoder", error));
    FORWARD(check_range(number, 0, encoder->num_added - 1, "number", error));
    FORWARD(check_range(num_rows, 0, INT32_MAX, "num_rows", error));
    FORWARD(check_range(activation, NO_ACTIVATION, BERTKIT_RELU, "activation", error));
    if (!num_rows) return BERTKIT_OK;
    FORWARD(check_pointer(rows, sizeof *rows, "rows", error));
    FORWARD(check_pointer(result, sizeof *result, "result", error));
    const Kernels *k = encoder->kernels;
    const Matrix *m = &encoder->added[number];
    int most = num_rows < BLOCK_ROWS ? num_rows : BLOCK_ROWS;
    Buffers b;
    FORWARD(make_buffers(k, m, most, &b, error));
    for (int first = 0, count; first < num_rows; first += count) {
        count = num_rows - first < most ? num_rows - first : most;
        for (int r = 0; r < count; r++)
            memcpy(
                (float *)b.x.rows + r * b.x.stride, rows + (ptrdiff_t)(first + r) * m->inputs, m->inputs * sizeof *rows);
        k->convert_rows(m, &b.x, 0, count);
        k->multiply(m, &b.x, 0, count, 0, panels_of(k, m), activation, NULL, b.y, b.y_stride);
        for (int r = 0; r < count; r++)
            memcpy(result + (ptrdiff_t)(first + r) * m->outputs, b.y + r * b.y_stride, m->outputs * sizeof *result);
    }
    free(b.memory);
    return BERTKIT_OK;
}
