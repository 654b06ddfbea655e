"""worker.py - one engine and the thread that steps it.

An engine may be used by one thread at a time, so all calls of it are made by this thread. Other threads leave jobs:

    submit(request, sink)   a request whose events go to sink(event); an exception ends it
    cancel(job)             the job's sink gets its last events soon
    call(function)          function(engine) when no request waits or runs; returns its result

The library holds 5 * sequences requests; those behind wait here, first come, first served.
"""
import collections
import concurrent.futures
import contextlib
import ctypes
import os
import threading

from . import _abi
from .library import Error, call, lib, text


class Job:
    """A request on its way. `left` counts the sequences that have not ended."""

    def __init__(self, request, sink):
        self.request, self.sink = request, sink
        self.id = None
        self.left = max(1, request.c.samples) if request.c.beams <= 1 else 1


class Event:
    """One FtxEvent, copied; with a search's hypotheses, and the logits of the prompt's last position if asked for."""

    __slots__ = ("token", "text", "finish", "logprob", "sample", "prompt_tokens", "cached_tokens",
                 "hypotheses", "logits")

    def __init__(self, c):
        self.token, self.logprob, self.sample = c.token, c.logprob, c.sample
        self.finish, self.prompt_tokens = finish_name(c.finish), c.prompt_tokens
        self.cached_tokens = c.cached_tokens
        self.text = text(c.text, c.text_bytes)
        self.hypotheses, self.logits = [], None


def finish_name(value):
    """None while a sequence runs, else "end", "length", "stop", "cancel", "error", "deadline" or "nan"."""
    return _abi.Finish(value).name[len("FTX_FINISH_"):].lower() if value else None


class Worker:
    def __init__(self, model, info, options):
        self._engine = ctypes.c_void_p()
        call("ftx_engine_open", model, ctypes.byref(options), ctypes.byref(self._engine))
        self._vocab, self._most = info.vocab, 4 * info.sequences
        self._events = (_abi.FtxEvent * info.sequences)()
        self._events[0].size = ctypes.sizeof(_abi.FtxEvent)
        self._wake = threading.Condition()
        self._new, self._cancelled, self._calls = collections.deque(), collections.deque(), collections.deque()
        self._running = {}  # id: Job
        self._users, self._closing, self._failed = 0, False, None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="ftxc", daemon=True)
        self._thread.start()

    # --- for other threads ------------------------------------------------------------------------------

    def submit(self, request, sink):
        job = Job(request, sink)
        with self._open():
            self._new.append(job)
        return job

    def is_here(self):
        """False in a forked child, which has no thread to step the engine."""
        return os.getpid() == self._process

    def cancel(self, job):
        if not self.is_here() or self._closing:
            return
        with self._wake:
            self._cancelled.append(job)
            self._wake.notify_all()

    def call(self, function):
        future = concurrent.futures.Future()
        with self._open():
            self._calls.append((function, future))
        return future.result()

    def close(self):
        """Ends what runs and frees the engine. False in a forked child, which has no thread to do it."""
        if not self.is_here():
            return False
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            while self._users:
                self._wake.wait()
        self._thread.join()
        return True

    @contextlib.contextmanager
    def using(self):
        """For calls of the model by other threads: close() waits until they are done."""
        with self._open():
            self._users += 1
        try:
            yield
        finally:
            with self._wake:
                self._users -= 1
                self._wake.notify_all()

    @contextlib.contextmanager
    def _open(self):
        """The lock, for a model that can still be used; wakes the thread at the end."""
        if not self.is_here():
            raise RuntimeError("the model was opened before fork(): open it in the child process")
        with self._wake:
            if self._closing:
                raise RuntimeError("the model is closed")
            if self._failed:
                raise self._failed
            yield
            self._wake.notify_all()

    # --- the thread -------------------------------------------------------------------------------------

    def _run(self):
        try:
            while self._turn():
                pass
        except BaseException as error:  # of a step: the device failed; of a sink: whoever waits must not wait for ever
            with self._wake:  # what was left before is in the lists
                self._failed = error
        self._end(self._failed or RuntimeError("the model was closed"))
        lib.ftx_engine_close(self._engine)

    def _turn(self):
        """False: the worker is closed."""
        with self._wake:
            while not (self._new or self._cancelled or self._calls or self._running or self._closing):
                self._wake.wait()
        if self._closing:
            return False
        self._cancel()
        self._submit()
        if self._running:
            self._step()
        elif self._calls:
            self._answer(*self._calls.popleft())
        return True

    def _submit(self):
        """Gives the engine what it has room for. While a call waits, nothing new begins."""
        while self._new and not self._calls:
            job = self._new[0]
            if self._running and sum(j.left for j in self._running.values()) + job.left > self._most:
                return
            self._new.popleft()
            number = ctypes.c_uint64()
            try:
                call("ftx_engine_submit", self._engine, ctypes.byref(job.request.c), ctypes.byref(number))
            except Error as error:
                job.sink(error)
                continue
            job.id = number.value
            self._running[job.id] = job

    def _cancel(self):
        while self._cancelled:
            job = self._cancelled.popleft()
            if job.id in self._running:
                lib.ftx_engine_cancel(self._engine, job.id, None)
            elif job in self._new:
                self._new.remove(job)
                job.sink(RuntimeError("cancelled"))

    def _step(self):
        n = ctypes.c_size_t()
        call("ftx_engine_step", self._engine, self._events, len(self._events), ctypes.byref(n))
        for c in self._events[:n.value]:
            job = self._running[c.request]
            event = Event(c)
            if c.hypotheses:
                event.hypotheses = self._hypotheses(c.request)
            if job.request.c.logits:
                event.logits = self._logits(c.request)
                job.request.c.logits = False  # once
            if event.finish:
                job.left -= 1
                if not job.left:
                    del self._running[c.request]
            job.sink(event)

    def _hypotheses(self, number):
        n = ctypes.c_size_t()
        rows = lib.ftx_engine_hypotheses(self._engine, number, ctypes.byref(n))
        return [{"text": text(h.text, h.text_bytes), "ids": h.ids[:h.count], "score": h.score,
                 "logprob": h.logprob, "logprobs": h.logprobs[:h.count] if h.logprobs else None,
                 "finish": finish_name(h.finish)} for h in rows[:n.value]]

    def _logits(self, number):
        row = lib.ftx_engine_logits(self._engine, number)
        return row[:self._vocab] if row else None

    def _answer(self, function, future):
        try:
            future.set_result(function(self._engine))
        except BaseException as error:
            future.set_exception(error)

    def _end(self, error):
        for job in [*self._running.values(), *self._new]:
            with contextlib.suppress(Exception):
                job.sink(error)
        for _, future in self._calls:
            future.set_exception(error)
        self._running.clear()
        self._new.clear()
        self._calls.clear()
