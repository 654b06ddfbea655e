#!/usr/bin/env python3
"""abi.py - writes ftxc/_abi.py, the ctypes declarations of runtime/ftx.h.

    python/abi.py [-o FILE]

It needs a C preprocessor (cc) and pycparser. The test suite runs it and compares, so that _abi.py never differs from
the header.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

from pycparser import c_ast, c_parser

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = {  # what ftx.h includes, as far as it needs them
    "stdbool.h": "typedef _Bool bool;",
    "stddef.h": "typedef unsigned long size_t;",
    "stdint.h": "typedef int int32_t; typedef unsigned uint32_t; typedef long int64_t; typedef unsigned long uint64_t;",
}
SCALARS = {
    "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float", "double": "c_double",
    "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
}


def preprocessed(header):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in HEADERS.items():
            pathlib.Path(folder, name).write_text(text + "\n")
        return subprocess.run(["cc", "-E", "-P", "-nostdinc", "-I", folder, str(header)], check=True,
                              capture_output=True, text=True).stdout


class Writer:
    """The declarations of a parsed header as lines of Python."""

    def __init__(self, tree):
        self.enums, self.structs, self.opaque, self.functions = {}, {}, [], {}
        for node in tree.ext:
            if isinstance(node, c_ast.Typedef):
                self.typedef(node)
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
                self.functions[node.name] = node.type
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
                self.enums["Tokenize" if "TOKENIZE" in node.type.values.enumerators[0].name else ""] = node.type

    def typedef(self, node):
        kind = node.type.type if isinstance(node.type, c_ast.TypeDecl) else None
        if isinstance(kind, c_ast.Enum):
            self.enums[node.name] = kind
        elif isinstance(kind, c_ast.Struct) and kind.decls:
            self.structs[node.name] = kind.decls
        elif isinstance(kind, c_ast.Struct):
            self.opaque.append(node.name)

    def type_of(self, node):
        """The ctypes expression of a C type."""
        if isinstance(node, c_ast.PtrDecl):
            return self.pointer(node.type)
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.type_of(node.type)} * {node.dim.value}"
        if isinstance(node, c_ast.FuncDecl):
            return self.signature(node)
        name = " ".join(node.type.names)
        if name == "void":
            return "None"
        return SCALARS.get(name) or ("c_int" if name in self.enums else name)

    def pointer(self, to):
        if isinstance(to, c_ast.FuncDecl):
            return self.signature(to)
        name = self.type_of(to)
        return "c_void_p" if name == "None" or name in self.opaque else f"POINTER({name})"

    def signature(self, node):
        return f"CFUNCTYPE({', '.join([self.type_of(node.type)] + self.arguments(node))})"

    def arguments(self, node):
        types = [self.type_of(p.type) for p in node.args.params] if node.args else []
        return [] if types == ["None"] else types

    def lines(self):
        yield '"""_abi.py - runtime/ftx.h for ctypes. Written by python/abi.py: change the header, not this file."""'
        yield "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_double, c_float, c_int, c_int32,"
        yield "                    c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p)"
        yield "from enum import IntEnum"
        for name, enum in self.enums.items():
            yield from ("", "", f"class {name.removeprefix('Ftx') or 'Constants'}(IntEnum):")
            value = -1
            for e in enum.values.enumerators:
                value = int(e.value.value) if e.value else value + 1
                yield f"    {e.name} = {value}"
        for name, decls in self.structs.items():
            yield from ("", "", f"class {name}(Structure):", "    _fields_ = [")
            for d in decls:
                yield f'        ("{d.name}", {self.type_of(d.type)}),'
            yield "    ]"
        yield from ("", "", "FUNCTIONS = {  # name: (result, [arguments])")
        for name, f in self.functions.items():
            yield f'    "{name}": ({self.type_of(f.type)}, [{", ".join(self.arguments(f))}]),'
        yield "}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default=ROOT / "python/ftxc/_abi.py", help="the file to write (- : print)")
    output = parser.parse_args().output
    text = preprocessed(ROOT / "runtime/ftx.h")
    text = "\n".join(Writer(c_parser.CParser().parse(text)).lines()) + "\n"
    if str(output) == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(output).write_text(text)


if __name__ == "__main__":
    main()
