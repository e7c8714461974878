/* What the page calls (docs/try/try.js). One model, one text, one result at a time; texts are UTF-8.
 *
 * A function that returns a count returns -1 where something is wrong; browser_error() then says what. */
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "model.h"

#if defined(__wasm__)
#define EXPORT(NAME) __attribute__((export_name(#NAME)))
#else
#define EXPORT(NAME) __attribute__((visibility("default")))
#endif

/* Lines that are compared at once; the matrix is their square. */
#define MOST_LINES 64

static struct {
    model *model;
    char *file, *text;
    void *result;
    size_t text_room, result_room;
    bertkit_error error;
} page;

/* 0: no memory. */
static int grow(void *buffer, size_t *room, size_t bytes) {
    if (bytes <= *room) return 1;
    void **held = buffer, *grown = realloc(*held, bytes);
    if (!grown) return 0;
    *held = grown, *room = bytes;
    return 1;
}

static int32_t no_memory(void) { return fail(&page.error, BERTKIT_NO_MEMORY, "no memory"), -1; }

/* Ends with NUL. */
EXPORT(browser_error) const char *browser_error(void) { return page.error.text; }

/* Where the model's file goes before browser_load; NULL: no memory. */
EXPORT(browser_file) char *browser_file(size_t size) { return page.file = malloc(size); }

/* 0, or -1. */
EXPORT(browser_load) int32_t browser_load(size_t size) {
    if (page.model) return fail(&page.error, BERTKIT_TWICE, "the model is loaded"), -1;
    if (!model_new(page.file, size, &page.model, &page.error)) return 0;
    free(page.file);
    page.file = NULL;
    return -1;
}

/* Where a text goes before a call with its size; NULL: no memory. */
EXPORT(browser_text) char *browser_text(size_t size) {
    return grow(&page.text, &page.text_room, size + 1) ? page.text : NULL;
}

/* Where a call puts what it found. */
EXPORT(browser_result) const void *browser_result(void) { return page.result; }

EXPORT(browser_entry) const char *browser_entry(int32_t id) {
    int32_t size;
    return wordpiece_entry(model_tokenizer(page.model), id, &size);
}

EXPORT(browser_entry_size) int32_t browser_entry_size(int32_t id) {
    int32_t size;
    return wordpiece_entry(model_tokenizer(page.model), id, &size), size;
}

/* The number of pieces; result: wordpiece_piece of each. */
EXPORT(browser_pieces) int32_t browser_pieces(size_t size) {
    const wordpiece_piece *pieces;
    int32_t count;
    if (wordpiece_cut(model_tokenizer(page.model), page.text, size, &pieces, &count, &page.error)) return -1;
    size_t bytes = (size_t)count * sizeof *pieces;
    if (!grow(&page.result, &page.result_room, bytes + 1)) return no_memory();
    if (count) memcpy(page.result, pieces, bytes);
    return count;
}

/* The number of masks; result: `most` candidates of each. */
EXPORT(browser_fill) int32_t browser_fill(size_t size, int32_t most) {
    int32_t masks;
    size_t room = (size_t)model_sizes_of(page.model)->positions * most * sizeof(candidate);
    if (!grow(&page.result, &page.result_room, room)) return no_memory();
    return model_fill(page.model, page.text, size, most, page.result, &masks, &page.error) ? -1 : masks;
}

/* The number n of lines of the text; result: their vectors, [n][vector], behind their cosines, [n][n]. */
EXPORT(browser_similarities) int32_t browser_similarities(size_t size) {
    int32_t lines = 1, width = model_sizes_of(page.model)->vector;
    for (size_t i = 0; i < size; i++) lines += page.text[i] == '\n';
    if (lines > MOST_LINES)
        return fail(&page.error, BERTKIT_RANGE, "%d lines; at most %d are compared at once", lines, MOST_LINES), -1;
    size_t cosines = (size_t)lines * lines;
    if (!grow(&page.result, &page.result_room, (cosines + (size_t)lines * width) * sizeof(float))) return no_memory();
    float *result = page.result, *vectors = result + cosines;
    const char *line = page.text, *end = page.text + size;
    for (int32_t i = 0; i < lines; i++) {
        const char *after = memchr(line, '\n', end - line);
        if (!after) after = end;
        bertkit_error why;
        if (model_vector(page.model, line, after - line, vectors + (size_t)i * width, &why))
            return fail(&page.error, why.status, "line %d: %.200s", i + 1, why.text), -1;
        line = after + 1;
    }
    for (int32_t a = 0; a < lines; a++)
        for (int32_t b = 0; b < lines; b++) {
            double sum = 0.0;
            for (int32_t i = 0; i < width; i++) sum += (double)vectors[(size_t)a * width + i] * vectors[(size_t)b * width + i];
            result[(size_t)a * lines + b] = (float)sum;
        }
    return lines;
}

/* Numbers of a vector. */
EXPORT(browser_width) int32_t browser_width(void) { return model_sizes_of(page.model)->vector; }
