"""families.py - the templates of templates/, in the style of the instruct families most used, over 40 conversations each:
with and without a system message, tools, unicode, empty texts, roles in a wrong order. Equal to Jinja2, byte by byte."""
import pathlib
import random
import sys

import oracle

TEXTS = ["", " ", "Hello", "  two\n\nlines \n", "Grüße aus Köln, 東京 🙂", "<|im_end|><|eot_id|></s>[/INST]", "tab\tand \"quotes\" 'single'",
         "<think>\nmaybe\n</think>\n\nyes", "/no_think be brief", "a{{ b }}{% c %}", "x" * 300, "é\u0301 \u200d\u202f \x7f", "0", "None", "\\n is no newline",
         "<tool_response>42</tool_response>"]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather of a place.\nToday only.", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "description": "A town <&'>"}, "days": {"type": "integer"},
                                         "parts": {"type": "array", "items": {"type": "string"}}}, "required": ["place"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "größe", "description": "", "parameters": {
        "type": "object", "properties": {"x": {"type": "number", "default": 1e-05, "maximum": 1.0}, "y": {"type": ["a", None, True]}}, "required": []}}},
]


def call(rng, number):
    arguments = rng.choice([{"place": "Köln", "days": 3}, {}, {"x": 0.1, "deep": {"list": [1, 2.5, None, False, "\u2028\"\\"]}}, '{"place": "Rome"}'])
    return {"id": rng.choice(["abc123XYZ", "short", f"call{number:05d}"]), "type": "function",
            "function": {"name": rng.choice(["weather", "größe"]), "arguments": arguments}}


def conversation(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": rng.choice(TEXTS)})
    for turn in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": rng.choice(TEXTS)})
        if rng.random() < 0.25:
            calls = [call(rng, i) for i in range(rng.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": rng.choice([None, "", "one moment"]), "tool_calls": calls})
            for c in calls:
                messages.append({"role": "tool", "content": rng.choice(TEXTS), "tool_call_id": c["id"], "name": c["function"]["name"]})
        if turn < 3 or rng.random() < 0.5:
            messages.append({"role": "assistant", "content": rng.choice(TEXTS)})
    if rng.random() < 0.15:
        rng.shuffle(messages)
    if rng.random() < 0.1:
        messages.insert(rng.randrange(len(messages) + 1), {"role": rng.choice(["system", "ipython", "critic", "tool"]), "content": "?"})
    if rng.random() < 0.1:
        messages[rng.randrange(len(messages))]["content"] = [{"type": "text", "text": " part "}, {"type": "image"}, {"type": "text", "text": rng.choice(TEXTS)}]
    if rng.random() < 0.03:
        messages = []
    return messages


def cases():
    out = []
    for path in sorted(pathlib.Path("tests/chat/templates").glob("*.jinja")):
        rng = random.Random(path.name)
        for _ in range(40):
            variables = {}
            if rng.random() < 0.3:
                variables["enable_thinking"] = rng.random() < 0.5
            if rng.random() < 0.2:
                variables["documents"] = [{"text": rng.choice(TEXTS), "title": "a title"}, {"text": "b"}]
            if rng.random() < 0.2:
                variables["controls"] = rng.choice([{"citations": True}, {}, {"length": "short"}])
            case = {"templates": {"default": path.read_text(encoding="utf-8")}, "messages": conversation(rng),
                    "tokens": {"bos_token": "<s>", "eos_token": "</s>"}, "prompt": rng.random() < 0.6, "variables": variables}
            if rng.random() < 0.4:
                case["tools"] = TOOLS[:rng.randint(1, 2)]
            out.append(case)
    return out


all_cases = cases()
counts = oracle.compare(sys.argv[1], all_cases)
assert counts["text"] > 300 and counts["error"] > 20, counts
