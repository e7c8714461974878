/* The buffers of calls: each call takes a workspace, and a few stay for later ones. */
#ifndef BERTKIT_WORKSPACE_H
#define BERTKIT_WORKSPACE_H

#include "weights.h"

/* Rows that go through the feed-forward block together. */
#define BLOCK_ROWS 96
/* Up to so many rows for each thread, a team divides matrices by columns. */
#define FEW_ROWS 48
_Static_assert(BLOCK_ROWS >= FEW_ROWS, "the inner rows have room for all rows of a team that divides by columns");

/* What a workspace has room for: tokens, those of the longest sequence, threads, and wanted rows of the top layer. */
typedef struct {
    int tokens, longest, members, wanted;
} Sizes;

typedef struct Workspace {
    struct Workspace *next;
    Sizes sizes;
    Block *memory;
    float *x, *qkv[2], *attended, *wanted_x, *wanted_queries, *inner, *scratch;
    float *normed;      /* what the products of gated layers read */
    int32_t *positions; /* of the tokens in their sequences, then of the wanted rows */
    void *x_converted, *attended_converted, *inner_converted;
    float *x_scales, *attended_scales, *inner_scales;
} Workspace;

/* Columns from one row to the next; no power of two: rows would share cache sets. */
static inline ptrdiff_t stride_of(const Encoder *e, int width) {
    return round_up(width, e->kernels->panel) + e->kernels->panel;
}

static inline ptrdiff_t inner_stride_of(const Encoder *e) { return stride_of(e, e->gated ? 2 * e->inner : e->inner); }

/* Floats that a member needs for attention: keys in panels, scores, and products with the vectors of distances. */
uint64_t scratch_of(const Encoder *e, int longest);
/* Whether a size_t can be as large as a workspace's buffers; one of 32 bits may not. */
int has_addresses(const Encoder *e, Sizes sizes);
/* The first idle workspace if it is large enough, or one for both in its place; NULL: no memory. */
Workspace *take_workspace(Encoder *e, Sizes needed);
void give_workspace(Encoder *e, Workspace *workspace);
void free_idle(Encoder *e);

#endif
