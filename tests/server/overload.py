# overload.py - far more requests than the server can serve, and memory for few: each is answered whole or refused on arrival,
# none is preempted more than twice, and little is computed again. FTX_OVERLOAD_SECONDS: for so long; from 30 on, when the
# server has learned how long answers are, less than 5 %.
import json
import os
import subprocess

from client import FTXC, ROOM, Server, check, compile_model

SECONDS = float(os.environ.get("FTX_OVERLOAD_SECONDS", "4"))
server = Server(compile_model("fable"), "--queue", "12", "--kv-memory", "2M", "--no-prefix-cache", "--quiet")
out = os.path.join(ROOM, "times.json")
ask = ["--input", "60", "--output", "60", "--most", "120", "--seed", "3", "--out", out, "--port", str(server.port)]


def load(*arguments):
    done = subprocess.run([FTXC, "load", *ask, *arguments], capture_output=True, text=True)
    with open(out) as f:
        return json.load(f), done.stdout + done.stderr


# the rate at which it can serve twelve, then four times that: with more side by side it can serve up to twice as many
whole, said = load("--requests", "12")
check(all(r["whole"] for r in whole), said)
rate = 4 * 12 / max(r["times"][-1] for r in whole)
answers, said = load("--requests", str(max(60, int(rate * SECONDS))), "--rate", str(rate))
burst, _ = load("--requests", "90")
answers += burst
bad = [r for r in answers if r["status"] not in (200, 429) or (r["status"] == 200) != r["whole"]]
check(not bad, f"{bad[:3]} {said}")
done = [r for r in answers if r["whole"]]
check(all(r["tokens"] == r["output"] for r in done), "a text that was cut, or goes on")
refused = len(answers) - len(done)
check(len(done) >= 12 and server.metric("ftx:refused_total") == refused > 0, f"{refused} of {len(answers)} were refused")
server.wait_for("every request ends once", lambda: server.metric("vllm:request_success_total") == 12 + len(done))
check(server.metric("vllm:num_requests_running") == server.metric("vllm:num_requests_waiting") == 0, "nothing is left")
preempted, again = server.metric("vllm:num_preemptions_total"), server.metric("ftx:recomputed_tokens_total")
tokens = server.metric("vllm:prompt_tokens_total") + server.metric("vllm:generation_tokens_total")
check(preempted <= 2 * (12 + len(done)), f"{preempted} preemptions of {12 + len(done)} requests")
check(again < (0.05 if SECONDS >= 30 else 0.2) * tokens, f"{again} of {tokens} tokens were computed again")
server.stop()
print(f"overload: {rate:.1f} requests a second, {len(done)} answered, {refused} refused, {preempted:.0f} preemptions,"
      f" {100 * again / tokens:.2f} % computed again")
