# loads.py - `ftxc load` against `ftxc serve`: every request is answered once, times are in order, a seed gives one plan.
import json
import os
import subprocess

from client import FTXC, ROOM, Server, check, compile_model

server = Server(compile_model("fable"), "--queue", "1000", "--quiet")


def load(*arguments, code=0):
    out = os.path.join(ROOM, "times.json")
    done = subprocess.run([FTXC, "load", "--port", str(server.port), "--out", out, *arguments], capture_output=True, text=True)
    check(done.returncode == code, f"load {arguments}: {done.returncode}: {done.stdout}{done.stderr}")
    with open(out) as f:
        return json.load(f), done.stdout + done.stderr


first, said = load("--requests", "30", "--rate", "40", "--input", "30", "--output", "8", "--prefix", "10", "--groups", "3")
check("30 of 30 answered, 0 left early, 0 failed" in said, said)
for r in first:
    check(r["whole"] and r["status"] == 200 and r["tokens"] == r["output"], f"a request: {r}")
    check(len(r["times"]) <= r["tokens"] and r["times"] == sorted(r["times"]) and r["times"][0] >= r["planned"], f"its times: {r}")
check([r["planned"] for r in first] == sorted(r["planned"] for r in first), "the order of arrivals")
check(0.2 < first[-1]["planned"] < 3, f"30 arrivals at 40 a second took {first[-1]['planned']} s")
plan = [(r["planned"], r["input"], r["output"]) for r in first]
again, _ = load("--requests", "30", "--rate", "40", "--input", "30", "--output", "8", "--groups", "3")
check(plan == [(r["planned"], r["input"], r["output"]) for r in again], "one seed, two plans")
other, _ = load("--requests", "30", "--rate", "40", "--input", "30", "--output", "8", "--seed", "2")
check(plan != [(r["planned"], r["input"], r["output"]) for r in other], "two seeds, one plan")

# conversations: each prompt begins with the last one and its answer, which the server then knows
turns, said = load("--requests", "5", "--turns", "4", "--rate", "50", "--input", "2", "--spread", "0", "--output", "18", "--prefix", "30", "--most", "60")
check("20 of 20 answered, 0 left early, 0 failed" in said and "% of the prompts' tokens were in the prefix cache" in said, said)
for before, r in zip(turns, turns[1:]):
    if r["turn"]:
        known = before["input"] + before["tokens"]
        check(r["turn"] == before["turn"] + 1 and r["input"] > known, f"a turn {r} after {before}")
        check(r["cached"] >= (known - 1) // 16 * 16 and before["times"][-1] <= r["planned"], f"a turn {r} after {before}")
    else:
        check(r["input"] == 32, f"a first turn {r}")
check([r["turn"] for r in turns] == [0, 1, 2, 3] * 5 and turns[0]["input"] == 32, "turns")
long, said = load("--requests", "2", "--turns", "4", "--input", "400", "--output", "9", "--spread", "0", code=1)
check([r["status"] for r in long] == [200, 200, 400, 0] * 2 and "4 of 8 answered, 0 left early, 4 failed" in said, said)
refused = subprocess.run([FTXC, "load", "--turns", "2", "--cancel", "0.5"], capture_output=True, text=True)
check(refused.returncode == 2 and "not with --cancel" in refused.stderr, refused.stderr)

# a quarter leave: they end at the server, too, and nothing is left
done = server.metric("vllm:request_success_total")
mixed, said = load("--requests", "60", "--input", "20", "--output", "30", "--cancel", "0.25", "--spread", "0.3")
left = [r for r in mixed if not r["whole"]]
check(left and f"{60 - len(left)} of 60 answered, {len(left)} left early, 0 failed" in said, said)
server.wait_for("every request ends once", lambda: server.metric("vllm:request_success_total") == done + 60)
check(server.metric("vllm:num_requests_running") == server.metric("vllm:num_requests_waiting") == 0, "nothing is left")
server.wait_for("connections close", lambda: server.metric("ftx:connections") == 1)
_, said = load("--requests", "2", "--model", "other", code=1)
check("0 of 2 answered" in said and "2 failed" in said and "request 0: HTTP status 404" in said, said)
server.stop()
_, said = load("--requests", "3", code=1)
check("request 0: Connection refused" in said, said)

# a model without a tokenizer writes ids and no text
server = Server(compile_model("ids", "-D", "limits.tokens=64", spec="tests/models/tiny-llama"), "--quiet")
ids, said = load("--requests", "10", "--input", "12", "--output", "6", "--vocab", "90", "--most", "20")
check("10 of 10 answered, 0 left early, 0 failed" in said, said)
for r in ids:
    check(r["tokens"] == r["output"] == len(r["times"]), f"a request: {r}")
server.stop()
print("loads: 190 requests")
