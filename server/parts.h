/* parts.h - what http.c and exchange.c share: an answer that other threads write, and the mail that tells of it. */
#ifndef FTX_SERVER_PARTS_H
#define FTX_SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "http.h"

/* Answers with something to send, the last first. A write to wake_fd ends the I/O thread's sleep. */
typedef struct Mail {
    pthread_mutex_t lock;
    struct Answer *first;
    int wake_fd;
} Mail;

typedef struct Answer {
    Exchange x; /* first: what handlers see */
    Mail *mail;
    struct Answer *next; /* in the mail */
    atomic_int users;
    atomic_bool gone;
    int conn;
    bool head_only, chunked, keep_alive; /* of the request */
    pthread_mutex_t lock;                /* of all below */
    Text header, out;
    const char *type;
    int status; /* 0: not begun */
    bool ended;
    char note[240];
    atomic_bool stream;
    bool mailed; /* under Mail.lock */
    /* the I/O thread's */
    bool head_sent;
    double written;
} Answer;

void exchange_lose(Answer *a); /* its client has gone */

#endif
