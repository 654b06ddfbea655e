/* team.h - worker threads for steps that last a fraction of a millisecond.
 *
 * A job is a number of pieces in order. Each piece is cut into as many shares as the team has threads, and begins
 * when all shares of the piece before are done. Every thread takes its own share first. A thread that sees a share
 * which nobody has begun for about a microsecond takes it as well. So a thread that the system has descheduled
 * delays nobody: a busy machine makes steps slower but does not stop them. (An OpenMP barrier waits for all threads,
 * and its region would belong to the calling thread.) */
#ifndef FTX_TEAM_H
#define FTX_TEAM_H

#include "memory.h"

typedef struct Team Team;
typedef void TeamJob(void *user, int piece, int share, int shares);

/* threads 0: as many as the process may use. Starts them. */
FtxStatus team_open(const Memory *m, int threads, Team **out, FtxError *err);
void team_close(Team *t); /* NULL is fine */

int team_threads(const Team *t);
void team_run(Team *t, TeamJob *job, void *user, int pieces); /* returns when all are done */

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
