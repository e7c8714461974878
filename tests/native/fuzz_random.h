/* Random numbers, buffers that end at a page that nobody may touch, and threads, for fuzz.c. */
#ifndef FUZZ_RANDOM_H
#define FUZZ_RANDOM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif !defined(__wasm__)
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "bertkit.h"

static uint64_t state;

static uint32_t drawn(uint32_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static float number(void) { return ((float)drawn(1 << 20) / (1 << 20) - 0.5f) * 2.0f; }

static float *numbers(size_t count, float scale) {
    float *made = malloc(count * sizeof *made + 1);
    for (size_t i = 0; i < count; i++) made[i] = number() * scale;
    return made;
}

/* Floats that end where a page begins that may not be touched; WebAssembly has no such pages. */
#if defined(_WIN32)
static float *guarded(size_t count, void **base, size_t *size) {
    size_t page = 4096, bytes = count * sizeof(float);
    DWORD before;
    *size = (bytes + page - 1) / page * page + page;
    *base = VirtualAlloc(NULL, *size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    VirtualProtect((char *)*base + *size - page, page, PAGE_NOACCESS, &before);
    return (float *)((char *)*base + *size - page - bytes);
}
static void free_guarded(void *base, size_t size) { (void)size, VirtualFree(base, 0, MEM_RELEASE); }
#elif defined(__wasm__)
static float *guarded(size_t count, void **base, size_t *size) {
    *size = count * sizeof(float);
    return *base = calloc(count + 1, sizeof(float));
}
static void free_guarded(void *base, size_t size) { (void)size, free(base); }
#else
static float *guarded(size_t count, void **base, size_t *size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * sizeof(float);
    *size = (bytes + page - 1) / page * page + page;
    *base = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect((char *)*base + *size - page, page, PROT_NONE);
    return (float *)((char *)*base + *size - page - bytes);
}
static void free_guarded(void *base, size_t size) { munmap(base, size); }
#endif

/* Call `function` with each of `count` jobs of `size` bytes, at most 4, all at once; without threads one by one. */
#if defined(_WIN32)
typedef DWORD Ended;
#define THREAD_FUNCTION WINAPI
static void at_once(Ended(WINAPI *function)(void *), void *jobs, size_t size, int count) {
    HANDLE threads[4];
    for (int i = 0; i < count; i++) threads[i] = CreateThread(NULL, 0, function, (char *)jobs + i * size, 0, NULL);
    WaitForMultipleObjects((DWORD)count, threads, TRUE, INFINITE);
    for (int i = 0; i < count; i++) CloseHandle(threads[i]);
}
#elif defined(__wasm__)
typedef void *Ended;
#define THREAD_FUNCTION
static void at_once(Ended (*function)(void *), void *jobs, size_t size, int count) {
    for (int i = 0; i < count; i++) function((char *)jobs + i * size);
}
#else
typedef void *Ended;
#define THREAD_FUNCTION
static void at_once(Ended (*function)(void *), void *jobs, size_t size, int count) {
    pthread_t threads[4];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, function, (char *)jobs + i * size)) abort();
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}
#endif

#define DONE(CALL) \
    do { \
        if (CALL) { \
            printf("%s: %s\n", bertkit_status_name(error.status), error.text); \
            exit(1); \
        } \
    } while (0)

#endif
