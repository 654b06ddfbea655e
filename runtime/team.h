/* team.h - threads that stay, for steps that last a fraction of a millisecond.
 *
 * A job runs on all threads of a team, the caller among them, and they meet at barriers inside it.
 * Whoever waits spins for some ten microseconds before it sleeps: two threads on two cores pass a
 * barrier in well under one (an OpenMP region would belong to the calling thread, and start
 * threads anew when an engine moves to another). */
#ifndef FTX_TEAM_H
#define FTX_TEAM_H

#include "memory.h"

typedef struct Team Team;
typedef void TeamJob(void *user, int thread, int threads);

/* threads 0: as many as the process may use. Starts them. */
FtxStatus team_open(const Memory *m, int threads, Team **out, FtxError *err);
void team_close(Team *t); /* NULL is fine */

int team_threads(const Team *t);
void team_run(Team *t, TeamJob *job, void *user); /* returns when all are done */
void team_barrier(Team *t);                       /* inside a job: every thread must come */

int team_default_threads(void);

/* One turn of a loop that waits for another core. */
static inline void team_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
