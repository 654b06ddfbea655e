# client.py - starts `ftxc serve` for a test and speaks HTTP with it, by sockets alone.
import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

FTXC = os.environ.get("FTXC", "build/ftxc")
INSTRUMENTED = os.environ.get("FTX_INSTRUMENTED") == "ON" # counters and sanitizers need calls that the filter refuses
ROOM = os.path.join(os.environ.get("FTX_BUILD", "build"), "server-" + os.path.basename(sys.argv[0]).split(".")[0])
os.makedirs(ROOM, exist_ok=True)


def check(true, what):
    if not true:
        print("FAILED:", what, file=sys.stderr)
        sys.exit(1)


def compile_model(name, *options, spec="specs/fable.lua"):
    path = os.path.join(ROOM, name + ".ftx")
    subprocess.run([FTXC, "compile", spec, "-t", "cpu", "-q", "-o", path, *options], check=True)
    return path


class Answer:
    def __init__(self, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/1.1 ") else 0
        self.head = dict((k.lower(), v) for k, v in (line.split(": ", 1) for line in lines[1:] if ": " in line))
        self.body = body
        self.text = body.decode()

    def json(self):
        return json.loads(self.text)

    def error(self):
        return self.json()["error"]

    def events(self):
        """The data of a stream's events, and [DONE] as a string; comments are left out."""
        found = [e[6:] for e in self.text.split("\n\n") if e.startswith("data: ")]
        return [e if e == "[DONE]" else json.loads(e) for e in found]


class Server:
    def __init__(self, *arguments):
        self.log_path = os.path.join(ROOM, "log")
        self.log = open(self.log_path, "w")
        if INSTRUMENTED:
            arguments += ("--no-seccomp",)
        self.process = subprocess.Popen([FTXC, "serve", *arguments, "--port", "0"], stderr=self.log, stdin=subprocess.DEVNULL)
        atexit.register(self.kill)
        deadline = time.time() + 120
        while "ready\n" not in self.said():
            check(self.process.poll() is None and time.time() < deadline, "the server did not start: " + self.said())
            time.sleep(0.02)
        self.port = int(re.search(r"listening on http://\S*:(\d+)", self.said()).group(1))

    def said(self):
        with open(self.log_path) as f:
            return f.read()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, sig=signal.SIGTERM):
        """Ends the server; it must say that all went well (leaks and races of a build with sanitizers, too)."""
        self.process.send_signal(sig)
        code = self.process.wait(60)
        check(code == 0, f"exit code {code}: {self.said()}")

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(60)
        return s

    def ask(self, method, path, body=None, head=""):
        s = self.connect()
        s.sendall(request(method, path, body, head))
        answer = read_answer(s)
        s.close()
        check(answer, f"{method} {path}: no answer")
        return answer

    def post(self, path, **fields):
        return self.ask("POST", path, fields)

    def complete(self, **fields):
        return self.post("/v1/completions", **fields)

    def metric(self, name, label=""):
        text = self.ask("GET", "/metrics").text
        return sum(float(line.split()[-1]) for line in text.split("\n") if line.startswith(name) and label in line)

    def wait_for(self, what, true, seconds=30):
        deadline = time.time() + seconds
        while not true():
            check(time.time() < deadline, f"{what}: it did not happen; {self.said()}")
            time.sleep(0.01)


def request(method, path, body=None, head=""):
    text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    more = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n" if body is not None else ""
    return f"{method} {path} HTTP/1.1\r\nHost: test\r\n{more}{head}\r\n".encode() + text


def read_answer(s, no_body=False):
    """One answer from a socket; None: the connection was closed before it was complete."""
    data = b""

    def more():
        nonlocal data
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            piece = b""
        data += piece
        return piece

    while b"\r\n\r\n" not in data:
        if not more():
            return None
    head, data = data.split(b"\r\n\r\n", 1)
    answer = Answer(head, b"")
    if answer.status == 100:
        return answer
    if no_body:
        return answer
    if answer.head.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            while b"\r\n" not in data:
                if not more():
                    return None
            size, data = data.split(b"\r\n", 1)
            n = int(size, 16)
            while len(data) < n + 2:
                if not more():
                    return None
            body += data[:n]
            check(data[n:n + 2] == b"\r\n", "a chunk does not end in CR LF")
            data = data[n + 2:]
            if n == 0:
                return Answer(head, body)
    n = int(answer.head.get("content-length", -1))
    while len(data) < n or n < 0:
        if not more():
            return Answer(head, data) if n < 0 else None
    return Answer(head, data[:n])
