#!/usr/bin/env python3
"""published.py - compares the templates that the package llama-cpp-python carries, if it is installed. Not run by CI.

    tests/chat/published.py build/tests/chat/chat_render [FOLDER of *.jinja]
"""
import importlib.util
import json
import pathlib
import sys

import oracle

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi, Köln \n"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "?"}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "abc123XYZ", "type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2}}}]},
     {"role": "tool", "content": "rain", "tool_call_id": "abc123XYZ", "name": "weather"}],
    [{"role": "user", "content": [{"type": "text", "text": "in parts"}]}],
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "A town"}}, "required": ["place"]}}}]


def templates():
    """The *.jinja files of a folder, or those of the package and the string constants of its chat formats."""
    if len(sys.argv) > 2:
        return {p.name: p.read_text(encoding="utf-8") for p in sorted(pathlib.Path(sys.argv[2]).glob("*.jinja"))}
    spec = importlib.util.find_spec("llama_cpp")
    if not spec:
        sys.exit("llama-cpp-python is not installed; name a folder of *.jinja files")
    root = pathlib.Path(spec.submodule_search_locations[0])
    found = {p.name: p.read_text(encoding="utf-8") for p in sorted(root.rglob("*.jinja"))}
    for path in sorted(root.rglob("*.py")):
        for node in __import__("ast").walk(__import__("ast").parse(path.read_text(encoding="utf-8"))):
            if getattr(node, "value", None).__class__ is str and "{%" in node.value and "messages" in node.value:
                found[f"{path.name}:{node.lineno}"] = node.value
    return found


failed = 0
for name, text in templates().items():
    cases = [{"templates": {"default": text}, "messages": m, "prompt": p, "tokens": {"bos_token": "<s>", "eos_token": "</s>"},
              **({"tools": TOOLS} if t else {})} for m in CONVERSATIONS for p in (False, True) for t in (False, True)]
    bad = [(c, why) for c, got in zip(cases, oracle.answers(sys.argv[1], cases)) if (why := oracle.differs(c, oracle.expected(c), got))]
    failed += bool(bad)
    print(f"{name}: {len(cases) - len(bad)} of {len(cases)}")
    for case, why in bad[:1]:
        print(json.dumps(case["messages"], ensure_ascii=False)[:300], why[:1500], sep="\n")
sys.exit(1 if failed else 0)
