#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK_BYTES (8 * HUGE_PAGE)

struct Block {
    struct Block *before;
    size_t size, used; /* bytes, this header included */
};

static size_t whole_steps(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

void *zeros(Block **memory, size_t count, size_t size) {
    const size_t header = whole_steps(sizeof(Block), 64);
    Block *block = *memory;
    size_t bytes;
    if (!multiplied(count, size, &bytes) || bytes > SIZE_MAX / 2 - BLOCK_BYTES) return NULL;
    bytes = whole_steps(bytes, 64);
    if (!block || block->size - block->used < bytes) {
        size_t all = whole_steps(header + bytes > BLOCK_BYTES ? header + bytes : BLOCK_BYTES, HUGE_PAGE);
        void *found = NULL;
        if (posix_memalign(&found, HUGE_PAGE, all)) return NULL;
#if defined(MADV_HUGEPAGE)
        madvise(found, all, MADV_HUGEPAGE);
#endif
        block = found;
        *block = (Block){.before = *memory, .size = all, .used = header};
        *memory = block;
    }
    void *result = (char *)block + block->used;
    block->used += bytes;
    return memset(result, 0, bytes);
}

void free_all(Block *memory) {
    while (memory) {
        Block *before = memory->before;
        free(memory);
        memory = before;
    }
}

size_t bytes_of(const Block *memory) {
    size_t bytes = 0;
    for (; memory; memory = memory->before) bytes += memory->used;
    return bytes;
}
