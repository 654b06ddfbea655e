"""models.py - the models of these tests, compiled once, and `ftxc run` beside them."""
import atexit
import json
import os
import shutil
import subprocess
import tempfile

import ftxc

FTXC = os.environ["FTXC"]
SMALL = "tests/tokenizer/small/"
SPECS = {
    "fable": ("specs/fable.lua", {}),
    "bert": ("tests/models/tiny-bert", {"tokenizer": SMALL + "wordpiece.json", "precision.weights": "fp32"}),
    "tokens": ("tests/models/tiny-bert", {"tokenizer": SMALL + "wordpiece.json", "weights": "", "graph.pooling": "tokens",
                                          "graph.outputs": 3, "labels": "O,B-PER,I-PER"}),
    "bart": ("tests/models/tiny-bart", {"tokenizer": SMALL + "characters.json"}),
    "llama": ("tests/models/tiny-llama", {}),
}
_room = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _room, True)


CHAT = """{{ bos_token }}
{%- for m in messages %}
    {%- if m.role not in ('user', 'assistant') %}
        {{- raise_exception('no turn for ' + m.role) }}
    {%- endif %}
    {{- m.role + ': ' + m.content + '\n' }}
{%- endfor %}
{{- 'assistant' if add_generation_prompt }}{{ mood }}:
"""


def _chat():
    """The folder of a tokenizer with two chat templates."""
    folder = os.path.join(_room, "chat")
    os.makedirs(os.path.join(folder, "additional_chat_templates"))
    shutil.copy("specs/fable/tokenizer.json", folder)
    for name, content in (("tokenizer_config.json", json.dumps({"bos_token": "<|begin_of_text|>"})),
                          ("chat_template.jinja", CHAT),
                          ("additional_chat_templates/tool_use.jinja", "{{ tools[0].name }}: {{ messages[0].content }}")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(content)
    return os.path.join(folder, "tokenizer.json")


def path(name):
    out = os.path.join(_room, name + ".ftx")
    if not os.path.exists(out):
        spec, fields = SPECS[name] if name != "chat" else ("specs/fable.lua", {"tokenizer": _chat()})
        ftxc.compile(spec, out, target="cpu", progress=False, **fields)
    return out


def model(name, **options):
    return ftxc.Model(path(name), device="cpu", threads=1, **options)


def ftxc_json(*arguments, stdin=""):
    """What a command of ftxc prints with --json, object by object."""
    done = subprocess.run([FTXC, *map(str, arguments), "--json", "-d", "cpu"], input=stdin, capture_output=True,
                          text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]
