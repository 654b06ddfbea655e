/* exchange.c - answers: any thread writes them, and the mail tells the I/O thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parts.h"
#include "../runner/command.h"

void exchange_hold(Exchange *x)
{
    atomic_fetch_add(&((Answer *)x)->users, 1);
}

void exchange_release(Exchange *x)
{
    Answer *a = (Answer *)x;

    if (atomic_fetch_sub(&a->users, 1) > 1)
        return;
    text_free(&a->x.body);
    text_free(&a->header);
    text_free(&a->out);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static atomic_uint gone; /* exchanges of the program */

void exchange_lose(Answer *a)
{
    atomic_store(&a->gone, true);
    atomic_fetch_add(&gone, 1);
}

bool exchange_gone(const Exchange *x)
{
    return atomic_load(&((const Answer *)x)->gone);
}

unsigned exchanges_gone(void)
{
    return atomic_load(&gone);
}

void exchange_header(Exchange *x, const char *format, ...)
{
    Answer *a = (Answer *)x;
    char line[200];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    pthread_mutex_lock(&a->lock);
    text_printf(&a->header, "%s\r\n", line);
    pthread_mutex_unlock(&a->lock);
}

void exchange_note(Exchange *x, const char *format, ...)
{
    Answer *a = (Answer *)x;
    va_list ap;

    pthread_mutex_lock(&a->lock);
    va_start(ap, format);
    vsnprintf(a->note, sizeof a->note, format, ap);
    va_end(ap);
    for (char *p = a->note; *p; p++) /* it may quote the client, and a log has a line for each request */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    pthread_mutex_unlock(&a->lock);
}

void exchange_flush(Exchange *x)
{
    Answer *a = (Answer *)x;
    Mail *m = a->mail;
    const uint64_t one = 1;
    bool wake = false;

    pthread_mutex_lock(&m->lock);
    if (!a->mailed) {
        a->mailed = true;
        exchange_hold(x);
        wake = !m->first;
        a->next = m->first;
        m->first = a;
    }
    pthread_mutex_unlock(&m->lock);
    if (wake && write(m->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        command_say("an event could not be written: answers may wait for a second");
}

bool exchange_answer(Exchange *x, int status, const char *type, const Text *body)
{
    Answer *a = (Answer *)x;
    bool begun;

    pthread_mutex_lock(&a->lock);
    begun = a->status != 0;
    if (!begun) {
        atomic_store(&a->stream, false);
        a->status = status;
        a->type = type;
        text_add(&a->out, body->at, body->n);
        a->ended = true;
    }
    pthread_mutex_unlock(&a->lock);
    if (!begun)
        exchange_flush(x);
    return !begun;
}

void exchange_stream(Exchange *x)
{
    Answer *a = (Answer *)x;

    atomic_store(&a->stream, true);
}

static void begin_stream(Answer *a)
{
    if (!a->status) {
        a->status = 200;
        a->type = "text/event-stream; charset=utf-8";
        text_put(&a->header, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    }
}

void exchange_write(Exchange *x, const Text *events)
{
    Answer *a = (Answer *)x;

    if (exchange_gone(x))
        return;
    pthread_mutex_lock(&a->lock);
    begin_stream(a);
    text_add(&a->out, events->at, events->n);
    pthread_mutex_unlock(&a->lock);
}

void exchange_end(Exchange *x)
{
    Answer *a = (Answer *)x;

    pthread_mutex_lock(&a->lock);
    begin_stream(a);
    a->ended = true;
    pthread_mutex_unlock(&a->lock);
    exchange_flush(x);
}
