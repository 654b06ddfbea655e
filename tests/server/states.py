# states.py - /v1/embeddings of decoders: states of the last layer, alone, together, beside texts and from the prefix cache.
import base64
import json
import math
import struct
import subprocess
import threading

from client import FTXC, Server, check, compile_model, request

PATH = "/v1/embeddings"
fable = compile_model("states", "-D", "states=true")
plain = compile_model("plain")
tiny = "tests/models/tiny-llama"
own = compile_model("own", "-D", "states=true", *(word for option in ("min_new=5", "samples=2", "width=4", "beams=4", "beam_groups=2",
    "n_best=2", "temperature=0.5") for word in ("-D", "decode." + option)))
models = {"fable": fable, "plain": plain, "own": own, "tiny": compile_model("tiny", "-D", "states=true", spec=tiny),
          "last": compile_model("last", "-D", "pooling=last", spec=tiny), "mean": compile_model("mean", "-D", "pooling=mean", spec=tiny)}
server = Server(*models.values(), *(word for name in models for word in ("--name", name)), "--queue", "200") # 90 texts at once below


def vectors(input, model="fable", **fields):
    a = server.post(PATH, model=model, input=input, **fields)
    check(a.status == 200, f"{input}: {a.text}")
    check([d["index"] for d in a.json()["data"]] == list(range(len(a.json()["data"]))), "in the order of the texts")
    return [d["embedding"] for d in a.json()["data"]]


def near(a, b, what, bound=1e-5):
    check(len(a) == len(b), what + ": widths")
    worst = max(abs(x - y) for x, y in zip(a, b))
    check(worst <= bound * max(abs(x) for x in a), f"{what}: {worst}")


texts = ["Once upon a time there was a king", "The fox", "a", "The king had a daughter. " * 20]
ids = [server.post("/tokenize", model="fable", prompt=t).json()["tokens"] for t in texts]
for way in ("last", "mean"): # what the whole model does whose only result is that vector
    some = [[5, 9, 200, 17], [3], list(range(2, 80))]
    whole = vectors(some, model=way)
    for i, v in enumerate(vectors(some, model="tiny", pooling=way, normalize=False)):
        near(v, whole[i], f"{way} of ids {i}")
    raw = vectors(texts, pooling=way, normalize=False)
    unit = vectors(texts, pooling=way)
    for u, r in zip(unit, raw):
        size = math.sqrt(sum(x * x for x in r))
        near(u, [x / size for x in r], "of length 1")
    check(vectors(ids, pooling=way) == unit, "ids in place of texts")
check(vectors(texts[0]) == vectors([texts[0]]) == vectors(texts)[:1] == vectors(ids[0]), "one text, alone and with others")
check(vectors(texts) == vectors(texts, pooling="last"), "the last token is what is taken by itself")
run = subprocess.run([FTXC, "run", fable, "--json", "--states", "last", "-n", "1", "-q", texts[0]], check=True, capture_output=True, text=True)
state = [json.loads(line) for line in run.stdout.splitlines()]
near(next(s["states"] for s in state if "states" in s)[0], vectors(texts[0], normalize=False)[0], "ftxc run --states")
check(vectors(texts, model="own") == vectors(texts), "how a model writes by itself is no matter for vectors")
few = {"model": "own", "prompt": texts[0], "max_tokens": 2, "beams": 1, "beam_groups": 1, "n_best": 1}
check(len(server.complete(**few, return_token_ids=True).json()["choices"][0]["token_ids"]) == 2, "max_tokens is less than the model's own min_new")
check(server.complete(**few, min_tokens=3).error()["param"] == "min_tokens", "the client's min_tokens is more")
packed = server.post(PATH, model="fable", input=texts[1], encoding_format="base64").json()["data"][0]["embedding"]
near(struct.unpack(f"<{len(base64.b64decode(packed)) // 4}f", base64.b64decode(packed)), vectors(texts[1])[0], "base64", 1e-6)

# usage, and what the prefix cache knows: the last token's state is computed, with a mean all are
long = {"model": "fable", "input": texts[3], "cache_salt": "one"}
first, second = server.post(PATH, **long).json(), server.post(PATH, **long).json()
check(first["usage"]["prompt_tokens"] == len(ids[3]) == first["usage"]["total_tokens"], "usage")
check(first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 < second["usage"]["prompt_tokens_details"]["cached_tokens"], "cached")
check(first["data"] == second["data"], "the same vector")
mean = server.post(PATH, **long, pooling="mean").json()
check(mean["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "a mean is of all tokens")
cut = server.post(PATH, model="fable", input=ids[3], truncate_prompt_tokens=5).json()
check(cut["usage"]["prompt_tokens"] == 5 and cut["data"][0]["embedding"] == vectors(ids[3][-5:])[0], "the last 5 tokens")

# many at once beside texts that are written; a client that leaves
alone = vectors([[i + 5, 7, i + 9] for i in range(60)])
TALK = {"model": "fable", "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
before = server.complete(**TALK).json()["choices"][0]["text"]
got = {}


def part(k):
    got[k] = vectors([[i + 5, 7, i + 9] for i in range(k * 20, k * 20 + 20)])


threads = [threading.Thread(target=part, args=(k,)) for k in range(3)]
threads.append(threading.Thread(target=lambda: got.update(text=server.complete(**TALK).json()["choices"][0]["text"])))
for t in threads:
    t.start()
gone = server.connect()
gone.sendall(request("POST", PATH, {"model": "fable", "input": [texts[3]] * 30, "pooling": "mean"}))
gone.close()
for t in threads:
    t.join()
check(got[0] + got[1] + got[2] == alone and got["text"] == before, "beside others")
server.wait_for("nothing runs", lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0)

for what, fields, param, word in (
    ("no vectors", {"model": "plain", "input": "a"}, "model", "-D states=true"),
    ("pooling", {"input": "a", "pooling": "max"}, "pooling", "last or mean"),
    ("dimensions", {"input": "a", "dimensions": 3}, "dimensions", "no others"),
    ("nothing", {}, "input", "expected"), ("no text", {"input": []}, "input", "expected"), ("a number", {"input": 5}, "input", "expected"),
    ("no token", {"input": [[5], []]}, "input", "input[1]"), ("no id", {"input": [[5], [-1]]}, "input", "input[1]"),
    ("both", {"input": ["a", [5]]}, "input", "mixed"), ("both ways", {"input": [[5], "a"]}, "input", "mixed"),
    ("format", {"input": "a", "encoding_format": "hex"}, "encoding_format", "base64"), ("normal", {"input": "a", "normalize": "yes"}, "normalize", "normalize"),
    ("salt", {"input": "a", "cache_salt": ""}, "cache_salt", "empty"), ("too many", {"input": ["a"] * 2049}, "input", "2048"),
):
    a = server.post(PATH, **dict({"model": "fable"}, **fields))
    check(a.status == 400 and a.error()["param"] == param and word in a.error()["message"], f"{what}: {a.text}")
info = server.ask("GET", "/v1/models/fable").json()
long = server.post(PATH, model="fable", input=[5] * info["max_model_len"])
check(long.status == 400 and long.error()["code"] == "context_length_exceeded", "too long: " + long.text)
check(len(vectors([[5] * (info["max_model_len"] - 1)])) == 1, "as long as it may be")
server.stop()
