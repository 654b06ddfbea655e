# hostile.py - requests that nobody should send get a 4xx or a close, and a stream beside them goes on unharmed.
import os
import socket
import struct
import threading
import time

from client import Server, check, compile_model, read_answer, request

server = Server(compile_model("fable"), "--connections", "1100", "--max-body", "1M", "--quiet")
PATH = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "stream": True}
alone = server.ask("POST", PATH, LONG)
beside = []


def stream():
    while not done:
        beside.append(server.ask("POST", PATH, LONG).events()[:-1])


def texts(events):
    return "".join(c["text"] for e in events for c in e["choices"])


done = False
thread = threading.Thread(target=stream, daemon=True) # a check that fails ends the test
thread.start()


def raw(data, want, why, half=False):
    """want: the statuses that are right; 0: closed without an answer."""
    s = server.connect()
    s.settimeout(20)
    try:
        s.sendall(data)
        if half:
            s.shutdown(socket.SHUT_WR)
        a = read_answer(s)
        status = a.status if a else 0
    except (BrokenPipeError, ConnectionResetError):
        status = 0
    s.close()
    check(status in want, f"{why}: {status}, not one of {want}")


def body(text, want, why):
    raw(request("POST", PATH, text if isinstance(text, bytes) else text.encode()), want, why)


HOST = b"Host: x\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\n"
# heads
raw(GET + HOST + b"\r\n", [200], "a good one")
raw(b"GET /health\r\n\r\n", [400], "no version")
raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [400], "TLS")
raw(b"GET http://x/health HTTP/1.1\r\n" + HOST + b"\r\n", [400], "an absolute target")
raw(b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n", [505], "HTTP/2.0")
raw(b"G@T /health HTTP/1.1\r\n" + HOST + b"\r\n", [400], "no token as the method")
raw(GET + b"\r\n", [400], "no Host")
raw(GET + HOST + HOST + b"\r\n", [400], "two Hosts")
raw(b"GET /health HTTP/1.1\n" + b"Host: x\n\n", [400], "bare LF")
raw(GET + b"Host: x\r\nX: a\r b\r\n\r\n", [400], "bare CR")
raw(GET + b"Host: x\r\nX: a\r\n b\r\n\r\n", [400], "a folded line")
raw(GET + b"Host : x\r\n\r\n", [400], "a blank before the colon")
raw(GET + b"Host: x\r\nX\r\n\r\n", [400], "no colon")
raw(GET + b"Host: x\0y\r\n\r\n", [400], "NUL in a value")
raw(GET + HOST + b"X: " + b"a" * 20000 + b"\r\n\r\n", [431], "a line of 20,000 bytes")
raw(GET + HOST + b"X: 1\r\n" * 200 + b"\r\n", [431], "200 lines")
raw(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", [404], "a path of 9,000 bytes")
raw(GET + HOST + b"X: " + b"a" * (1 << 20), [431], "a head of a megabyte")
# smuggling
raw(POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", [400], "two equal lengths")
raw(POST + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}", [400], "two lengths")
raw(POST + b"Content-Length: 2, 2\r\n\r\n{}", [400], "a list of lengths")
raw(POST + b"Content-Length: +2\r\n\r\n{}", [400], "+2")
raw(POST + b"Content-Length: -2\r\n\r\n{}", [400], "-2")
raw(POST + b"Content-Length: 0x2\r\n\r\n{}", [400], "0x2")
raw(POST + b"Content-Length: 99999999999999999999\r\n\r\n{}", [400], "a length of 20 digits")
raw(POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], "a length and chunks")
raw(POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], "chunked twice")
raw(POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [501], "gzip, chunked")
raw(POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", [501], "xchunked")
raw(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [400], "a chunk size that is no number")
raw(POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", [413], "a chunk of 4 GB")
raw(POST + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\n\r\n", [400], "a chunk extension")
raw(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n", [400], "a chunk longer than its size")
raw(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: 1\r\n\r\n", [400], "trailers")
raw(POST + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}", [415], "a compressed body")
raw(POST + b"Content-Length: 2\r\nExpect: teapot\r\n\r\n{}", [417], "an expectation")
raw(POST + b"Content-Length: 9999999\r\n\r\n{", [413], "a body of 10 MB")
raw(POST + b"Content-Length: 20\r\n\r\n{", [0], "half a body", half=True)
raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", [415], "text/plain")
raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/jsonl\r\nContent-Length: 14\r\n\r\n" + b'{"prompt":"a"}', [415], "JSON lines")
raw(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 14\r\n\r\n" + b'{"prompt":"a"}', [200], "JSON in UTF-8")
# JSON
body("(" * 60000, [400], "60,000 parentheses")
body("[" * 1000000, [400], "lists 1,000,000 deep")
body('{"a":' * 100000, [400], "objects 100,000 deep")
body('{"prompt":"' + "\\" * 999 + '"}', [400], "backslashes")
body("", [400], "nothing")
body("null", [400], "null")
body("[]", [400], "a list")
body('{"prompt":"a","temperature":NaN}', [400], "NaN")
body('{"prompt":"a","temperature":1e999}', [400], "1e999")
body('{"prompt":"a","seed":1e30}', [400], "a seed that is no whole number of 64 bits")
body('{"prompt":"a","max_tokens":99999999999999999999}', [400], "20 digits")
body(b'{"prompt":"\xff\xfe"}', [400], "wrong UTF-8")
body(b'{"prompt":"\xed\xa0\x80"}', [400], "a surrogate in UTF-8")
body('{"prompt":"\\ud800"}', [400], "half of a pair of surrogates")
body('{"prompt":"a\\u0000b"}', [400], "NUL")
body('{"prompt":"a","stop":["' + "x" * 300 + '"]}', [400], "a stop string of 300 bytes")
body('{"prompt":[1,2,99999999]}', [400], "an id outside of the vocabulary")
body('{"prompt":[1,2,-1]}', [400], "a negative id")
body('{"prompt":[[1],"a"],"max_tokens":1}', [200], "ids and a text")
body('{"prompt":[[1],2],"max_tokens":1}', [400], "a number among prompts")
body('{"prompt":[],"max_tokens":1}', [400], "no prompt")
body('{"prompt":{"a":1},"max_tokens":1}', [400], "an object as the prompt")
body('{"prompt":"' + "word " * 5000 + '","max_tokens":1}', [400], "a prompt beyond the context")
body('{"prompt":"a","logit_bias":{"x":1}}', [400], "a bias of no token")
body('{"prompt":"a","logit_bias":{"5":1e9}}', [400], "a bias too large")
raw(POST + b"Content-Length: 17\r\n\r\n" + b'{"prompt":"a"} xy', [400], "something behind the object")

# a request behind another on the same connection is answered behind it
s = server.connect()
one = request("POST", PATH, {"prompt": "A", "max_tokens": 3, "temperature": 0})
s.sendall(one + request("GET", "/version") + one[:30])
rest = b""
while rest.count(b"HTTP/1.1 200") < 3:
    piece = s.recv(65536)
    check(piece, "the connection closed before the third answer")
    rest += piece
    if rest.count(b"HTTP/1.1 200") == 2 and one:
        s.sendall(one[30:])
        one = b""
check(rest.index(b"completion_tokens") < rest.index(b'"version"'), "the order of answers")
s.close()

# who sends requests and reads no answers must wait; then all are answered
METRICS = request("GET", "/metrics") # its answer is long


def reluctant():
    """A connection with little room on the client's side."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    s.connect(("127.0.0.1", server.port))
    return s


def read_answers(s, n):
    s.settimeout(60)
    answers, rest = 0, b""
    while answers < n:
        piece = s.recv(1 << 20)
        check(piece, f"closed after {answers} answers of {n}")
        rest += piece
        answers += rest.count(b"HTTP/1.1 200 OK")
        rest = rest[-14:] if b"HTTP/1.1 200 OK" not in rest[-14:] else b""


def most_memory():
    """Bytes that the server has had at once."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


s = reluctant()
s.sendall(METRICS * 1000) # fewer bytes than are read at once, and 15 MB of answers
time.sleep(2)
read_answers(s, 1000)
s.close()
s = reluctant()
s.settimeout(2)
flood = METRICS * ((1 << 21) // len(METRICS))
sent, before = 0, most_memory()
try:
    while sent < len(flood):
        sent += s.send(flood[sent:sent + 10000])
except socket.timeout:
    pass
check(sent < len(flood), "2 MB of requests are read, and no answer is")
if os.environ.get("FTX_SANITIZE") != "ON": # they keep what is freed
    check(most_memory() < before + (8 << 20), "answers that nobody reads take memory")
read_answers(s, sent // len(METRICS))
s.close()

# slow ones: a byte now and then does not keep a head open for ever
slow = server.connect()
slow.sendall(GET)
slow_body = server.connect()
slow_body.sendall(POST + b"Content-Length: 100\r\n\r\n{")
began = time.time()
# 1,000 connections that say nothing
idle = [server.connect() for _ in range(1000)]
a = server.complete(prompt="Once", max_tokens=4, temperature=0)
check(a.status == 200, "an answer beside 1,000 idle connections")
more = []
for _ in range(200): # beyond the limit they are closed
    more.append(server.connect())
for s in idle + more:
    s.close()
# clients that reset
for _ in range(20):
    s = server.connect()
    s.sendall(request("POST", PATH, {"prompt": "A", "max_tokens": 3}))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
server.wait_for("connections close", lambda: server.metric("ftx:connections") < 20)
status = None
while time.time() < began + 14 and status is None:
    slow.settimeout(1)
    try:
        slow.sendall(b"X")
        data = slow.recv(1000)
        status = int(data.split()[1]) if data else 0
    except socket.timeout:
        continue
    except OSError:
        status = 0
check(status in (0, 408), f"a head a byte at a time: {status}")
done = True
thread.join()
want = texts(alone.events()[:-1])
check(beside and all(texts(e) == want for e in beside), "a stream beside hostile requests has another text")
server.stop()
print(f"hostile: {len(beside)} streams beside, all the same")
