#!/usr/bin/env python3
"""golden.py - golden.gguf: a tensor [2, 4, 256] of each quantised type, and beside it the values that it means.

    python3 tests/gguf/golden.py                 # writes tests/gguf/golden.gguf
    python3 -m venv /tmp/gguf && /tmp/gguf/bin/pip install gguf
    /tmp/gguf/bin/python tests/gguf/golden.py check     # the package reads it, and means the same bit for bit"""
import pathlib, random, sys
from writer import floats, matrix, write_gguf

PATH = pathlib.Path(__file__).resolve().parent / "golden.gguf"
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL",
             "IQ4_XS")


def write():
    tensors = {}
    for kind in QUANTISED:
        data, values = matrix(random.Random(kind), kind, 2048, 0.25)
        tensors[kind] = ([2, 4, 256], kind, data)
        tensors[kind + ".values"] = ([2, 4, 256], "F32", floats(values))
    write_gguf(PATH, {"general.architecture": "types"}, tensors)


def check():
    import gguf
    import numpy
    found = {t.name: t for t in gguf.GGUFReader(PATH).tensors}
    for kind in QUANTISED:
        t, want = found[kind], found[kind + ".values"].data.astype(numpy.float32).reshape(-1)
        assert t.tensor_type.name == kind and list(t.shape) == [256, 4, 2], t
        got = gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1)
        assert (got.view(numpy.uint32) == want.view(numpy.uint32)).all() or (got == want).all(), kind
        print(kind, "equal,", len(got), "values,", len(set(got.tolist())), "different")


check() if sys.argv[1:] == ["check"] else write()
