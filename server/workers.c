/* workers.c - threads that run functions: JSON, templates and tokenizers stay away from the I/O thread. */
#include "workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../runner/command.h"

typedef struct Task {
    struct Task *next;
    void (*run)(void *a, void *b);
    void *a, *b;
} Task;

struct Workers {
    pthread_mutex_t lock;
    pthread_cond_t added;
    Task *first, **last;
    bool stop;
    int n;
    pthread_t threads[];
};

static void *work(void *user)
{
    Workers *w = user;

    for (;;) {
        Task *t;

        pthread_mutex_lock(&w->lock);
        while (!w->first && !w->stop)
            pthread_cond_wait(&w->added, &w->lock);
        t = w->first;
        if (t) {
            w->first = t->next;
            if (!w->first)
                w->last = &w->first;
        }
        pthread_mutex_unlock(&w->lock);
        if (!t)
            return NULL;
        t->run(t->a, t->b);
        free(t);
    }
}

Workers *workers_open(int threads)
{
    Workers *w = command_must(calloc(1, sizeof *w + (size_t)threads * sizeof *w->threads));

    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->added, NULL);
    while (w->n < threads && pthread_create(&w->threads[w->n], NULL, work, w) == 0)
        w->n++;
    if (w->n)
        return w;
    workers_close(w);
    return NULL;
}

void workers_add(Workers *w, void (*run)(void *a, void *b), void *a, void *b)
{
    Task *t = command_must(calloc(1, sizeof *t));

    *t = (Task){.run = run, .a = a, .b = b};
    pthread_mutex_lock(&w->lock);
    *w->last = t;
    w->last = &t->next;
    pthread_cond_signal(&w->added);
    pthread_mutex_unlock(&w->lock);
}

void workers_close(Workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->added);
    pthread_mutex_unlock(&w->lock);
    while (w->n)
        pthread_join(w->threads[--w->n], NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->added);
    free(w);
}
