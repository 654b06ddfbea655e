/* team.h - threads that stay, for steps that last a fraction of a millisecond.
 *
 * A job is pieces in order, each cut into as many shares as the team has threads; a piece begins
 * when all shares of the one before are done. Every thread takes its own share first. One that
 * finds a share which nobody has begun after about a microsecond takes it too: a thread that the
 * system has put aside holds up nobody, so a busy machine costs speed and not standstill. (An
 * OpenMP barrier waits for all threads; its region would also belong to the calling thread.) */
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
