/* One call of an encoder. */
#ifndef BERTKIT_FORWARD_H
#define BERTKIT_FORWARD_H

#include "workspace.h"

/* B sequences end to end, and the rows of the top layer that are wanted (NULL: all). */
typedef struct {
    const Encoder *encoder;
    const bertkit_batch *batch;
    float *result;
    int tokens, num_wanted;
    Workspace *space;
} Call;

/* In `threads` threads, of which fewer may be free. */
void encode(Call *call, int threads);

#endif
