/* workers.h - threads that run functions: JSON, templates and tokenizers stay away from the I/O thread. */
#ifndef FTX_SERVER_WORKERS_H
#define FTX_SERVER_WORKERS_H

typedef struct Workers Workers;

/* NULL: no thread can be started. */
Workers *workers_open(int threads);
/* Calls run(a, b) soon, by one of the threads. */
void workers_add(Workers *w, void (*run)(void *a, void *b), void *a, void *b);
/* Runs what was added, then ends the threads. */
void workers_close(Workers *w);

#endif
