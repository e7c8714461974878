#include "workspace.h"

#include <stdlib.h>
#include <string.h>

#include "threads.h"

/* Workspaces that an encoder keeps while nobody uses them; what more callers at once leave behind is freed. */
#define MOST_IDLE 4

static void free_workspace(Workspace *w) {
    free_all(w->memory);
    free(w);
}

/* Columns of the products with the vectors of distances: for all of these, as few tokens may have rows far apart. */
static int distance_columns(const Encoder *e) { return round_up(e->layers[0].num_distances, e->kernels->panel); }

uint64_t scratch_of(const Encoder *e, int longest) {
    uint64_t keys = round_up(longest, e->kernels->panel), columns = distance_columns(e), rows = e->kernels->tile_rows;
    return keys * (e->width / e->heads + rows) + columns * (longest + rows);
}

/* Floats of the largest buffers: of all members' scratch, and of query, key and value. */
static uint64_t all_scratch(const Encoder *e, Sizes s) { return s.members * scratch_of(e, s.longest); }

static uint64_t qkv_floats(const Encoder *e, Sizes s) {
    return (uint64_t)s.tokens * stride_of(e, 3 * e->width) + e->kernels->panel;
}

int has_addresses(const Encoder *e, Sizes sizes) {
    const uint64_t most = SIZE_MAX / sizeof(float);
    return all_scratch(e, sizes) <= most && qkv_floats(e, sizes) <= most;
}

static Workspace *new_workspace(const Encoder *e, Sizes sizes) {
    Workspace *w = has_addresses(e, sizes) ? calloc(1, sizeof *w) : NULL;
    if (!w) return NULL;
    w->sizes = sizes;
    size_t wide = stride_of(e, e->width), inner = inner_stride_of(e);
    size_t rows = sizes.tokens, wanted = sizes.wanted, blocks = (size_t)sizes.members * BLOCK_ROWS;
    size_t scratch = all_scratch(e, sizes), qkv = qkv_floats(e, sizes);
    Block **m = &w->memory;
    int complete = (w->x = zeros(m, rows * wide, 4)) && (w->attended = zeros(m, rows * wide, 4)) &&
        (w->qkv[0] = zeros(m, qkv, 4)) && (w->qkv[1] = zeros(m, sizes.members > 1 ? qkv : 0, 4)) &&
        (w->wanted_x = zeros(m, wanted * wide, 4)) && (w->wanted_queries = zeros(m, wanted * wide, 4)) &&
        (w->normed = zeros(m, e->gated ? rows * wide : 0, 4)) && (w->positions = zeros(m, rows + wanted, 4)) &&
        (w->inner = zeros(m, blocks * inner, 4)) && (w->scratch = zeros(m, scratch, 4)) &&
        (w->x_converted = zeros(m, rows * wide, 2)) && (w->attended_converted = zeros(m, rows * wide, 2)) &&
        (w->inner_converted = zeros(m, blocks * inner, 2)) && (w->x_scales = zeros(m, rows, 4)) &&
        (w->attended_scales = zeros(m, rows, 4)) && (w->inner_scales = zeros(m, blocks, 4));
    if (complete) return w;
    free_workspace(w);
    return NULL;
}

static int larger(int a, int b) { return a > b ? a : b; }

Workspace *take_workspace(Encoder *e, Sizes needed) {
    lock_shared();
    Workspace *found = e->idle;
    if (found) e->idle = found->next, e->num_idle--;
    unlock_shared();
    if (!found) return new_workspace(e, needed);
    Sizes has = found->sizes, both = {
        larger(has.tokens, needed.tokens), larger(has.longest, needed.longest),
        larger(has.members, needed.members), larger(has.wanted, needed.wanted)};
    if (!memcmp(&both, &has, sizeof has)) return found;
    free_workspace(found);
    Workspace *made = new_workspace(e, both);
    return made ? made : new_workspace(e, needed);
}

void give_workspace(Encoder *e, Workspace *w) {
    lock_shared();
    int kept = e->num_idle < MOST_IDLE;
    if (kept) w->next = e->idle, e->idle = w, e->num_idle++;
    unlock_shared();
    if (!kept) free_workspace(w);
}

void free_idle(Encoder *e) {
    while (e->idle) {
        Workspace *next = e->idle->next;
        free_workspace(e->idle);
        e->idle = next;
    }
}
