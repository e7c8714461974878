/* A team of threads that work on one call, and the pool that they come from.
 *
 * One call at a time has the pool; a second one meanwhile computes in its own thread alone, so that many callers share
 * the cores instead of waiting for each other. Threads wait for a moment in a loop before they sleep, because the next
 * phase or the next call mostly comes at once.
 */
#ifndef BERTKIT_THREADS_H
#define BERTKIT_THREADS_H

#include <stdatomic.h>

#define MOST_THREADS 256

typedef struct {
    int size;
    atomic_int arrived;
    atomic_uint phase; /* begins anew after 2^32 meetings */
} Team;

typedef void (*Work)(void *job, Team *team, int member);

/* Wait until the whole team is here. */
void meet(Team *team);
/* Call `work` in `size` threads, this one among them, or in this one alone where the pool is taken. */
void run_team(Work work, void *job, int size);
/* A lock that a fork finds free. */
void lock_shared(void);
void unlock_shared(void);
/* Once, before anything is locked or a worker starts. */
void register_fork_handlers(void);

#endif
