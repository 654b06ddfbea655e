# waiting.py - requests that wait: who shares the prefix cache, and what is answered where there is no room.
import threading

from client import Server, check, compile_model, request

PATH = "/v1/completions"
narrow = compile_model("narrow", "-D", "limits.sequences=2", "-D", "limits.tokens=8", "-D", "limits.context=4096")
server = Server(narrow)
for priority in (0, None, 0.0):
    check(server.post(PATH, prompt="The king", max_tokens=1, priority=priority).status == 200, "no priority")
for priority in (1, -1, "1"):
    a = server.post(PATH, prompt="The king", max_tokens=1, priority=priority)
    check(a.status == 400 and "--client-priority" in a.error()["message"] and a.error()["param"] == "priority", a.text)
server.stop()
server = Server(narrow, "--queue", "12", "--client-priority")
SHORT = {"prompt": "The king", "max_tokens": 24, "temperature": 0}
answers = []
threads = [threading.Thread(target=lambda: answers.append(server.ask("POST", PATH, SHORT))) for _ in range(40)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check({a.status for a in answers} <= {200, 429}, "statuses: " + str(sorted({a.status for a in answers})))
check(sum(a.status == 200 for a in answers) >= 12, "those that fit are answered")
check(len({a.json()["choices"][0]["text"] for a in answers if a.status == 200}) == 1, "all texts are the same")

# only requests with one salt share a beginning
LONG = {"prompt": "Once upon a time there was a king who had a daughter, and she was the fairest of all the land. " * 2, "max_tokens": 1}


def cached(**fields):
    return server.post(PATH, **LONG, **fields).json()["usage"]["prompt_tokens_details"]["cached_tokens"]


check(cached(cache_salt="a") == 0, "nothing is known at first")
check(cached(cache_salt="a") > 16, "the same salt shares")
check(cached(cache_salt="b") == 0 and cached() == 0, "another salt, and none, share nothing with it")
check(server.post(PATH, **SHORT, cache_salt="").status == 400, "an empty salt")
check(server.post(PATH, **SHORT, cache_salt=5).status == 400, "a salt that is no string")

# priorities: two run, the others begin by priority, then in the order of arrival
def begin(name="", **fields):
    s = server.connect()
    s.sendall(request("POST", PATH, dict(LATER, stream=True, **fields), f"X-Request-Id: {name}\r\n" if name else ""))
    return s


LATER = {"prompt": [5, 17, 9], "temperature": 0, "ignore_eos": True}
long = [begin(max_tokens=4000) for _ in range(2)] # nobody waits for their end
server.wait_for("both run", lambda: server.metric("vllm:num_requests_running") == 2)
queued = []
for name, priority in (("a", 3), ("b", -2147483648), ("c", 3), ("d", 0)):
    queued.append(begin("order-" + name, max_tokens=60, priority=priority))
    server.wait_for("it waits", lambda: server.metric("vllm:num_requests_waiting") == len(queued))
late = server.post(PATH, **LATER, max_tokens=1, deadline=0.05)
check(late.status == 503 and late.error()["code"] == "deadline_exceeded", "too late: " + late.text)
check(late.head.get("x-should-retry") == "false", "it says that it should not be sent again")
data = begin(max_tokens=1, deadline=0.05)
text = b""
while b"[DONE]" not in text and b"deadline_exceeded" not in text:
    piece = data.recv(65536)
    check(piece, "a stream that is too late broke off: " + text.decode())
    text += piece
check(b"deadline_exceeded" in text, "a stream that is too late")
long[0].close() # one at a time from now on
for s in queued:
    text = b""
    while b"[DONE]" not in text:
        piece = s.recv(65536)
        check(piece, "a stream broke off: " + text.decode())
        text += piece
check(server.metric("vllm:request_queue_time_seconds_sum") > server.metric("vllm:request_prefill_time_seconds_sum"), "the time in the queue")
server.wait_for("all are in the log", lambda: server.said().count("order-") == 4)
order = [line[6] for line in server.said().split("\n") if line.startswith("order-")] # they end as they begin, one at a time
check(order == ["b", "d", "a", "c"], f"the order: {order}")
check(server.post(PATH, **LATER, max_tokens=1, deadline=1000, priority=-5).status == 200, "in time")
for s in long:
    s.close()
server.stop()
print("queue: as it should be")
