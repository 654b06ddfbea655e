"""ftxc - compiled transformer models in Python.

    import ftxc

    path = ftxc.compile("specs/fable.lua")           # a spec, or a folder with a Hugging Face checkout
    model = ftxc.Model(path)                         # device="cuda:0" ...
    print(model.generate("Once upon a time", max_new=60))
    for piece in model.stream("Once upon a time"):
        print(piece.text, end="", flush=True)
"""
from ._abi import Status
from .compiler import CompileError, compile
from .library import Error, InvalidError, lib as _lib, text as _text
from .model import Info, Model, Piece, Stream, Text

__version__ = _text(_lib.ftx_version())
__all__ = ["CompileError", "Error", "Info", "InvalidError", "Model", "Piece", "Status", "Stream", "Text", "compile"]
