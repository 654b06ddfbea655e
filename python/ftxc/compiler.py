"""compiler.py - ftxc.compile: the program ftxc, called."""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import Any, Optional, Sequence, Union

from .library import find


class CompileError(RuntimeError):
    """ftxc has refused a spec or a checkout; the text is what it said. `code` is its exit code."""

    code: int

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def compile(path: Union[str, os.PathLike[str]], output: Union[str, os.PathLike[str], None] = None, *,
            target: Optional[str] = None, progress: Optional[bool] = None, options: Sequence[str] = (),
            **fields: Any) -> str:
    """Compiles a spec (model.lua) or a checkout's folder into one artifact; returns its path.

    output    default: NAME.ftx in the current folder, NAME that of the spec or folder
    target    "cpu", "sm_90a", "all" ..., or several separated by commas; default: the CPU and this machine's GPU
    progress  show it on sys.stderr; default: if that is a terminal or a notebook
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
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    if progress:
        code, said = _shown(command)
    else:
        done = subprocess.run([*command, "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        code, said = done.returncode, done.stderr
    if code:
        raise CompileError(code, said.strip() or f"ftxc ended with {code}")
    return os.fspath(output)


def _shown(command: list[str]) -> tuple[int, str]:
    """Runs the command with sys.stderr as its terminal; its exit code, and what it said besides progress."""
    ours, theirs = os.openpty()
    child = None
    said = b""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        while data := _read(ours):
            said += data
            sys.stderr.write(data.decode("utf-8", "replace").replace("\r\n", "\n"))
            sys.stderr.flush()
        lines = said.decode("utf-8", "replace").replace("\r\n", "\n")
        return child.wait(), re.sub(r"\r[^\r\n\x1b]*(\r?\x1b\[K)?", "", lines)  # without the bar
    finally:
        os.close(ours)
        if child is None:
            os.close(theirs)
        elif child.poll() is None:  # Ctrl-C
            child.terminate()
            child.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # EIO: the program has ended
        return b""


def main() -> None:
    """The program ftxc of the package: `ftxc run fable.ftx` wherever pip puts programs."""
    program = find("FTXC", ["bin/ftxc"])
    os.execv(program, ["ftxc", *sys.argv[1:]])


def _flat(fields: dict[str, Any], before: str = "") -> Any:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, before + name + ".")
        else:
            yield before + name, str(value).lower() if isinstance(value, bool) else value
