# transcripts.py - what the server says, byte for byte: `transcripts.py --update` writes transcripts.txt anew.
#
# Times and log-probabilities are replaced: the first differ with each run, the last digits of the second with the CPU.
import base64
import json
import os
import re
import struct
import sys

from client import ROOM, Server, check, compile_model, request

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "transcripts.txt")
CHAT = """{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + (m.content or '') + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"""


def chat_folder():
    folder = os.path.join(ROOM, "chat")
    os.makedirs(folder, exist_ok=True)
    with open("specs/fable/tokenizer.json") as f, open(folder + "/tokenizer.json", "w") as g:
        g.write(f.read())
    with open(folder + "/tokenizer_config.json", "w") as f:
        json.dump({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "chat_template": CHAT}, f)
    return folder + "/tokenizer.json"


keys = os.path.join(ROOM, "keys")
with open(keys, "w") as f:
    f.write("# keys\nfirst-key\n\nsecond-key  \n")
server = Server(compile_model("fable", "-D", "tokenizer=" + chat_folder()), compile_model("verse", spec="specs/verse.lua"),
                compile_model("bert", "-D", "tokenizer=tests/tokenizer/small/wordpiece.json", spec="tests/models/tiny-bert"),
                "--api-key-file", keys, "--client-priority", "--name", "tales", "--name", "translator", "--name", "encoder", "--cors", "https://example.org")
KEY = "Authorization: Bearer second-key\r\n"
found = ""


def vector(text):
    """Its length and its first number, to two digits."""
    v = json.loads(text)
    numbers = v if isinstance(v, list) else struct.unpack(f"<{len(base64.b64decode(v)) // 4}f", base64.b64decode(v))
    return f"<{len(numbers)} numbers from {numbers[0]:.2f} to {numbers[-1]:.2f}>"


def show(title, method, path, body=None, head=KEY):
    global found
    s = server.connect()
    s.sendall(request(method, path, body, head + "X-Request-Id: id\r\nConnection: close\r\n"))
    data = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    s.close()
    head, text = data.decode().split("\r\n\r\n", 1)
    if "chunked" in head: # how a stream is cut into chunks depends on the time
        text = "".join(re.split(r"\r\n[0-9a-f]+\r\n", "\r\n" + text)).removesuffix("\r\n\r\n").removesuffix("\r\n")
    if "Content-Length" in head:
        check(int(re.search(r"Content-Length: (\d+)", head).group(1)) == len(text.encode()), title + ": Content-Length")
        head = re.sub(r"Content-Length: \d+", "Content-Length: right", head)
    text = re.sub(r'"(created|created_at)":\d+', r'"\1":TIME', text)
    text = re.sub(r'"logprob":-?[0-9.e-]+', '"logprob":X', text)
    text = re.sub(r'("(?:relevance_)?score":-?[0-9]\.?[0-9]{0,2})[0-9]*', r"\1", text)
    text = re.sub(r'"embedding":("[^"]*"|\[[^\]]*\])', lambda m: '"embedding":' + vector(m.group(1)), text)
    text = re.sub(r'":-[0-9.e-]+', '":X', text)
    text = re.sub(r'"token_logprobs":\[[^\]]*\]', '"token_logprobs":[X]', text)
    found += f"=== {title}\n{method} {path} {json.dumps(body)[:300] if body is not None else ''}\n" + head.replace("\r", "") + "\n\n" + text + "\n"


TEXT = "/v1/completions"
TALK = "/v1/chat/completions"
GREEDY = {"model": "tales", "temperature": 0}
HELLO = dict(GREEDY, messages=[{"role": "user", "content": "Tell a story."}])
P = dict(GREEDY, prompt="Once upon a time")

show("a text", "POST", TEXT, dict(P, max_tokens=6))
show("a stream", "POST", TEXT, dict(P, max_tokens=4, stream=True))
show("a stream with usage", "POST", TEXT, dict(P, max_tokens=3, stream=True, stream_options={"include_usage": True}))
show("usage in every chunk", "POST", TEXT, dict(P, max_tokens=2, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))
show("two prompts", "POST", TEXT, dict(GREEDY, prompt=["The king", "The queen"], max_tokens=3))
show("ids", "POST", TEXT, dict(GREEDY, prompt=[5, 17, 9], max_tokens=3, return_token_ids=True))
show("ids in a stream", "POST", TEXT, dict(P, max_tokens=2, stream=True, return_token_ids=True))
show("the last ids of a prompt", "POST", TEXT, dict(GREEDY, prompt=[5, 17, 9], max_tokens=1, truncate_prompt_tokens=2, return_token_ids=True))
show("nothing added to a prompt", "POST", TEXT, dict(P, max_tokens=1, add_special_tokens=False, return_token_ids=True))
show("lists of ids, echoed", "POST", TEXT, dict(GREEDY, prompt=[[300, 301], [302]], max_tokens=2, echo=True))
show("an echo in a stream", "POST", TEXT, dict(P, max_tokens=2, echo=True, stream=True))
show("log-probabilities", "POST", TEXT, dict(P, max_tokens=3, logprobs=0))
show("log-probabilities in a stream", "POST", TEXT, dict(P, max_tokens=3, logprobs=0, stream=True))
show("likeliest tokens", "POST", TEXT, dict(P, max_tokens=2, logprobs=2))
show("likeliest tokens in a stream", "POST", TEXT, dict(P, max_tokens=2, logprobs=1, stream=True))
show("log-probabilities of a prompt", "POST", TEXT, dict(P, max_tokens=1, logprobs=1, echo=True))
show("log-probabilities of a prompt in a stream", "POST", TEXT, dict(P, max_tokens=1, logprobs=0, echo=True, stream=True))
show("a stop string", "POST", TEXT, dict(P, max_tokens=30, stop=" king"))
show("stop strings in a stream", "POST", TEXT, dict(P, max_tokens=30, stop=["xyz", " king"], stream=True))
show("a stop token", "POST", TEXT, dict(P, max_tokens=8, stop_token_ids=[0, 1, 2, 3], ignore_eos=True))
show("three texts of a seed", "POST", TEXT, dict(P, temperature=0.9, seed=7, n=3, max_tokens=4))
show("two texts of each of two equal prompts", "POST", TEXT, dict(GREEDY, prompt=["The king", "The king"], temperature=1, seed=7, n=2, max_tokens=4))
show("two texts of each of two prompts, echoed", "POST", TEXT, dict(GREEDY, prompt=[[300], [302]], temperature=1, seed=7, n=2, max_tokens=1, echo=True))
show("a long prompt", "POST", TEXT, dict(GREEDY, prompt="word " * 40, max_tokens=1))
show("two texts of a prompt that is known", "POST", TEXT, dict(GREEDY, prompt="word " * 40, temperature=1, seed=7, n=2, max_tokens=1))
show("as deep as can be, and brackets in strings", "POST", TEXT, dict(P, prompt="[[{\\\"" * 20, max_tokens=1, colour=json.loads("[" * 63 + "]" * 63)))
show("the whole context, and best_of that is n", "POST", TEXT, dict(P, max_tokens=1018, best_of=1, stop=" there"))
show("numbers as reals, null as missing, unknown fields", "POST", TEXT, dict(P, max_tokens=2.0, top_k=-1, top_p=None, colour="red"))
show("a translation", "POST", TEXT, {"model": "translator", "prompt": "In the beginning God created the heaven and the earth."})
show("a translation with ids", "POST", TEXT, {"model": "translator", "prompt": "Amen.", "max_tokens": 3, "return_token_ids": True})
show("a translation of a list", "POST", TEXT, {"model": "translator", "prompt": ["Amen.", "Amen."], "max_tokens": 3})
show("a chat", "POST", TALK, dict(HELLO, max_tokens=6))
show("a chat as a stream", "POST", TALK, dict(HELLO, max_tokens=4, stream=True, stream_options={"include_usage": True}))
show("log-probabilities of a chat", "POST", TALK, dict(HELLO, max_tokens=2, logprobs=True))
show("log-probabilities of a chat in a stream", "POST", TALK, dict(HELLO, max_tokens=2, logprobs=True, stream=True))
show("likeliest tokens of a chat", "POST", TALK, dict(HELLO, max_tokens=2, logprobs=True, top_logprobs=2))
show("content in parts", "POST", TALK, dict(HELLO, messages=[{"role": "user", "content": [{"type": "text", "text": "Tell a"}, {"type": "text", "text": "story."}]}], max_completion_tokens=2, max_tokens=9))
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
show("tools that are not called", "POST", TALK, dict(HELLO, max_tokens=3, tools=TOOLS))
FORCED = dict(HELLO, max_tokens=4, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}})
show("log-probabilities beside tools, in a stream", "POST", TALK, dict(HELLO, max_tokens=2, tools=TOOLS, logprobs=True, stream=True))
show("a forced call", "POST", TALK, FORCED)
show("a forced call in a stream", "POST", TALK, dict(FORCED, stream=True))
show("no tools", "POST", TALK, dict(HELLO, max_tokens=2, tools=TOOLS, tool_choice="none"))
E = {"model": "encoder"}
show("vectors", "POST", "/v1/embeddings", dict(E, input=["a b", "c"]))
show("vectors in base64", "POST", "/v1/embeddings", dict(E, input=["a b", "c"], encoding_format="base64"))
show("vectors of ids", "POST", "/v1/embeddings", dict(E, input=[[2, 5, 3], [2, 3]]))
show("a score", "POST", "/v1/score", dict(E, text_1="a b", text_2=["a b", "c d"]))
show("scores of as many", "POST", "/score", dict(E, text_1=["a", "b"], text_2=["a", "c"]))
show("a ranking", "POST", "/v1/rerank", dict(E, query="a b", documents=["c d", "a b"]))
show("the best, without its text", "POST", "/rerank", dict(E, query="a b", documents=["c d", "a b"], top_n=1, return_documents=False))
show("token ids", "POST", "/tokenize", {"prompt": "Once upon a time"})
show("token ids, nothing added", "POST", "/tokenize", {"prompt": "Once upon", "add_special_tokens": False})
show("token ids of a conversation", "POST", "/tokenize", {"messages": [{"role": "user", "content": "a<|end_of_text|>"}]})
show("their text", "POST", "/detokenize", {"tokens": [0, 300, 301]})
for title, path, fields in (
    ("mixed", "/v1/embeddings", {"input": ["a", [1]]}), ("no input", "/v1/embeddings", {}), ("empty", "/v1/embeddings", {"input": []}),
    ("empty ids", "/v1/embeddings", {"input": [[]]}), ("an id", "/v1/embeddings", {"input": [99999]}),
    ("dimensions", "/v1/embeddings", {"input": "a", "dimensions": 8}), ("format", "/v1/embeddings", {"input": "a", "encoding_format": "hex"}),
    ("too long", "/v1/embeddings", {"input": "a " * 500}), ("an encoder writes nothing", TEXT, {"prompt": "a"}),
    ("two and three", "/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}), ("two queries", "/rerank", {"query": ["a", "b"], "documents": ["a"]}),
    ("one document", "/rerank", {"query": "a", "documents": "a"}), ("no text", "/tokenize", {}), ("no ids", "/detokenize", {"tokens": "a"}),
):
    show("refused: " + title, "POST", path, dict(E, **fields))
for title, fields in {
    "a tool without a name": {"tools": [{"type": "function"}]}, "a tool's name": {"tools": [{"type": "function", "function": {"name": "a b"}}]},
    "another tool": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
    "a choice without tools": {"tool_choice": "required"}, "a choice": {"tools": TOOLS, "tool_choice": "any"},
}.items():
    show("refused: " + title, "POST", TALK, dict(HELLO, **fields))
R = {"model": "tales", "temperature": 0, "max_output_tokens": 3}
ASK = "/v1/responses"
FLAT = dict(R, input="Tell a story.", tools=[dict(TOOLS[0]["function"], type="function")], tool_choice={"type": "function", "name": "weather"})
show("a response", "POST", ASK, dict(R, input="Tell a story.", instructions="Be brief."))
show("a response as a stream", "POST", ASK, dict(R, input=[{"role": "user", "content": [{"type": "input_text", "text": "Tell a story."}]}], stream=True))
show("a response that calls", "POST", ASK, FLAT)
show("a response that calls, as a stream", "POST", ASK, dict(FLAT, stream=True))
show("a response to a call", "POST", ASK, dict(R, input=[{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
                                                        {"type": "function_call_output", "call_id": "c", "output": "rain"}]))
for title, fields in {"earlier": {"previous_response_id": "x"}, "later": {"background": True}, "no input": {"input": None}, "an item": {"input": [5]},
                      "JSON": {"text": {"format": {"type": "json_object"}}}, "a built-in tool": {"tools": [{"type": "web_search"}]}}.items():
    show("refused: " + title, "POST", ASK, dict(R, **dict({"input": "a"}, **fields)))
show("models", "GET", "/v1/models")
show("a model", "GET", "/v1/models/translator")
show("no such model", "GET", "/v1/models/x")
show("healthy, without a key", "GET", "/health", head="")
show("only the head", "HEAD", "/health", head="")
show("a browser asks first", "OPTIONS", TALK, head="")
show("no key", "GET", "/v1/models", head="")
show("a wrong key", "GET", "/v1/models", head="Authorization: Bearer second-kez\r\n")
show("a part of a key", "GET", "/v1/models", head="Authorization: Bearer first\r\n")
show("a comment of the file is no key", "GET", "/v1/models", head="Authorization: Bearer # keys\r\n")
show("no such path", "GET", "/v2")
show("a longer path", "GET", "/healthz")
show("a path that has no room", "GET", "/v1/models/" + "a" * 250)
show("no such path, without a key", "GET", "/v2", head="")
show("another method", "GET", TEXT)
for title, fields in {
    "another model": {"model": "gpt-4"}, "a model of two lines": {"model": "gpt\nforged line"},
    "temperature": {"temperature": 2.1}, "no number": {"temperature": "hot"},
    "top_p 0": {"top_p": 0}, "top_k": {"top_k": 1025}, "min_p": {"min_p": -0.1},
    "penalty": {"presence_penalty": -2.5}, "repetition": {"repetition_penalty": 0},
    "n 0": {"n": 0}, "n 17": {"n": 17}, "n without randomness": {"n": 2},
    "no tokens": {"max_tokens": 0}, "half a token": {"max_tokens": 1.5}, "min above max": {"min_tokens": 9, "max_tokens": 5},
    "too many tokens": {"max_tokens": 1020}, "one token too many": {"max_tokens": 1019},
    "too many prompts": {"prompt": ["a"] * 257},
    "too deep": {"colour": json.loads("[" * 64 + "]" * 64)}, "an id that is not there": {"prompt": [1, 99999]},
    "no token": {"prompt": "", "add_special_tokens": False},
    "17 stops": {"stop": ["a"] * 17}, "an empty stop": {"stop": [""]},
    "seed": {"seed": 1.5}, "logit_bias": {"logit_bias": {"1": 101}},
    "stream options": {"stream_options": {"include_usage": True}}, "stream": {"stream": 1},
    "top log-probabilities": {"logprobs": 21}, "priority": {"priority": 1.5}, "deadline": {"deadline": 0}, "suffix": {"suffix": "end"}, "best_of": {"best_of": 3},
    "JSON": {"response_format": {"type": "json_object"}},
}.items():
    show("refused: " + title, "POST", TEXT, dict(P, **fields))
M = {"role": "user", "content": "a"}
for title, fields in {
    "no messages": {"messages": []}, "no list": {"messages": "hello"},
    "a role": {"messages": [M, {"role": "king", "content": "a"}]},
    "no content": {"messages": [M, {"role": "user", "content": None}]},
    "a picture": {"messages": [M, M, M, {"role": "user", "content": [{"type": "image_url"}]}]},
    "a template": {"chat_template": "x"}, "variables": {"chat_template_kwargs": {"x": 1}},
    "top_logprobs alone": {"top_logprobs": 2}, "top_logprobs 21": {"logprobs": True, "top_logprobs": 21},
    "too long": {"messages": [{"role": "user", "content": "word " * 2000}]},
}.items():
    show("refused: " + title, "POST", TALK, dict(HELLO, **fields))
show("refused: a model without a template", "POST", TALK, dict(HELLO, model="translator"))
server.stop()
for line in server.said().split("\n"):
    check(not line.startswith("forged"), "a client has written a line of the log")
    check("error" not in line.lower() or "refused" in line or " 4" in line, "the log says " + line)

if "--update" in sys.argv:
    with open(FILE, "w") as f:
        f.write(found)
with open(FILE) as f:
    want = f.read()
if want != found:
    a, b = want.split("=== "), found.split("=== ")
    for x, y in zip(a, b):
        if x != y:
            print("wanted:\n" + x + "\nfound:\n" + y)
            break
    check(False, "transcripts.txt")
print("transcripts:", found.count("=== "), "answers as they were")
