/* A small BERT from one file: vectors of texts, masked words, and pieces.
 *
 * docs/try/build.py writes the file. Numbers are little-endian:
 *
 *     char magic[8]       "BERTKIT1"
 *     int32_t sizes[...]  as model_sizes below
 *     float eps           of the normalizations
 *     uint16_t            weights, halves (IEEE 754 binary16): word, position and segment rows; scale and shift of their
 *                         normalization; for each layer query, key and value together, attention's output, both matrices
 *                         of the feed-forward block, each with its bias behind it, then scale and shift of both
 *                         normalizations; before words a matrix, its bias, scale and shift; biases of the words; for
 *                         vectors a matrix of first row and mean side by side, and its bias
 *     char entries[]      of the vocabulary, in UTF-8, a line feed after each
 *
 * Weights stay halves where they are rows of tables; everything else becomes floats.
 */
#ifndef BERTKIT_BROWSER_MODEL_H
#define BERTKIT_BROWSER_MODEL_H

#include "../bertkit.h"
#include "wordpiece.h"

enum { PAD, UNK, CLS, SEP, MASK, NUM_SPECIAL };

typedef struct {
    int32_t layers, width, heads, inner, words, positions, segments;
    int32_t vector;         /* numbers of a text's vector */
    int32_t vector_tokens;  /* that it is made of at most, [CLS] and [SEP] among them */
    int32_t special[NUM_SPECIAL]; /* ids */
    int32_t entry_bytes;
} model_sizes;

typedef struct {
    int32_t id;
    float probability;
} candidate;

typedef struct model model;

/* `file` is read as long as the model lives. NULL, SHAPE (of a file that is damaged), and the errors of an encoder and a
 * tokenizer. */
bertkit_status model_new(const void *file, size_t size, model **made, bertkit_error *error);
void model_free(model *m);
const model_sizes *model_sizes_of(const model *m);
wordpiece *model_tokenizer(const model *m);
/* The vector of a text, [vector], of length 1. TOO_LONG. */
bertkit_status model_vector(model *m, const char *text, size_t size, float *vector, bertkit_error *error);
/* The `most` likeliest words at each [MASK], the likeliest first, those of the first [MASK] before those of the next;
 * `result` has room for most * model_sizes.positions. `masks`: how many there are. RANGE for a text without one,
 * TOO_LONG. */
bertkit_status model_fill(
    model *m, const char *text, size_t size, int32_t most, candidate *result, int32_t *masks, bertkit_error *error);

#endif
