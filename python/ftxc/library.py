"""library.py - finds and loads libftx; its errors as exceptions."""
from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

from . import _abi

HERE = pathlib.Path(__file__).resolve().parent
OLDEST = (0, 1)  # of libftx


class Error(RuntimeError):
    """A call of the library failed. `status` is a member of ftxc.Status, the text is the library's."""

    status: _abi.Status

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = _abi.Status(status)


class InvalidError(Error, ValueError):
    """An argument or a setting is wrong (Status.FTX_EINVAL); the text names it."""


def find(environment: str, names: list[str]) -> pathlib.Path:
    """The file that the environment variable names, else the first of `names` in the package."""
    named = os.environ.get(environment)
    places = [pathlib.Path(named)] if named else [HERE / name for name in names]
    for place in places:
        if place.exists():
            return place
    raise ImportError(f"{places[0]} is not there: install a wheel of ftxc, or set {environment}")


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(find("FTX_LIBRARY", ["lib/libftx.so.0"])))
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    number = lib.ftx_version_number()
    if divmod(number, 1000)[0] != OLDEST[0] or number < OLDEST[0] * 1000 + OLDEST[1]:
        raise ImportError(f"libftx is version {text(lib.ftx_version())}, this package needs {OLDEST[0]}.{OLDEST[1]}")
    return lib


def text(pointer: Any, size: int = -1) -> str:
    """A `const char *` of the library as str; without `size` it ends at the first zero."""
    return ctypes.string_at(pointer, size).decode("utf-8", "replace") if pointer else ""


def call(name: str, *arguments: Any) -> None:
    """Calls lib.NAME(*arguments, &error) and raises what it says."""
    error = _abi.FtxError()
    status = getattr(lib, name)(*arguments, ctypes.byref(error))
    if status:
        raise (InvalidError if status == _abi.Status.FTX_EINVAL else Error)(status, error.text.decode("utf-8", "replace"))


def new(struct: Any) -> Any:
    """A struct of ftx.h that begins with its size."""
    return struct(size=ctypes.sizeof(struct))


def ints(values: Any) -> Any:
    """An array of int32 for the library."""
    return (ctypes.c_int32 * len(values))(*values)


def chars(data: bytes) -> Any:
    """bytes as a `const char *`; keep `data` until the library is done with it."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_char))


lib = _load()
