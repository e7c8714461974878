/* Memory that is given out from front to back, filled with zeros, and freed as a whole.
 *
 * It comes in large blocks, of huge pages where the system has them: each call reads all weights from front to back, and
 * with pages of 4 kB the processor would have to look up the places of thousands. The part of a block that is never given
 * out takes no memory.
 */
#ifndef BERTKIT_MEMORY_H
#define BERTKIT_MEMORY_H

#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK_BYTES (8 * HUGE_PAGE)

typedef struct Block {
    struct Block *before;
    size_t size, used; /* bytes, this header included */
} Block;

static size_t whole_steps(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/* So many zero bytes, aligned to 64; NULL: no memory. */
static void *zeros(Block **memory, size_t bytes) {
    const size_t header = whole_steps(sizeof(Block), 64);
    Block *block = *memory;
    bytes = whole_steps(bytes, 64);
    if (!block || block->size - block->used < bytes) {
        size_t size = whole_steps(header + bytes > BLOCK_BYTES ? header + bytes : BLOCK_BYTES, HUGE_PAGE);
        void *found = NULL;
        if (posix_memalign(&found, HUGE_PAGE, size)) return NULL;
#if defined(MADV_HUGEPAGE)
        madvise(found, size, MADV_HUGEPAGE);
#endif
        block = found;
        *block = (Block){.before = *memory, .size = size, .used = header};
        *memory = block;
    }
    void *result = (char *)block + block->used;
    block->used += bytes;
    return memset(result, 0, bytes);
}

static void free_all(Block *memory) {
    while (memory) {
        Block *before = memory->before;
        free(memory);
        memory = before;
    }
}

#endif
