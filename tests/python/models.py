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
    "bert": ("tests/models/tiny-bert", {"tokenizer": SMALL + "wordpiece.json"}),
    "bart": ("tests/models/tiny-bart", {"tokenizer": SMALL + "characters.json"}),
    "llama": ("tests/models/tiny-llama", {}),
}
_room = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _room, True)


def path(name):
    out = os.path.join(_room, name + ".ftx")
    if not os.path.exists(out):
        spec, fields = SPECS[name]
        ftxc.compile(spec, out, target="cpu", progress=False, **fields)
    return out


def model(name):
    return ftxc.Model(path(name), device="cpu", threads=1)


def ftxc_json(*arguments, stdin=""):
    """What a command of ftxc prints with --json, object by object."""
    done = subprocess.run([FTXC, *map(str, arguments), "--json", "-d", "cpu"], input=stdin, capture_output=True,
                          text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]
