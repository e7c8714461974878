#include "threads.h"

#include <stdint.h>
#include <stdlib.h>

/* Turns of a waiting loop: of a phase before the processor is offered to others, of a worker before it sleeps. */
#define PHASE_TURNS 4096
#define IDLE_TURNS 20000
/* A worker's stack; musl's own would be 128 KB, of which a product takes 75. */
#define STACK_BYTES ((size_t)1 << 20)

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

/* ---- What the system offers: locks, sleep, detached threads; start_worker says whether it started one ---- */

static void work_forever(int number);

#if defined(__wasm__) /* one thread, for which nothing is ever locked */

#define LOCK_INIT 0
#define CONDITION_INIT 0
typedef char Lock, Condition;
static inline void lock(Lock *l) { (void)l; }
static inline int try_lock(Lock *l) { return (void)l, 1; }
static inline void unlock(Lock *l) { (void)l; }
static inline void sleep_until_woken(Condition *c, Lock *l) { (void)c, (void)l; }
static inline void wake_all(Condition *c) { (void)c; }
static inline void yield_processor(void) {}
static inline int start_worker(int number) { return (void)work_forever, (void)number, 0; }

#elif defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#define LOCK_INIT SRWLOCK_INIT
#define CONDITION_INIT CONDITION_VARIABLE_INIT
typedef SRWLOCK Lock;
typedef CONDITION_VARIABLE Condition;
static inline void lock(Lock *l) { AcquireSRWLockExclusive(l); }
static inline int try_lock(Lock *l) { return TryAcquireSRWLockExclusive(l); }
static inline void unlock(Lock *l) { ReleaseSRWLockExclusive(l); }
static inline void sleep_until_woken(Condition *c, Lock *l) { SleepConditionVariableSRW(c, l, INFINITE, 0); }
static inline void wake_all(Condition *c) { WakeAllConditionVariable(c); }
static inline void yield_processor(void) { SwitchToThread(); }

static DWORD WINAPI begin_worker(void *number) {
    work_forever((int)(intptr_t)number);
    return 0;
}

static int start_worker(int number) {
    HANDLE thread = CreateThread(NULL, STACK_BYTES, begin_worker, (void *)(intptr_t)number, 0, NULL);
    return thread && CloseHandle(thread);
}

#else

#include <pthread.h>
#include <sched.h>

#define HAS_FORK 1
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
#define CONDITION_INIT PTHREAD_COND_INITIALIZER
typedef pthread_mutex_t Lock;
typedef pthread_cond_t Condition;
static inline void lock(Lock *l) { pthread_mutex_lock(l); }
static inline int try_lock(Lock *l) { return !pthread_mutex_trylock(l); }
static inline void unlock(Lock *l) { pthread_mutex_unlock(l); }
static inline void sleep_until_woken(Condition *c, Lock *l) { pthread_cond_wait(c, l); }
static inline void wake_all(Condition *c) { pthread_cond_broadcast(c); }
static inline void yield_processor(void) { sched_yield(); }

static void *begin_worker(void *number) {
    work_forever((int)(intptr_t)number);
    return NULL;
}

static int start_worker(int number) {
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, STACK_BYTES);
    int failed = pthread_create(&thread, &detached, begin_worker, (void *)(intptr_t)number);
    pthread_attr_destroy(&detached);
    return !failed;
}

#endif

/* ---- Teams and their pool ---- */

void meet(Team *team) {
    if (team->size == 1) return;
    unsigned phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->size) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
        return;
    }
    for (int turn = 0; atomic_load_explicit(&team->phase, memory_order_acquire) == phase; turn++) {
        if (turn < PHASE_TURNS) PAUSE();
        else yield_processor();
    }
}

static struct {
    Lock busy, lock;
    Condition wake;
    int workers;
    unsigned born[MOST_THREADS]; /* the number of the last call before each worker started */
    atomic_uint call; /* changes when there is work */
    Work work;
    void *job;
    Team team;
    atomic_int left; /* workers that have not finished this call */
} pool = {.busy = LOCK_INIT, .lock = LOCK_INIT, .wake = CONDITION_INIT};

static void work_forever(int member) {
    unsigned seen = pool.born[member];
    for (;;) {
        for (int turn = 0; turn < IDLE_TURNS && atomic_load_explicit(&pool.call, memory_order_acquire) == seen; turn++)
            PAUSE();
        if (atomic_load_explicit(&pool.call, memory_order_acquire) == seen) {
            lock(&pool.lock);
            while (atomic_load_explicit(&pool.call, memory_order_acquire) == seen)
                sleep_until_woken(&pool.wake, &pool.lock);
            unlock(&pool.lock);
        }
        seen = atomic_load_explicit(&pool.call, memory_order_acquire);
        if (member < pool.team.size) pool.work(pool.job, &pool.team, member);
        atomic_fetch_sub_explicit(&pool.left, 1, memory_order_acq_rel);
    }
}

/* Whoever forks holds this lock, so that what it guards is whole in the child. */
static Lock shared = LOCK_INIT;

void lock_shared(void) { lock(&shared); }

void unlock_shared(void) { unlock(&shared); }

#ifdef HAS_FORK

/* A forked child has none of its parent's threads. */
static void begin_child(void) {
    pool.workers = 0;
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    unlock_shared();
}

static void watch_forks(void) { pthread_atfork(lock_shared, unlock_shared, begin_child); }

void register_fork_handlers(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

#else

void register_fork_handlers(void) {}

#endif

/* Start workers until there are enough for a team of `size`; the number that there are. Only while `busy` is held. */
static int workers_for(int size) {
    while (pool.workers < size - 1 && pool.workers < MOST_THREADS - 1) {
        pool.born[pool.workers + 1] = atomic_load(&pool.call);
        if (!start_worker(pool.workers + 1)) break;
        pool.workers++;
    }
    return pool.workers;
}

void run_team(Work work, void *job, int size) {
    if (size < 2 || !try_lock(&pool.busy)) {
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
    lock(&pool.lock);
    atomic_fetch_add_explicit(&pool.call, 1, memory_order_release);
    wake_all(&pool.wake);
    unlock(&pool.lock);
    work(job, &pool.team, 0);
    for (int turn = 0; atomic_load_explicit(&pool.left, memory_order_acquire); turn++) {
        if (turn < PHASE_TURNS) PAUSE();
        else yield_processor();
    }
    unlock(&pool.busy);
}
