"""compiler.py - ftxc.compile: the program ftxc, called."""
import os
import pathlib
import subprocess
import sys

from .library import find


class CompileError(RuntimeError):
    """ftxc has refused a spec or a checkout; the text is what it said. `code` is its exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def compile(path, output=None, *, target=None, progress=None, options=(), **fields):
    """Compiles a spec (model.lua) or a checkout's folder into one artifact; returns its path.

    output    default: NAME.ftx in the current folder, NAME that of the spec or folder
    target    "cpu", "sm_90a", "all" ..., or several separated by commas; default: the CPU and this machine's GPU
    progress  show it on standard error; default: if that is a terminal
    options   further options of `ftxc compile` as a list: ["--sidecar"]
    fields    of the spec: precision={"weights": "bf16"}, or **{"limits.context": 256}
    """
    path = pathlib.Path(path)
    output = pathlib.Path(output) if output else pathlib.Path((path.stem if path.is_file() else path.resolve().name) + ".ftx")
    command = [str(find("FTXC", ["bin/ftxc"])), "compile", str(path), "-o", str(output), *map(str, options)]
    if target:
        command += ["-t", target]
    for name, value in _flat(fields):
        command += ["-D", f"{name}={value}"]
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        command.append("-q")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if not progress else None,
                          stderr=None if progress else subprocess.PIPE, text=True)
    if done.returncode:
        raise CompileError(done.returncode, (done.stderr or f"ftxc ended with {done.returncode}").strip())
    return os.fspath(output)


def main():
    """The program ftxc of the package: `ftxc run fable.ftx` wherever pip puts programs."""
    program = find("FTXC", ["bin/ftxc"])
    os.execv(program, ["ftxc", *sys.argv[1:]])


def _flat(fields, before=""):
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, before + name + ".")
        else:
            yield before + name, str(value).lower() if isinstance(value, bool) else value
