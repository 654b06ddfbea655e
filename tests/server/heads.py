# heads.py - /v1/score, /v1/rerank and /v1/embeddings of classifiers over decoders and encoders and of linear layers behind the
# pooled vector: the scores that `ftxc run` prints.
import json
import math
import os
import subprocess

from client import FTXC, ROOM, Server, check, compile_model

SEED = ("--random-weights", "5")
WORDS = ("-D", "tokenizer=tests/tokenizer/small/wordpiece.json", "-D", "weights=")
QUERY, DOCUMENTS = "a b", ["c d", "a b", "b b b a", "ab"]


def model(name):
    """An artifact of a twin in tests/models/families; the numbers are drawn when it is opened."""
    with open(f"tests/models/families/{name}.json") as f:
        twin = json.load(f)
    folder = os.path.join(ROOM, "twin-" + name)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as f:
        json.dump(twin["config"], f)
    for module in twin.get("modules", []):
        os.makedirs(f"{folder}/{module['path']}", exist_ok=True)
        if "config" in module:
            with open(f"{folder}/{module['path']}/config.json", "w") as f:
                json.dump(module["config"], f)
    if "modules" in twin:
        with open(folder + "/modules.json", "w") as f:
            json.dump([{k: m[k] for k in ("type", "path")} for m in twin["modules"]], f)
    return compile_model(name, *WORDS, spec=folder)


def ran(path, *texts):
    """What ftxc run says of these texts."""
    out = subprocess.run([FTXC, "run", path, *texts, *SEED, "-d", "cpu", "-q", "--json"], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


def near(a, b, what):
    check(abs(a - b) <= 1e-5 * max(1, abs(b)), f"{what}: {a}, expected {b}")


classifiers = ["qwen3-head", "llama-head", "mistral-head", "gemma2-head", "albert-head", "mpnet-head", "modernbert-old"]
names = [*classifiers, "embedding-gemma-dense", "electra-tokens"]
paths = {name: model(name) for name in names}
server = Server(*paths.values(), *(word for name in names for word in ("--name", name)), *SEED)

for name in classifiers:
    answer = server.post("/v1/score", model=name, text_1=QUERY, text_2=DOCUMENTS)
    check(answer.status == 200, f"{name}: {answer.text}")
    data = answer.json()["data"]
    scores = [d["score"] for d in data]
    check(len(scores) == len(set(scores)) == len(DOCUMENTS), name + ": a score for each, all unlike")
    for document, score in zip(DOCUMENTS, scores):
        labels = ran(paths[name], QUERY, "--pair", document)[0]["labels"]
        last = max(labels, key=lambda l: int(l["label"].rsplit("_", 1)[1]))
        near(score, last["score"], f"{name}: {document}")
    results = server.post("/v1/rerank", model=name, query=QUERY, documents=DOCUMENTS, top_n=3).json()["results"]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:3]
    check([r["index"] for r in results] == order, f"{name}: {results}")
    for r in results:
        near(r["relevance_score"], scores[r["index"]], name + ": the same scores")
    refused = server.post("/v1/embeddings", model=name, input="a").error()["message"]
    check("is a classifier: it has /v1/score and /v1/rerank" in refused, refused)

name = "embedding-gemma-dense"
wanted = [a["pooled"] for a in ran(paths[name], QUERY, *DOCUMENTS)[:1 + len(DOCUMENTS)]]
found = [d["embedding"] for d in server.post("/v1/embeddings", model=name, input=[QUERY, *DOCUMENTS]).json()["data"]]
check(all(len(v) == 24 for v in found), "as wide as the last layer")
for one, other in zip(found, wanted):
    near(math.sqrt(sum(x * x for x in one)), 1.0, "of length 1")
    for x, y in zip(one, other):
        near(x, y, name)
for i, d in enumerate(server.post("/v1/score", model=name, text_1=QUERY, text_2=DOCUMENTS).json()["data"]):
    near(d["score"], sum(x * y for x, y in zip(wanted[0], wanted[i + 1])), "cosine")

for path, fields in (("/v1/embeddings", {"input": "a"}), ("/v1/score", {"text_1": "a", "text_2": "b"}),
                     ("/v1/rerank", {"query": "a", "documents": ["b"]})):
    refused = server.post(path, model="electra-tokens", **fields).error()["message"]
    check("is no encoder with a vector for a text" in refused, refused)
server.stop()
print("scores, rankings and vectors are those of ftxc run")
