# grammar.py - texts that follow a grammar: with a library of the tests that has llguidance's interface and allows one text for
# each grammar, and with llguidance itself where FTX_GRAMMAR_LIB names it (scripts/llguidance).
import json
import os

from client import ROOM, Server, check, compile_model

PATH = "/v1/completions"
PLAIN = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 1.0, "seed": 3, "return_token_ids": True}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
          "required": ["age", "ok"], "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}


def form(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


fable = compile_model("fable")
server = Server(fable)
for field in (form(SCHEMA), {"response_format": {"type": "json_object"}}, {"guided_regex": "a"}, {"structured_outputs": {"choice": ["a"]}}):
    a = server.post(PATH, **PLAIN, **field)
    check(a.status == 400 and "--grammar-lib" in a.error()["message"], "without the library: " + a.text)
check(server.post(PATH, **PLAIN, response_format={"type": "text"}).status == 200, "text needs no library")
server.stop()

server = Server(fable, "--grammar-lib", os.environ["FTX_FAKE_GRAMMAR"])


def writes(want, **fields):
    a = server.post(PATH, **dict(PLAIN, **fields))
    check(a.status == 200, a.text)
    for c in a.json()["choices"]:
        check(c["text"] == want and c["finish_reason"] == "stop", f"wanted {want!r}, found {c}")
    return a.json()["choices"]


writes('{"a": 1}', response_format={"type": "json_object"})
writes('{"a": 1}', **form(SCHEMA))
writes('{"a": 1}', guided_json=json.dumps(SCHEMA))
writes('{"a": 1}', structured_outputs={"json": SCHEMA})
writes("The king; Hänsel!", structured_outputs={"regex": "The king; Hänsel!"})
writes("start: x", guided_grammar="start: x")
writes("(a\\.b|\\(c\\))", structured_outputs={"choice": ["a.b", "(c)"]})
two = writes("Once there was a queen.", n=2, structured_outputs={"regex": "Once there was a queen."})
check(len(two) == 2, "two texts")
check(two[0]["token_ids"] != two[1]["token_ids"], "each text is drawn by itself")
spelt = writes("a<|end_of_text|>b", structured_outputs={"regex": "a<|end_of_text|>b"}, temperature=0)
check(1 not in spelt[0]["token_ids"][:-1], "the text of a special token is spelt")
events = server.ask("POST", PATH, dict(PLAIN, stream=True, logprobs=1, response_format={"type": "json_object"})).events()
check("".join(c["text"] for e in events[:-1] for c in e["choices"]) == '{"a": 1}', "a stream")
writes("The ki", structured_outputs={"regex": "The ki?ng"})
check(server.said().count("the grammar has failed after ") == 1 and "tokens: it is bad" in server.said(), server.said())
for why, field in {
    "it is bad": {"guided_regex": "bad"}, "another grammar": {"guided_regex": "a", "response_format": {"type": "json_object"}},
    "expected a JSON schema": form(5), "expected text, json_object or json_schema": {"response_format": {"type": "xml"}},
    "expected a list of strings": {"guided_choice": []}, "guided_choice: expected a list": {"guided_choice": ["a", 5]},
    "structured_outputs.regex: expected a string": {"structured_outputs": {"regex": 5}}, "expected an object": {"structured_outputs": 5},
    "more than 65536 bytes": {"guided_regex": "a" * 70000}, "not with a beam search": {"guided_regex": "a", "beams": 2, "temperature": 0},
}.items():
    a = server.post(PATH, **dict(PLAIN, **field))
    check(a.status == 400 and (why in a.error()["message"] or "beams" in why + a.error()["message"]), f"{why}: {a.text}")
server.stop()

# A template that begins the reasoning: the grammar rules the whole text, so that text is the content.
folder = os.path.join(ROOM, "think")
os.makedirs(folder, exist_ok=True)
with open("specs/fable/tokenizer.json") as f, open(folder + "/tokenizer.json", "w") as g:
    g.write(f.read())
with open(folder + "/tokenizer_config.json", "w") as f:
    json.dump({"chat_template": "{{ messages[0].content }}<think>"}, f)
server = Server(compile_model("think", "-D", f"tokenizer={folder}/tokenizer.json"), "--grammar-lib", os.environ["FTX_FAKE_GRAMMAR"])
say = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 60, "seed": 3}
m = server.post("/v1/chat/completions", **say).json()["choices"][0]["message"]
check(m["reasoning_content"] and not m["content"], f"without a grammar the answer begins with reasoning: {m}")
m = server.post("/v1/chat/completions", **say, response_format={"type": "json_object"}).json()["choices"][0]["message"]
check(m["content"] == '{"a": 1}' and "reasoning_content" not in m, f"the text of a grammar is the content: {m}")
tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "response_format": {"type": "json_object"}}
for choice in "required", {"type": "function", "function": {"name": "f"}}:
    a = server.post("/v1/chat/completions", **say, **tools, tool_choice=choice)
    check(a.status == 400 and a.error()["param"] == "tool_choice" and "grammar" in a.error()["message"], f"a call by a grammar: {a.text}")
check(server.post("/v1/chat/completions", **say, **tools).status == 200, "tools beside a grammar")
server.stop()

real = os.environ.get("FTX_GRAMMAR_LIB")
if real:
    server = Server(fable, "--grammar-lib", real)
    for seed in range(20):
        c = server.post(PATH, **dict(PLAIN, seed=seed), **form(SCHEMA)).json()["choices"][0]
        found = json.loads(c["text"])
        check(sorted(found) == ["age", "ok"] and 0 <= found["age"] <= 99 and isinstance(found["ok"], bool), c["text"])
    c = server.post(PATH, **PLAIN, structured_outputs={"choice": ["a king", "(a) queen."]}).json()["choices"][0]
    check(c["text"] in ("a king", "(a) queen."), c["text"])
    a = server.post(PATH, **PLAIN, guided_regex="[")
    check(a.status == 400 and "unclosed" in a.text, a.text)
    server.stop()
print("grammar: texts follow it" + ("" if real else "; llguidance itself: not tried, FTX_GRAMMAR_LIB is not set"))
