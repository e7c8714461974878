/* In a program with addresses of 32 bits: sizes whose products leave a size_t are refused. Prints what is said. */
#include <stdio.h>
#include <stdlib.h>

#include "bertkit.h"

#define DISTANCES 4096

_Static_assert(sizeof(size_t) == 4, "this is for addresses of 32 bits");

static bertkit_error error;

static void say(bertkit_status status) { printf("%s: %s\n", bertkit_status_name(status), status ? error.text : ""); }

/* `weights`: for any of the matrices. */
static int set_layer(bertkit_builder *builder, const float *weights) {
    const int sizes[][2] = {{24, 8}, {8, 8}, {12, 8}, {8, 12}};
    for (int which = 0; which < 4; which++) {
        bertkit_matrix matrix = {.struct_size = sizeof matrix, .kind = BERTKIT_F32, .outputs = sizes[which][0],
                                 .inputs = sizes[which][1], .weights = weights, .bias = weights, .unit = 1.0f};
        if (bertkit_builder_set_matrix(builder, 0, which, &matrix, &error)) return 0;
    }
    return !bertkit_builder_set_norm(builder, 0, 0, weights, weights, &error) &&
        !bertkit_builder_set_norm(builder, 0, 1, weights, weights, &error);
}

/* Many tokens in many threads; then one token in many, and many in one: a workspace for both would be too large. */
static void encode(const bertkit_encoder *encoder) {
    enum { LONG = 4200 };
    static float rows[LONG * 8], result[8];
    static int32_t distances[2 * LONG - 1];
    int32_t wanted[] = {0}, wanted_starts[] = {0, 1};
    bertkit_positions positions = {.struct_size = sizeof positions, .longest = LONG, .distances = distances};
    const int32_t tokens[] = {LONG, 1, LONG}, threads[] = {256, 64, 1};
    for (int i = 0; i < 3; i++) {
        int32_t starts[] = {0, tokens[i]};
        bertkit_batch batch = {sizeof batch, 1, starts, rows, wanted, wanted_starts, &positions};
        say(bertkit_encode(encoder, &batch, result, threads[i], &error));
    }
}

int main(void) {
    enum { OUTPUTS = 11200000 };
    static const float weights[8 * 24];
    bertkit_shape shape = {sizeof shape, 1, 1, NULL, 8, 2, 12, BERTKIT_GELU, 1e-6f, 0, 2};
    bertkit_builder *builder = NULL;
    bertkit_encoder *encoder = NULL;
    void *wide = calloc(OUTPUTS, 2);
    float *bias = calloc(1 << 24, sizeof *bias), result[8];
    if (!wide || !bias) return 2;
    if (bertkit_builder_new(&shape, -1, &builder, &error) || !set_layer(builder, weights)) return 3;
    if (bertkit_builder_set_attention(builder, 0, -1, -1, DISTANCES, NULL, NULL, &error)) return 3;
    int32_t number;
    bertkit_matrix product = {.struct_size = sizeof product, .kind = BERTKIT_F16, .outputs = OUTPUTS, .inputs = 1,
                              .weights = wide, .bias = bias, .unit = 1.0f};
    if (bertkit_builder_add_matrix(builder, &product, &number, &error)) return 4;
    bertkit_matrix large = {.struct_size = sizeof large, .kind = BERTKIT_F32, .outputs = 1 << 24, .inputs = 1 << 16,
                            .weights = weights, .bias = bias, .unit = 1.0f};
    bertkit_status refused = bertkit_builder_add_matrix(builder, &large, &number, &error);
    bertkit_error first = error;
    if (bertkit_builder_seal(&builder, &encoder, &error)) return 5;
    encode(encoder);
    say(bertkit_multiply(encoder, number, weights, 96, 0, result, &error));
    error = first;
    say(refused);
    bertkit_encoder_free(encoder);
    return 0;
}
