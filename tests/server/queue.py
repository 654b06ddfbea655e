# queue.py - requests that wait: who shares the prefix cache, and what is answered where there is no room.
import threading

from client import Server, check, compile_model

PATH = "/v1/completions"
server = Server(compile_model("narrow", "-D", "limits.sequences=2", "-D", "limits.tokens=8"), "--queue", "12")
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
server.stop()
print("queue: as it should be")
