#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

/* Turns of a waiting loop: of a phase before the processor is offered to others, of a worker before it sleeps. */
#define PHASE_TURNS 4096
#define IDLE_TURNS 20000

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

void meet(Team *team) {
    if (team->size == 1) return;
    int phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->size) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
        return;
    }
    for (int turn = 0; atomic_load_explicit(&team->phase, memory_order_acquire) == phase; turn++) {
        if (turn < PHASE_TURNS) PAUSE();
        else sched_yield();
    }
}

static struct {
    pthread_mutex_t busy, lock;
    pthread_cond_t wake;
    int workers;
    unsigned born[MOST_THREADS]; /* the number of the last call before each worker started */
    atomic_uint call; /* changes when there is work */
    Work work;
    void *job;
    Team team;
    atomic_int left; /* workers that have not finished this call */
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void *worker(void *argument) {
    int member = (int)(intptr_t)argument;
    unsigned seen = pool.born[member];
    for (;;) {
        for (int turn = 0; turn < IDLE_TURNS && atomic_load_explicit(&pool.call, memory_order_acquire) == seen; turn++)
            PAUSE();
        if (atomic_load_explicit(&pool.call, memory_order_acquire) == seen) {
            pthread_mutex_lock(&pool.lock);
            while (atomic_load_explicit(&pool.call, memory_order_acquire) == seen)
                pthread_cond_wait(&pool.wake, &pool.lock);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = atomic_load_explicit(&pool.call, memory_order_acquire);
        if (member < pool.team.size) pool.work(pool.job, &pool.team, member);
        atomic_fetch_sub_explicit(&pool.left, 1, memory_order_acq_rel);
    }
    return NULL;
}

/* A forked child has none of its parent's threads. */
static void forget_workers(void) {
    pool.workers = 0;
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

/* Whoever forks holds this lock, so that what it guards is whole in the child. */
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

void lock_shared(void) { pthread_mutex_lock(&shared); }

void unlock_shared(void) { pthread_mutex_unlock(&shared); }

static void begin_child(void) {
    forget_workers();
    unlock_shared();
}

static void watch_forks(void) { pthread_atfork(lock_shared, unlock_shared, begin_child); }

void register_fork_handlers(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

/* Start workers until there are enough for a team of `size`; the number that there are. Only while `busy` is held. */
static int workers_for(int size) {
    while (pool.workers < size - 1 && pool.workers < MOST_THREADS - 1) {
        pthread_t thread;
        pthread_attr_t detached;
        pool.born[pool.workers + 1] = atomic_load(&pool.call);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        int failed = pthread_create(&thread, &detached, worker, (void *)(intptr_t)(pool.workers + 1));
        pthread_attr_destroy(&detached);
        if (failed) break;
        pool.workers++;
    }
    return pool.workers;
}

void run_team(Work work, void *job, int size) {
    if (size < 2 || pthread_mutex_trylock(&pool.busy)) {
        Team alone = {.size = 1};
        work(job, &alone, 0);
        return;
    }
    int workers = workers_for(size);
    pool.work = work;
    pool.job = job;
    pool.team.size = size < workers + 1 ? size : workers + 1;
    atomic_store(&pool.team.arrived, 0);
    atomic_store(&pool.left, workers);
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add_explicit(&pool.call, 1, memory_order_release);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    work(job, &pool.team, 0);
    for (int turn = 0; atomic_load_explicit(&pool.left, memory_order_acquire); turn++) {
        if (turn < PHASE_TURNS) PAUSE();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.busy);
}
