/* The mean of the top layer over a text's ids: embed WEIGHTS ID...; WEIGHTS holds the floats that the test writes. */
#include <stdio.h>
#include <stdlib.h>

#include "bertkit.h"

#define DONE(CALL) if (CALL) return fprintf(stderr, "%s: %s\n", bertkit_status_name(error.status), error.text), 1

int main(int count, char **words) {
    FILE *file = fopen(words[1], "rb");
    int sizes[5], tokens = count - 2; /* layers, width, heads, inner, words */
    if (!file || fread(sizes, sizeof *sizes, 5, file) != 5) return 2;
    int layers = sizes[0], width = sizes[1], inner = sizes[3];
    int shapes[][2] = {{3 * width, width}, {width, width}, {inner, width}, {width, inner}};
    float *scratch = malloc(sizeof(float) * ((size_t)sizes[4] * width + 4 * width * (width + inner))), *next = scratch;
    bertkit_error error;
    bertkit_builder *builder;
    bertkit_encoder *encoder;
    bertkit_shape shape = {sizeof shape, layers, layers, NULL, width, sizes[2], inner, BERTKIT_GELU, 1e-12f, 0, 1};
    DONE(bertkit_builder_new(&shape, -1, &builder, &error));
#define READ(NUMBER) (next = scratch + (size_t)sizes[4] * width, fread(next, sizeof(float), NUMBER, file), next)
    for (int layer = 0; layer < layers; layer++)
        for (int which = 0; which < 4; which++) {
            int outputs = shapes[which][0], inputs = shapes[which][1];
            float *weights = READ((size_t)outputs * inputs + outputs + (which % 2 ? 2 * width : 0));
            bertkit_matrix matrix = {.struct_size = sizeof matrix, .kind = BERTKIT_F32, .outputs = outputs, .inputs = inputs,
                                     .weights = weights, .bias = weights + (size_t)outputs * inputs, .unit = 1.0f};
            DONE(bertkit_builder_set_matrix(builder, layer, which, &matrix, &error));
            const float *norm = matrix.bias + outputs;
            if (which % 2) DONE(bertkit_builder_set_norm(builder, layer, which / 2, norm, norm + width, &error));
        }
    DONE(bertkit_builder_seal(&builder, &encoder, &error));
    const float *norm = READ(2 * width);
    fread(scratch, sizeof(float), (size_t)sizes[4] * width, file);
    int64_t *ids = malloc(sizeof *ids * tokens);
    for (int i = 0; i < tokens; i++) ids[i] = atoi(words[i + 2]);
    float *rows = malloc(sizeof *rows * tokens * width), *result = malloc(sizeof *result * tokens * width);
    bertkit_table table = {scratch, NULL, NULL, sizes[4]};
    const int64_t *all[] = {ids};
    DONE(bertkit_embed(-1, 1, &table, all, tokens, width, 1e-12f, norm, norm + width, rows, &error));
    int32_t starts[] = {0, tokens};
    bertkit_batch batch = {sizeof batch, 1, starts, rows, NULL, NULL, NULL};
    DONE(bertkit_encode(encoder, &batch, result, 1, &error));
    DONE(bertkit_pool(BERTKIT_POOL_MEAN, 1, starts, result, 0, width, rows, &error));
    for (int c = 0; c < width; c++) printf("%.9g\n", rows[c]);
    bertkit_encoder_free(encoder);
    return 0;
}
