# cancels.py - a client that closes its connection, in each state of its request: it ends within a step or two.
import socket
import struct
import time

from client import Server, check, compile_model, read_answer, request

PATH = "/v1/completions"
# two sequences, prompts in parts of 8 tokens, and texts that nobody waits for: states last long enough to be met on a busy machine
server = Server(compile_model("narrow", "-D", "limits.sequences=2", "-D", "limits.tokens=8", "-D", "limits.context=4096"), "--ping", "1", "--workers", "1")
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
SHORT = {"prompt": "The king", "max_tokens": 24, "temperature": 0}
want = server.ask("POST", PATH, SHORT).json()["choices"][0]["text"]


def running():
    return server.metric("vllm:num_requests_running")


def waiting():
    return server.metric("vllm:num_requests_waiting")


def aborted():
    return server.metric("vllm:request_success_total", 'finished_reason="abort"')


def by_length():
    return server.metric("vllm:request_success_total", 'finished_reason="length"')


def begin(fields):
    s = server.connect()
    s.sendall(request("POST", PATH, fields))
    return s


def close(s, how):
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        s.shutdown(socket.SHUT_WR)
    else:
        s.close()


def ends(name, s, how):
    """Closes; the job must end as cancelled, and the one beside it must not notice."""
    before = aborted()
    beside = begin(SHORT)
    close(s, how)
    server.wait_for(f"{name}, {how}: the job ends", lambda: aborted() == before + 1)
    answer = read_answer(beside)
    check(answer.json()["choices"][0]["text"] == want, f"{name}, {how}: the request beside has another text")
    server.wait_for(f"{name}, {how}: all is free", lambda: running() == 0 and waiting() == 0)
    s.close()


for how in ("close", "reset", "half"):
    s = begin(LONG)
    server.wait_for("it runs", lambda: running() == 1)
    ends("not streaming", s, how)

    s = begin(dict(LONG, stream=True))
    s.recv(100)
    ends("streaming", s, how)

    s = begin(dict(LONG, prompt="word " * 1500, max_tokens=1000))
    server.wait_for("its prompt is read", lambda: running() == 1)
    ends("prompt", s, how)

    s = begin(dict(LONG, n=2, temperature=1))
    server.wait_for("two samples run", lambda: running() == 2)
    ends("two samples", s, how)

    # while its text is made tokens, by the one worker, and the engine is busy: it does not take the place of one behind it
    beside = begin(LONG)
    server.wait_for("one runs", lambda: running() == 1)
    before = by_length()
    s = begin(dict(LONG, prompt="word " * 400000, truncate_prompt_tokens=9))
    time.sleep(0.1)
    close(s, how)
    check(server.complete(prompt=[5], max_tokens=1, ignore_eos=True).status == 200, "a request behind it")
    check(by_length() == before + 1, "the request behind it has waited for the end of another")
    beside.close()
    server.wait_for("all is free", lambda: running() == 0 and waiting() == 0)
    s.close()

    s = begin(dict(SHORT, max_tokens=1)) # at its last token: whichever comes first
    close(s, how)
    server.wait_for("it ends", lambda: running() == 0 and waiting() == 0)
    s.close()

    long = [begin(LONG), begin(LONG)]
    server.wait_for("both run", lambda: running() == 2)
    queued = begin(SHORT)
    server.wait_for("one waits", lambda: waiting() == 1)
    before = aborted()
    close(queued, how)
    server.wait_for(f"queued, {how}: the job ends", lambda: aborted() == before + 1 and waiting() == 0)
    check(running() == 2, "the others run on")
    for s in long:
        s.close()
    queued.close()
    server.wait_for("all is free", lambda: running() == 0)

# one of two prompts is too late: the request is over, and so is the other, which runs
one = begin(LONG)
server.wait_for("one runs", lambda: running() == 1)
before = aborted()
late = server.ask("POST", PATH, dict(LONG, prompt=["The king", "The fox"], deadline=0.2))
check(late.status == 503, "one prompt is too late: " + late.text)
server.wait_for("the other prompt's text ends", lambda: aborted() == before + 2 and running() == 1) # the late one counts, too
one.close()
server.wait_for("all is free", lambda: running() == 0)

# quiet streams get comments; a queued one, too. Four rounds of long ones before it take some seconds
long = [begin(LONG) for _ in range(8)]
server.wait_for("two run, six wait", lambda: running() == 2 and waiting() == 6)
queued = begin(dict(SHORT, stream=True))
data = queued.recv(1000)
check(b"text/event-stream" in data, "a queued stream begins with a comment")
check(b": ping" in data or b": ping" in queued.recv(1000), "a comment while it waits")
for s in long:
    s.close()
data = b""
while b"[DONE]" not in data:
    data += queued.recv(65536)
queued.close()

# a client that does not read: its stream ends, others go on
slow = socket.socket()
slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
slow.connect(("127.0.0.1", server.port))
before = aborted()
slow.sendall(request("POST", PATH, dict(LONG, stream=True, logprobs=0, n=2, temperature=1, prompt=[5])))
check(server.ask("GET", "/health").status == 200, "healthy beside a slow reader")
slow.close()
server.wait_for("the slow one ends", lambda: running() == 0)

# the queue is bounded: 2 run, 8 wait, the next is refused
many = [begin(LONG) for _ in range(2)]
server.wait_for("both run", lambda: running() == 2)
many += [begin(SHORT) for _ in range(8)]
server.wait_for("eight wait", lambda: waiting() == 8)
refused = server.ask("POST", PATH, SHORT)
check(refused.status == 429 and int(refused.head["retry-after"]) >= 1, "the queue is full")
check(refused.error()["type"] == "rate_limit_error", "its type")

# SIGTERM: what runs finishes, the new is refused, the exit code is 0
for s in many[:2]:
    s.close()
server.wait_for("there is room in the queue", lambda: waiting() < 8)
stream = begin(dict(SHORT, stream=True))
stream.recv(10)
s = server.connect() # while it listens
server.process.terminate()
deadline = time.time() + 20
while True:
    try:
        s.sendall(request("POST", PATH, SHORT))
        answer = read_answer(s)
    except OSError: # it has closed the connection
        answer = None
    if answer is None or answer.status == 503:
        break
    check(answer.head.get("connection") != "close", "a request is taken after SIGTERM")
    check(time.time() < deadline, "it takes requests after SIGTERM")
check(answer is None or "retry-after" in answer.head, "503 without Retry-After")
for s in many[2:]:
    check(read_answer(s).json()["choices"][0]["text"] == want, "a request that waited at SIGTERM")
data = b""
while b"[DONE]" not in data:
    piece = stream.recv(65536)
    check(piece, "a stream was cut by SIGTERM")
    data += piece
check(server.process.wait(30) == 0, "exit code: " + server.said())
print("cancels: all states")
