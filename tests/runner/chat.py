# chat.py - `ftxc chat` by a pipe and by a pseudo-terminal: each answer is what `ftxc run --messages` writes after the
# same conversation; commands, Ctrl-C, a full context, what is refused.
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

FTXC = os.environ.get("FTXC", "build/ftxc")
ROOM = os.path.join(os.environ.get("FTX_BUILD", "build"), "chat")
TEMPLATE = """{%- if messages[0].content == 'refuse me' %}{{ raise_exception('not this one') }}{% endif %}
{{- bos_token }}
{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}
{{- 'assistant:' if add_generation_prompt }}{{ mood }}"""
os.makedirs(ROOM, exist_ok=True)


def check(true, what):
    if not true:
        print("FAILED:", what, file=sys.stderr)
        sys.exit(1)


def write(name, text):
    with open(os.path.join(ROOM, name), "w") as f:
        f.write(text)
    return os.path.join(ROOM, name)


def compile_model(name, *options):
    path = os.path.join(ROOM, name + ".ftx")
    subprocess.run([FTXC, "compile", "specs/fable.lua", "-D", f"tokenizer={ROOM}/tokenizer.json", "-t", "cpu", "-q",
                    "-o", path, *options], check=True)
    return path


def told(messages, *options, file=None):
    """What `ftxc run` answers to a conversation."""
    told_in = write("messages.json", json.dumps(messages))
    return subprocess.run([FTXC, "run", file or model, "--messages", told_in, "-q", *options], check=True, capture_output=True,
                          text=True).stdout


def piped(text, *options, file=None):
    done = subprocess.run([FTXC, "chat", file or model, *options], input=text, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def conversation(lines, *options, system=None):
    """The answers to lines that are sent one after the other, by `ftxc run`."""
    messages, answers = [{"role": "system", "content": system}] if system else [], []
    for line in lines:
        messages.append({"role": "user", "content": line})
        answers.append(told(messages, *options))
        messages.append({"role": "assistant", "content": answers[-1][:-1]})
    return answers


with open("specs/fable/tokenizer.json") as f:
    write("tokenizer.json", f.read())
write("tokenizer_config.json", json.dumps({"bos_token": "<|begin_of_text|>", "chat_template": TEMPLATE}))
model = compile_model("chat")
SHORT = ("-g", "-n", "12")

# By a pipe: the answers alone, each from the whole conversation before it.
lines = ["Tell a story.", "And then?", "Who was the fox?"]
want = conversation(lines, *SHORT)
code, out, err = piped("\n".join(lines) + "\n", *SHORT)
check((code, out, err) == (0, "".join(want), ""), f"answers {out!r}, wanted {want!r}; {err}")
code, out, err = piped("\n".join(lines), *SHORT, "--system", "Be brief.")
check(out == "".join(conversation(lines, *SHORT, system="Be brief.")), "the system message")
code, out, err = piped("x\n", *SHORT, "--variables", '{"mood": " gladly"}')
check(out == told([{"role": "user", "content": "x"}], *SHORT, "--variables", '{"mood": " gladly"}'), "variables")

# What has been read is not computed again.
code, out, err = piped("\n".join(lines), *SHORT, "--stats")
cached = [int(line.split(", ")[1].split()[0]) for line in err.splitlines()]
check(len(cached) == 3 and cached[0] == 0 and cached[2] > 0, f"tokens from the cache: {err}")

# Commands.
first, again = conversation(["one"], *SHORT)[0], conversation(["two"], *SHORT, system="Be brief.")[0]
code, out, err = piped("one\n/reset\n/system Be brief.\ntwo\n/reset\ntwo\n/system\n/reset\none\n/quit\nthree\n", *SHORT)
check((code, out) == (0, first + again + again + first), f"reset and system: {out!r}")
turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
         {"role": "assistant", "content": first[:-1]}, {"role": "user", "content": "two"}]
code, out, err = piped("one\n/system Be brief.\ntwo\n", *SHORT)
check(out == first + told(turns, *SHORT), f"a system message that comes late is the first: {out!r}")
code, out, err = piped("//tell\\\nme\n\n  \n", *SHORT)
check(out == conversation(["/tell\nme"], *SHORT)[0], "a message that begins with / and has two lines")
code, out, err = piped("/nothing\n/help\n", *SHORT)
check((code, out) == (0, "") and "no command /nothing" in err and "/system TEXT" in err, f"help: {err}")

# A message that the template refuses is taken back.
code, out, err = piped("refuse me\none\n", *SHORT)
check((code, out) == (2, first) and "not this one" in err, f"a refusal: {code} {out!r} {err}")

# Each answer has a seed of its own.
drawn = ("--temperature", "1", "-n", "12", "--seed")
one = told([{"role": "user", "content": "one"}], *drawn, "7")
two = told([{"role": "user", "content": "one"}], *drawn, "8")
code, out, err = piped("one\n/reset\none\n", *drawn, "7")
check(out == one + two and one != two, f"seeds: {out!r}, wanted {one!r} and {two!r}")

# A full context loses its oldest messages; one message that is too long is refused, and the next is answered.
small = compile_model("small", "-D", "limits.context=64")
FULL = (*SHORT, "--ignore-eos")
turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": told([{"role": "user", "content": "one"}], *FULL)[:-1]},
         {"role": "user", "content": "two"}]
turns.append({"role": "assistant", "content": told(turns, *FULL)[:-1]})
turns.append({"role": "user", "content": "three"})
code, out, err = piped("one\ntwo\nthree\n", *FULL, "--stats", file=small)
check(code == 0 and "the context of 64 tokens is full: the oldest 1 of your messages left out" in err, f"a full context: {err}")
check(out.endswith("\n" + told(turns[2:], *FULL, file=small)), f"after a full context: {out!r}")
check(err.count("[12 tokens") == 3, f"each answer has room: {err}")
code, out, err = piped("word " * 200 + "\none\n", *SHORT, file=small)
check(code == 2 and out == first and "the prompt has" in err, f"a long message: {code} {out!r} {err}")


def refused(words, *arguments):
    done = subprocess.run([FTXC, "chat", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(done.returncode == 2 and words in done.stderr and not done.stdout, f"{arguments}: {done}")


plain = os.path.join(ROOM, "plain.ftx")
subprocess.run([FTXC, "compile", "tests/models/tiny-llama", "-t", "cpu", "-q", "-o", plain], check=True)
refused("plain.ftx has no chat template", plain)
refused("expected one artifact, found 0")
refused("expected one artifact, found 2", model, model)
refused("--samples: a message has one answer", model, "--samples", "2")
refused("--top-k: expected a whole number", model, "--top-k", "x")
refused("unknown option --json", model, "--json")


class Terminal:
    def __init__(self, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(FTXC, [FTXC, "chat", model, *options])
        self.seen = b""
        self.wait("\r\n> ")

    def wait(self, text, seconds=120):
        """What appeared up to this text."""
        end = time.time() + seconds
        while text.encode() not in self.seen:
            check(time.time() < end, f"waited for {text!r}, saw {self.seen!r}")
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 4096)
        at = self.seen.index(text.encode()) + len(text)
        taken, self.seen = self.seen[:at], self.seen[at:]
        return taken.decode()

    def send(self, text):
        os.write(self.fd, text.encode())

    def end(self, seconds=120):
        """Reads to the end; the exit code."""
        end = time.time() + seconds
        try:
            while not select.select([self.fd], [], [], 0.2)[0] or os.read(self.fd, 4096):
                check(time.time() < end, "waited for the end")
        except OSError: # the terminal is gone
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# By a terminal: a conversation, and Ctrl-C in an answer, which ends that answer alone.
t = Terminal("-g", "-n", "12")
t.send("one\n")
check(first.strip() in t.wait("\r\n> ").replace("\r\n", "\n"), "an answer on the terminal")
t.send("/reset\n")
t.wait("> ")
t.send("\x04")
check(t.end() == 0, "Ctrl-D")

t = Terminal("-g", "-n", "900", "--ignore-eos", "--stats")
long = "Tell a story of a fox and a crow. " * 5 # more than a page of the cache
t.send(long + "\n")
t.wait(long + "\r\n")
while len(t.seen) < 8:
    t.seen += os.read(t.fd, 4096)
t.send("\x03")
stats = t.wait("from the cache]")
tokens = int(stats.split("[")[-1].split()[0])
check(0 < tokens < 900, f"Ctrl-C: {stats}")
t.wait("> ")
t.send("\x03") # at the prompt it ends nothing
t.wait("ends the conversation]\r\n")
t.wait("> ")
t.send("two\n") # the conversation goes on: what was written of the first answer is in it, and in the cache
t.wait("two\r\n")
while not t.seen:
    t.seen += os.read(t.fd, 4096)
t.send("\x03")
stats = t.wait("from the cache]")
check(int(stats.split(", ")[-1].split()[0]) > 0, f"the second answer: {stats}")
t.wait("> ")
t.send("/quit\n")
check(t.end() == 0, "/quit")

# SIGTERM in an answer ends it, and the conversation: no further line is waited for.
t = Terminal("-g", "-n", "900", "--ignore-eos")
t.send("one\n")
t.wait("one\r\n")
while len(t.seen) < 8:
    t.seen += os.read(t.fd, 4096)
os.kill(t.pid, signal.SIGTERM)
check(t.end(30) == 130, "SIGTERM in an answer")

# Bytes that command a terminal are not sent to it; SIGTERM ends the conversation.
t = Terminal("-g", "-n", "4", "--logit-bias", "9=0")
os.kill(t.pid, signal.SIGTERM)
check(t.end() == 130, "SIGTERM")
