# seccomp.py - the server under its filter of system calls: a stream, vectors, refusals, systemd's messages and a drain.
import os
import socket
import threading

from client import INSTRUMENTED, ROOM, Server, check, compile_model

told = os.path.join(ROOM, "systemd")
if os.path.exists(told):
    os.unlink(told)
systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
systemd.bind(told)
systemd.settimeout(20)
os.environ["NOTIFY_SOCKET"] = told
models = [compile_model("fable"),
          compile_model("bert", "-D", "tokenizer=tests/tokenizer/small/wordpiece.json", spec="tests/models/tiny-bert")]
ASK = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "stream": True}


def filters(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return {line.split()[1] for line in f if line.startswith("Seccomp:")}


def texts(answer):
    return "".join(c["text"] for e in answer.events()[:-1] for c in e["choices"])


free = Server(*models, "--no-seccomp")
check(systemd.recv(100) == b"READY=1", "systemd is told of the start")
check(filters(free) <= {"0"}, f"--no-seccomp: {filters(free)}")
want = texts(free.ask("POST", "/v1/completions", ASK))
vectors = free.ask("POST", "/v1/embeddings", {"model": "tiny-bert", "input": "a b"}).json()["data"]
free.stop()
check(systemd.recv(100) == b"STOPPING=1", "systemd is told of the end")

server = Server(*models)
check(systemd.recv(100) == b"READY=1", "systemd is told of the start")
check(filters(server) == {"2"} or INSTRUMENTED or "takes no seccomp filter" in server.said(), f"filters: {filters(server)}")
check(texts(server.ask("POST", "/v1/completions", ASK)) == want, "a stream")
check(server.ask("POST", "/v1/embeddings", {"model": "tiny-bert", "input": "a b"}).json()["data"] == vectors, "vectors")
check(server.ask("POST", "/v1/completions", {"prompt": 5}).status == 400, "a refusal")
check(server.ask("GET", "/metrics").status == 200, "metrics")
last = []
ask = threading.Thread(target=lambda: last.append(texts(server.ask("POST", "/v1/completions", ASK | {"max_tokens": 900, "ignore_eos": True}))))
ask.start()
server.wait_for("it runs", lambda: server.metric("vllm:num_requests_running") == 1)
server.stop()
ask.join()
check(last[0].startswith(want) and len(last[0]) > len(want), "what runs is finished")
check(systemd.recv(100) == b"STOPPING=1", "systemd is told of the end")
print("seccomp: as it should be")
