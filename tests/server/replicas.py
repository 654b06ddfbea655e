# replicas.py - two servers behind nginx, with the configuration of server/replicas: both answer, streams go on at once, a
# replica that drains or dies costs no request.
import atexit
import os
import shutil
import socket
import subprocess
import sys

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
if not NGINX:
    print("skipped: nginx is not installed")
    sys.exit(0)

from client import ROOM, Server, check, compile_model, request


class Router(Server):
    """nginx; as a Server it asks at its own port. It inherits a socket that listens (NGINX, as in an upgrade of its program), so
    nobody else can have the port, and no request comes too early."""

    def __init__(self, replicas):
        listener = socket.create_server(("127.0.0.1", 0), backlog=511)
        self.port = listener.getsockname()[1]
        with open("server/replicas/nginx.conf") as f:
            text = f.read()
        for i, replica in enumerate(replicas):
            check(text.count(f"replica-{i + 1}:8000") == 1, "the configuration names each replica")
            text = text.replace(f"replica-{i + 1}:8000", f"127.0.0.1:{replica.port}")
        text = text.replace("listen 8000;", f"listen 127.0.0.1:{self.port};")
        paths = "".join(f"{kind}_temp_path {ROOM}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", "http {\naccess_log off;\n" + paths)
        conf = os.path.join(ROOM, "nginx.conf")
        with open(conf, "w") as f:
            f.write(text)
        self.log_path = os.path.join(ROOM, "nginx.log")
        open(self.log_path, "w").close()
        self.process = subprocess.Popen([NGINX, "-p", ROOM, "-c", conf, "-e", self.log_path, "-g",
                                         f"daemon off; pid {ROOM}/nginx.pid;"], stdin=subprocess.DEVNULL,
                                        pass_fds=[listener.fileno()], env=dict(os.environ, NGINX=f"{listener.fileno()};"))
        atexit.register(self.end)
        listener.close()
        self.wait_for("nginx answers", lambda: self.ask("GET", "/health").status == 200)

    def end(self):
        """Its master ends the worker, which SIGKILL would leave behind."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def ask(router, **fields):
    answer = router.complete(model="fable", prompt="Once upon a time", temperature=0, **fields)
    check(answer.status == 200, f"status {answer.status}: {answer.text}")
    return answer.json()["choices"][0]["text"]


def first_events(router, **fields):
    """A stream whose first text has come."""
    s = router.connect()
    s.sendall(request("POST", "/v1/completions", {"model": "fable", "prompt": "Once upon a time", "stream": True, "temperature": 0,
                                                  "ignore_eos": True, **fields}))
    data = b""
    while b'"text"' not in data:
        piece = s.recv(65536)
        check(piece, "the stream ended at once: " + data.decode())
        data += piece
    return s, data


def rest(s, data):
    while b"data: [DONE]" not in data:
        piece = s.recv(65536)
        check(piece, "the stream broke off: " + data.decode()[-300:])
        data += piece
    s.close()
    return data.count(b'"text"')


artifact = compile_model("fable")


def replica():
    server = Server(artifact, "--drain", "60")
    os.rename(server.log_path, f"{server.log_path}.{server.port}")
    server.log_path = f"{server.log_path}.{server.port}"
    return server


one, two = replica(), replica()
router = Router([one, two])
try:
    check(router.ask("GET", "/health").status == 200, "health")
    check(router.ask("GET", "/v1/models").json()["data"][0]["id"] == "fable", "models")
    text = ask(router, max_tokens=8)

    # Two streams at once: each replica has one, and events come before the end.
    streams = [first_events(router, max_tokens=900) for _ in range(2)]
    router.wait_for("a stream on each", lambda: one.metric("vllm:num_requests_running") == 1 and two.metric("vllm:num_requests_running") == 1)

    # A replica drains: its stream goes on to the end, new requests go to the other.
    one.process.terminate()
    one.wait_for("it drains", lambda: one.ask("GET", "/health").status == 503)
    before = two.metric("vllm:request_success_total")
    for _ in range(6):
        check(ask(router, max_tokens=8) == text, "the other replica answers the same")
    check(two.metric("vllm:request_success_total") == before + 6, "all went to the other")
    for s, data in streams:
        check(rest(s, data) >= 900, "both streams come to their end")
    check(one.process.wait(60) == 0, "the drained replica ends: " + one.said())

    # It is gone: no request notices.
    for _ in range(3):
        check(ask(router, max_tokens=8) == text, "without the first")
    answer = router.ask("POST", "/v1/completions", {"model": "fable", "prompt": "x", "max_tokens": 1}, "X-Request-Id: mine\r\n")
    check(answer.head.get("x-request-id") == "mine", "ids pass")
    two.kill()
    check(router.ask("GET", "/health").status == 502, "nobody is left")
    print("replicas: ok")
finally:
    router.process.terminate()
    router.process.wait(30)
