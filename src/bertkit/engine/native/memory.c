#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif !defined(__wasm__)
#include <sys/mman.h>
#endif

#if defined(__wasm__) /* whose memory is taken as soon as it is asked for */
#define HUGE_PAGE ((size_t)64 << 10)
#else
#define HUGE_PAGE ((size_t)2 << 20)
#endif
#define BLOCK_BYTES (8 * HUGE_PAGE)

struct Block {
    struct Block *before;
    size_t size, used; /* bytes, this header included */
};

static size_t whole_steps(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/* Whole pages from the system, which has filled them with zeros, or will when they are first used; NULL: no memory. */
static void *new_block(size_t bytes) {
#if defined(_WIN32)
    return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#elif defined(__wasm__)
    void *found = NULL;
    return posix_memalign(&found, HUGE_PAGE, bytes) ? NULL : memset(found, 0, bytes);
#else
    char *found = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)found % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(found, before);
    if (HUGE_PAGE - before) munmap(found + before + bytes, HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
    madvise(found + before, bytes, MADV_HUGEPAGE);
#endif
    return found + before;
#endif
}

static void free_block(Block *block) {
#if defined(_WIN32)
    VirtualFree(block, 0, MEM_RELEASE);
#elif defined(__wasm__)
    free(block);
#else
    munmap(block, block->size);
#endif
}

void *zeros(Block **memory, size_t count, size_t size) {
    const size_t header = whole_steps(sizeof(Block), 64);
    Block *block = *memory;
    size_t bytes;
    if (!multiplied(count, size, &bytes) || bytes > SIZE_MAX / 2 - BLOCK_BYTES) return NULL;
    bytes = whole_steps(bytes, 64);
    if (!block || block->size - block->used < bytes) {
        size_t all = whole_steps(header + bytes > BLOCK_BYTES ? header + bytes : BLOCK_BYTES, HUGE_PAGE);
        block = new_block(all);
        if (!block) return NULL;
        *block = (Block){.before = *memory, .size = all, .used = header};
        *memory = block;
    }
    void *result = (char *)block + block->used;
    block->used += bytes;
    return result;
}

void free_all(Block *memory) {
    while (memory) {
        Block *before = memory->before;
        free_block(memory);
        memory = before;
    }
}
