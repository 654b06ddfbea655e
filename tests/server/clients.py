# clients.py - openai-python, LangChain and LiteLLM from PyPI, unmodified, against the server; those that are not installed are
# left out. FTX_CLIENTS names a Python that has them.
import importlib.util
import json
import os
import sys

if os.environ.get("FTX_CLIENTS") and sys.executable != os.environ["FTX_CLIENTS"]:
    os.execv(os.environ["FTX_CLIENTS"], [os.environ["FTX_CLIENTS"], *sys.argv])
HERE = [name for name in ("openai", "langchain_openai", "litellm") if importlib.util.find_spec(name)]
if len(HERE) < 3:
    missing = [name for name in ("openai", "langchain_openai", "litellm") if name not in HERE]
    print("skipped: not installed: " + ", ".join(missing))
if not HERE:
    sys.exit(0)

from client import ROOM, Server, check, compile_model

CHAT = """{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + (m.content or '') + '\\n' }}{% endfor %}assistant:"""
folder = os.path.join(ROOM, "chat")
os.makedirs(folder, exist_ok=True)
with open("specs/fable/tokenizer.json") as f, open(folder + "/tokenizer.json", "w") as g:
    g.write(f.read())
with open(folder + "/tokenizer_config.json", "w") as f:
    json.dump({"bos_token": "<|begin_of_text|>", "chat_template": CHAT}, f)
with open(os.path.join(ROOM, "keys"), "w") as f:
    f.write("secret\n")
server = Server(compile_model("fable", "-D", "tokenizer=" + folder + "/tokenizer.json"),
                compile_model("bert", "-D", "tokenizer=tests/tokenizer/small/wordpiece.json", spec="tests/models/tiny-bert"),
                "--api-key-file", os.path.join(ROOM, "keys"))
URL = f"http://127.0.0.1:{server.port}/v1"
SAY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell a story."}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def with_openai():
    import openai
    client = openai.OpenAI(base_url=URL, api_key="secret", max_retries=1)
    check("fable" in [m.id for m in client.models.list()], "models")
    whole = client.chat.completions.create(model="fable", messages=SAY, max_tokens=12, temperature=0, logprobs=True)
    text = whole.choices[0].message.content
    check(text and whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length", "a chat")
    check(len(whole.choices[0].logprobs.content) == 12, "log-probabilities")
    parts = list(client.chat.completions.create(model="fable", messages=SAY, max_tokens=12, temperature=0, stream=True,
                                                stream_options={"include_usage": True}))
    check("".join(p.choices[0].delta.content or "" for p in parts if p.choices) == text, "a stream has the same text")
    check(parts[-1].usage.completion_tokens == 12 and not parts[-1].choices, "usage at the end")
    with client.chat.completions.create(model="fable", messages=SAY, max_tokens=800, stream=True) as leaving:
        next(iter(leaving))
    text = client.completions.create(model="fable", prompt=["Once upon a time", "The king"], n=2, max_tokens=5, seed=1)
    check(len(text.choices) == 4 and [c.index for c in text.choices] == [0, 1, 2, 3], "four texts")
    call = client.chat.completions.create(model="fable", messages=SAY, max_tokens=5, tools=[WEATHER],
                                          tool_choice={"type": "function", "function": {"name": "weather"}})
    check(call.choices[0].message.tool_calls[0].function.name == "weather", "a forced call")
    stream = client.chat.completions.create(model="fable", messages=SAY, max_tokens=5, tools=[WEATHER], tool_choice="auto", stream=True)
    check(all(p.object == "chat.completion.chunk" for p in stream), "tools in a stream")
    vectors = client.embeddings.create(model="tiny-bert", input=["a b", "c"])
    check([len(v.embedding) for v in vectors.data] == [96, 96] and isinstance(vectors.data[0].embedding[0], float), "vectors")
    same = client.embeddings.create(model="tiny-bert", input=["a b", "c"], encoding_format="float")
    check(max(abs(a - b) for a, b in zip(same.data[0].embedding, vectors.data[0].embedding)) < 1e-6, "base64 and numbers")
    answer = client.responses.create(model="fable", input="Tell a story.", max_output_tokens=6, temperature=0)
    check(answer.output_text and answer.usage.output_tokens == 6 and answer.status == "incomplete", "a response")
    events = list(client.responses.create(model="fable", input="Tell a story.", max_output_tokens=6, temperature=0, stream=True))
    check("".join(e.delta for e in events if e.type == "response.output_text.delta") == answer.output_text, "its stream")
    check(events[-1].response.output_text == answer.output_text, "the end of its stream")
    for kind, ask in (
        (openai.NotFoundError, lambda: client.chat.completions.create(model="gpt", messages=SAY)),
        (openai.BadRequestError, lambda: client.chat.completions.create(model="fable", messages=SAY, temperature=9)),
        (openai.BadRequestError, lambda: client.completions.create(model="fable", prompt="a", max_tokens=5000)),
        (openai.AuthenticationError, lambda: openai.OpenAI(base_url=URL, api_key="x").models.list()),
    ):
        try:
            ask()
            check(False, f"{kind.__name__} was not raised")
        except kind as e:
            check(e.body["message"], "a message")


def with_langchain_openai():
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    chat = ChatOpenAI(model="fable", base_url=URL, api_key="secret", temperature=0, max_tokens=8, stream_usage=True)
    answer = chat.invoke([("system", "Be brief."), ("human", "Tell a story.")])
    check(answer.content and answer.usage_metadata["output_tokens"] == 8, "a chat")
    check("".join(p.content for p in chat.stream("Tell a story.")) == chat.invoke("Tell a story.").content, "a stream")
    check(len(chat.batch(["One", "Two", "Three"])) == 3, "a batch")
    bound = chat.bind_tools([WEATHER], tool_choice="weather").invoke("Tell a story.")
    check(bound.tool_calls or bound.invalid_tool_calls, "a forced call")
    vectors = OpenAIEmbeddings(model="tiny-bert", base_url=URL, api_key="secret", check_embedding_ctx_length=False)
    check(len(vectors.embed_query("a b")) == 96, "a vector")


def with_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True" # nothing is fetched
    import litellm
    litellm.telemetry = False
    ask = {"model": "openai/fable", "api_base": URL, "api_key": "secret", "messages": SAY, "temperature": 0}
    answer = litellm.completion(max_tokens=8, **ask)
    check(answer.choices[0].message.content and answer.usage.completion_tokens == 8, "a chat")
    text = "".join(p.choices[0].delta.content or "" for p in litellm.completion(max_tokens=8, stream=True, **ask))
    check(text == answer.choices[0].message.content, "a stream has the same text")
    check(len(litellm.embedding(model="openai/tiny-bert", api_base=URL, api_key="secret", input=["a"]).data[0]["embedding"]) == 96, "a vector")
    try:
        litellm.completion(max_tokens=5000, **ask)
        check(False, "too long a request was answered")
    except litellm.ContextWindowExceededError:
        pass


for name in HERE:
    globals()["with_" + name]()
    print(name + ": all is as it should be")
server.stop()
