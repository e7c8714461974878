/* The buffers of calls: each call takes a workspace, and a few stay for later ones. */
#ifndef BERTKIT_WORKSPACES_H
#define BERTKIT_WORKSPACES_H

#include <pthread.h>

#include "model.h"

/* Rows that go through the feed-forward block together. */
#define BLOCK_ROWS 96
/* Up to so many rows for each thread, a team divides matrices by columns. */
#define FEW_ROWS 48
_Static_assert(BLOCK_ROWS >= FEW_ROWS, "the inner rows have room for all rows of a team that divides by columns");
/* Workspaces that an encoder keeps while nobody uses them; what more callers at once leave behind is freed. */
#define MOST_IDLE 4

/* What a workspace has room for: tokens, those of the longest sequence, threads, and chosen rows of the top layer. */
typedef struct {
    int tokens, longest, members, chosen;
} Sizes;

typedef struct Workspace {
    struct Workspace *next;
    Sizes sizes;
    Block *memory;
    float *x, *qkv[2], *attended, *chosen_x, *chosen_q, *inner, *scratch;
    float *normed;   /* what the products of gated layers read */
    int32_t *places; /* of the tokens in their sequences, then of the chosen rows */
    void *x_converted, *attended_converted, *inner_converted;
    float *x_scales, *attended_scales, *inner_scales;
} Workspace;

/* For the lists of idle workspaces. Whoever forks holds it, so that the child finds it free and every list whole. */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_idle(void) { pthread_mutex_lock(&idle_lock); }

static void unlock_idle(void) { pthread_mutex_unlock(&idle_lock); }

__attribute__((constructor)) static void guard_forks(void) { pthread_atfork(lock_idle, unlock_idle, unlock_idle); }

/* Columns from one row to the next; no power of two: rows would share cache sets. */
static int stride_of(int width) { return round_up(width, PANEL) + PANEL; }

static int inner_stride_of(const Encoder *e) { return stride_of(e->gated ? 2 * e->inner : e->inner); }

static void free_workspace(Workspace *w) {
    free_all(w->memory);
    free(w);
}

/* Columns of the products with the vectors of distances that a sequence of so many tokens needs. */
static int distance_columns(const Encoder *e, int tokens) {
    int all = round_up(e->layers[0].num_distances, PANEL), needed = round_up(2 * tokens - 1, PANEL) + PANEL;
    return needed < all ? needed : all;
}

/* Floats that a member needs for attention: keys in panels, scores, and products with the vectors of distances. */
static size_t scratch_of(const Encoder *e, int longest) {
    size_t keys = round_up(longest, PANEL), columns = distance_columns(e, longest);
    return keys * (e->width / e->heads + TILE_ROWS) + columns * (longest + TILE_ROWS);
}

static Workspace *new_workspace(const Encoder *e, Sizes sizes) {
    Workspace *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->sizes = sizes;
    size_t wide = stride_of(e->width), triple = stride_of(3 * e->width), inner = inner_stride_of(e);
    size_t rows = sizes.tokens, chosen = sizes.chosen, blocks = (size_t)sizes.members * BLOCK_ROWS;
    size_t scratch = sizes.members * scratch_of(e, sizes.longest);
    Block **m = &w->memory;
    int complete = (w->x = zeros(m, rows * wide * 4)) && (w->attended = zeros(m, rows * wide * 4)) &&
        (w->qkv[0] = zeros(m, (rows * triple + PANEL) * 4)) &&
        (w->qkv[1] = zeros(m, sizes.members > 1 ? (rows * triple + PANEL) * 4 : 0)) &&
        (w->chosen_x = zeros(m, chosen * wide * 4)) && (w->chosen_q = zeros(m, chosen * wide * 4)) &&
        (w->normed = zeros(m, e->gated ? rows * wide * 4 : 0)) && (w->places = zeros(m, (rows + chosen) * 4)) &&
        (w->inner = zeros(m, blocks * inner * 4)) && (w->scratch = zeros(m, scratch * 4)) &&
        (w->x_converted = zeros(m, rows * wide * 2)) && (w->attended_converted = zeros(m, rows * wide * 2)) &&
        (w->inner_converted = zeros(m, blocks * inner * 2)) && (w->x_scales = zeros(m, rows * 4)) &&
        (w->attended_scales = zeros(m, rows * 4)) && (w->inner_scales = zeros(m, blocks * 4));
    if (complete) return w;
    free_workspace(w);
    return NULL;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* An idle workspace that is large enough, or a new one in its place. */
static Workspace *take_workspace(Encoder *e, Sizes needed) {
    lock_idle();
    Workspace *found = e->idle;
    if (found) e->idle = found->next, e->num_idle--;
    unlock_idle();
    if (!found) return new_workspace(e, needed);
    Sizes has = found->sizes, both = {
        larger(has.tokens, needed.tokens), larger(has.longest, needed.longest),
        larger(has.members, needed.members), larger(has.chosen, needed.chosen)};
    if (!memcmp(&both, &has, sizeof has)) return found;
    free_workspace(found);
    return new_workspace(e, both);
}

static void give_workspace(Encoder *e, Workspace *w) {
    lock_idle();
    int kept = e->num_idle < MOST_IDLE;
    if (kept) w->next = e->idle, e->idle = w, e->num_idle++;
    unlock_idle();
    if (!kept) free_workspace(w);
}

#endif
