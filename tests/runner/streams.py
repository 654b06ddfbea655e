# streams.py - `ftxc run --stream`: pieces of a batch's texts as JSON, as they come; together they are the texts.
import json
import os
import signal
import subprocess
import sys
import time

FTXC = os.environ["FTXC"]
ROOM = os.path.join(os.environ["FTX_BUILD"], "streams")
os.makedirs(ROOM, exist_ok=True)


def check(true, what):
    if not true:
        sys.exit("FAILED: " + str(what))


def compile_model(name, *words):
    path = os.path.join(ROOM, name + ".ftx")
    subprocess.run([FTXC, "compile", *words, "-t", "cpu", "-q", "-o", path], check=True)
    return path


def run(model, *words, text="", code=0):
    r = subprocess.run([FTXC, "run", model, "-d", "cpu", "-q", *words], input=text, capture_output=True, text=True)
    check(r.returncode == code, f"{words}: exit code {r.returncode}: {r.stderr}")
    return r


def events(*words, **how):
    return [json.loads(line) for line in run(*words, **how).stdout.splitlines()]


fable = compile_model("fable", "specs/fable.lua")
prompts = ["Once upon a time", "The king", "A fox went", "There was a girl who"] * 3
lines = "\n".join(prompts) + "\n"
SET = ("--temperature", "0.8", "--seed", "3", "-n", "14", "--stop", " the zebra") # " the" is held back until it is none

# lines of text
want = run(fable, "--batch", "--json", *SET, text=lines).stdout.splitlines()
got = events(fable, "--batch", "--stream", *SET, text=lines)
for i, line in enumerate(want, 1):
    mine, whole = [e for e in got if e["line"] == i], json.loads(line)
    check("".join(e["text"] for e in mine) == whole["text"], f"text of line {i}")
    check([("finish" in e) for e in mine] == [False] * (len(mine) - 1) + [True], "one end, and it is the last")
    check(mine[-1] == {"line": i, "text": mine[-1]["text"], "finish": whole["finish"], "prompt_tokens": whole["prompt_tokens"],
                       "new_tokens": len(whole["ids"])}, mine[-1])
    check(all(e["text"] or "finish" in e for e in mine), "no piece is empty")
    check(len(mine) > 5, "it comes in pieces")
order = [e["line"] for e in got]
check(order != sorted(order), "pieces of lines that run side by side are mixed")

# several samples
got = events(fable, "--batch", "--stream", "--samples", "2", "--temperature", "1", "-n", "5", "--ignore-eos", text="The king\nOnce\n")
check({(e["line"], e["sample"]) for e in got if "finish" in e} == {(1, 0), (1, 1), (2, 0), (2, 1)}, "an end for each sample")

# a refused line, and an empty one
long = "word " * 3000
got = events(fable, "--batch", "--stream", "-g", "-n", "3", "--ignore-eos", text=f"a\n{long}\nb\n", code=2)
check([list(e) for e in got if e["line"] == 2] == [["line", "error"]] and "tokens" in [e for e in got if e["line"] == 2][0]["error"], got)
check(sum("finish" in e for e in got) == 2, "the others are answered")

# requests, with ids of their own
body = {"max_tokens": 9, "temperature": 0.9, "top_k": 30, "seed": 4, "ignore_eos": True}
asked = [{"custom_id": "x" + str(i), "body": dict(body, prompt=p)} for i, p in enumerate(prompts)]
asked.append({"custom_id": "wrong", "body": dict(body, prompt="a", top_p=7)})
asked.append({"body": dict(body, prompt=[5, 17])})
text = "".join(json.dumps(a) + "\n" for a in asked)
whole = events(fable, "--requests", text=text, code=2)
got = events(fable, "--requests", "--stream", text=text, code=2)
for i, w in enumerate(whole, 1):
    mine = [e for e in got if e["id"] == f"batch_req_{i}"]
    check(all(e["custom_id"] == w["custom_id"] for e in mine), "custom_id")
    if w["response"]["status_code"] == 400:
        check(mine == [w], "a refusal is as without --stream")
        continue
    choices = [e["choices"][0] for e in mine]
    check("".join(c["text"] for c in choices) == w["response"]["body"]["choices"][0]["text"], f"text of {w['custom_id']}")
    check([c["finish_reason"] for c in choices] == [None] * (len(mine) - 1) + ["length"], "the last has a reason")
    check(mine[-1]["usage"] == w["response"]["body"]["usage"] and not any("usage" in e for e in mine[:-1]), "usage")
    check({e["object"] for e in mine} == {"text_completion"}, "what they are")

# a model without a tokenizer writes ids
tiny = compile_model("tiny", "tests/models/tiny-llama")
got = events(tiny, "--requests", "--stream", text=json.dumps({"body": dict(body, prompt=[5, 17])}) + "\n")
check(got[-1]["usage"]["completion_tokens"] == 9, got)

# the first piece comes while the others are still written; what a signal ends is said to be so
process = subprocess.Popen([FTXC, "run", fable, "-d", "cpu", "-q", "--batch", "--stream", "-n", "900", "--ignore-eos"], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
process.stdin.write(lines)
process.stdin.flush()
seen = [json.loads(process.stdout.readline())] # standard input is open still
process.send_signal(signal.SIGTERM)
deadline = time.time() + 60
seen += [json.loads(line) for line in process.stdout]
check(process.wait(60) == 130 and time.time() < deadline, "it ends")
ends = [e for e in seen if "finish" in e]
check(sorted(e["line"] for e in ends) == list(range(1, 13)) and {e["finish"] for e in ends} == {"cancel"}, ends)
process.stdin.close()

one = subprocess.Popen([FTXC, "run", fable, "-d", "cpu", "-q", "--batch", "--stream", "-n", "90", "--ignore-eos", "The king"], stdout=subprocess.PIPE)
first = os.read(one.stdout.fileno(), 1 << 16)
rest = one.stdout.read()
check(one.wait(60) == 0 and b"finish" not in first and b"finish" in rest and len(first + rest) < 4096, "less than a buffer, and it does not wait for the end")

for words, why in ((("--stream", "a"), "only with --batch"), (("--stream", "--batch", "--json"), "not with --json")):
    check(why in run(fable, *words, code=2).stderr, words)
bert = compile_model("bert", "tests/models/tiny-bert", "-D", "tokenizer=tests/tokenizer/small/wordpiece.json")
check("an encoder writes no text" in run(bert, "--batch", "--stream", code=2).stderr, "an encoder")

# the device fails: every line has its end, which says so
with open("specs/fable/model.safetensors", "rb") as f:
    weights = bytearray(f.read())
start = 8 + int.from_bytes(weights[:8], "little")
first, last = json.loads(weights[8:start])["model.norm.weight"]["data_offsets"]
weights[start + first:start + last] = b"\x7f\x7f" * ((last - first) // 2) # 3.4e38: sums are not finite
path = os.path.join(ROOM, "large.safetensors")
with open(path, "wb") as f:
    f.write(weights)
broken = compile_model("broken", "specs/fable.lua", "-D", "weights=" + os.path.abspath(path))
os.environ["FTX_NAN"] = "1"
requests = "".join(json.dumps({"custom_id": i, "body": {"prompt": "Once", "max_tokens": 3}}) + "\n" for i in "abc")
for how in ((), ("--stream",)):
    got = events(broken, "--requests", *how, text=requests, code=1)
    check([(e["custom_id"], e["response"], e["error"]["code"]) for e in got] == [(i, None, "device_failed") for i in "abc"], got)
got = events(broken, "--batch", "--stream", text="a\nb\n", code=1)
check([(e["line"], e["finish"]) for e in got] == [(1, "error"), (2, "error")], got)
got = events(broken, "--batch", "--json", text="a\nb\n", code=1)
check([e["finish"] for e in got] == ["error", "error"], got)
print("streams: as they should be")
