# nan.py - logits that are not finite numbers: their request has an error of its own, on the command line, in batches and from the
# server, and everybody else the same answer as without it.
import json
import os
import shutil
import struct
import subprocess

from client import FTXC, ROOM, Server, check, compile_model

UNSOUND, COLUMN, HIDDEN = 311, 40, 96
SOUND = [5, 9, 17, 33]


def spoiled():
    """tiny-llama whose first layer makes infinite keys of one token (tests/models/test_nan_rows.c)."""
    folder = os.path.join(ROOM, "tiny-llama")
    shutil.copytree("tests/models/tiny-llama", folder, dirs_exist_ok=True)
    with open(folder + "/model.safetensors", "rb") as f:
        data = bytearray(f.read())
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])

    def put(name, row, column, value):
        at = header[name]["data_offsets"][0] + (row * HIDDEN + column) * 2
        struct.pack_into("<H", data, 8 + size + at, value)

    embed, keys = "model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight"
    for row in range(header[embed]["shape"][0]):
        put(embed, row, COLUMN, 0)
    for column in range(HIDDEN):
        put(embed, UNSOUND, column, 0x3f80 if column == COLUMN else 0) # 1
    for row in range(header[keys]["shape"][0]):
        put(keys, row, COLUMN, 0x7e96) # 10^38
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(data)
    return compile_model("nan", "-D", "tokenizer=tests/tokenizer/small/wordpiece.json", spec=folder)


path = spoiled()

ran = subprocess.run([FTXC, "run", path, "--ids", f"5,{UNSOUND},9", "-d", "cpu", "--greedy", "--json"], capture_output=True, text=True)
check(ran.returncode == 1, f"exit code {ran.returncode}")
check("request 1: logits at position 3 that are not finite numbers" in ran.stderr, ran.stderr)
check(json.loads(ran.stdout)["finish"] == "nan" and not json.loads(ran.stdout)["ids"], ran.stdout)

lines = [[5, 6, UNSOUND], SOUND, [UNSOUND], [8] * 30, [7, UNSOUND, 9, 9]]
batch = "".join(json.dumps({"custom_id": str(i), "body": {"prompt": ids, "max_tokens": 8, "temperature": 0, "ignore_eos": True}}) + "\n"
                for i, ids in enumerate(lines))
for stream in [], ["--stream"]:
    ran = subprocess.run([FTXC, "run", path, "--requests", *stream, "-d", "cpu", "-q"], input=batch, capture_output=True, text=True)
    check(ran.returncode == 1, f"exit code {ran.returncode} of a batch: {ran.stderr}")
    last = {a["custom_id"]: a for a in map(json.loads, ran.stdout.splitlines())}
    for i, ids in enumerate(lines):
        error = last[str(i)].get("error")
        check((error or {}).get("code") == ("not_finite" if UNSOUND in ids else None), f"line {i}: {last[str(i)]}")

server = Server(path)


def ask(ids, **more):
    return server.post("/v1/completions", prompt=ids, max_tokens=8, temperature=0, ignore_eos=True, **more)


alone = ask(SOUND).json()["choices"][0]["text"]
for turn in range(3):
    bad = ask([9, UNSOUND] + [3 + turn] * 20)
    check(bad.status == 500 and bad.error()["code"] == "not_finite", f"{bad.status} {bad.text}")
    check(bad.head.get("x-should-retry") == "false", str(bad.head))
    bad = ask([UNSOUND, 4], stream=True)
    check(bad.status == 500 and bad.error()["code"] == "not_finite", f"{bad.status} {bad.text}")
    check(ask(SOUND).json()["choices"][0]["text"] == alone, "another text beside it")
check(server.metric("vllm:request_success_total", 'finished_reason="error"') == 6, "metrics")
server.stop()
