/* The weights of an encoder: given one by one, packed for a variant, sealed, and freed. */
#ifndef BERTKIT_WEIGHTS_H
#define BERTKIT_WEIGHTS_H

#include "bertkit.h"
#include "kernels/table.h"
#include "memory.h"

#define MOST_ADDED 256

typedef struct {
    Matrix matrices[BERTKIT_NUM_MATRICES];
    float *norm[BERTKIT_NUM_NORMS][2]; /* scale and shift; NULL: rows are read as they are */
    int half_window, rotary;           /* see bertkit_builder_set_attention */
    int num_distances;                 /* rows of the table of distances; 0: none */
    float *distance_keys, *distance_queries; /* of each head [panels][size][panel], or NULL */
    int has_attention;                 /* set_attention was called */
} Layer;

struct Workspace;

struct bertkit_encoder {
    const Kernels *kernels;
    int part_steps;       /* what pays on this processor, see part_steps_here */
    int packing_threads;
    int num_layers, num_stored, width, heads, inner, activation;
    float eps;
    int gated;
    float *final_norm[2]; /* after the top layer; NULL: none */
    int *order;           /* the stored layer at each depth */
    Layer *layers;
    int rotary_tables;    /* bit 1 << table of those that layers ask for */
    int has_distances;
    Matrix added[MOST_ADDED]; /* see bertkit_builder_add_matrix */
    int num_added;
    Block *memory;        /* of all of these */
    struct Workspace *idle; /* see workspace.h */
    int num_idle;
};
typedef struct bertkit_encoder Encoder;

/* A builder is the encoder that it will become. */
struct bertkit_builder {
    Encoder *encoder;
};

static inline int panels_of(const Kernels *k, const Matrix *m) { return round_up(m->outputs, k->panel) / k->panel; }

#endif
