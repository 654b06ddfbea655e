"""test_abi.py - _abi.py is what python/abi.py makes of ftx.h, and the C compiler agrees about each field's place."""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ftxc import _abi
from ftxc.settings import LISTS, PLAIN, WORDS, Request

STRUCTS = [s for s in vars(_abi).values() if isinstance(s, type) and issubclass(s, ctypes.Structure) and hasattr(s, "_fields_")]


class Abi(unittest.TestCase):
    def test_is_generated(self):
        made = subprocess.run([sys.executable, "python/abi.py", "-o", "-"], check=True, capture_output=True, text=True)
        self.assertEqual(made.stdout, pathlib.Path("python/ftxc/_abi.py").read_text(), "run python/abi.py")

    def test_layout(self):
        lines = ['#include "runtime/ftx.h"', "#include <stdio.h>", "int main(void){"]
        wanted = []
        for s in STRUCTS:
            lines.append(f'printf("{s.__name__} %zu\\n", sizeof({s.__name__}));')
            wanted.append(f"{s.__name__} {ctypes.sizeof(s)}")
            for name, *_ in s._fields_:
                lines.append(f'printf("{name} %zu\\n", offsetof({s.__name__}, {name}));')
                wanted.append(f"{name} {getattr(s, name).offset}")
        with tempfile.TemporaryDirectory() as room:
            program = os.path.join(room, "layout")
            subprocess.run(["cc", "-I.", "-xc", "-", "-o", program], input="\n".join(lines) + "}", text=True, check=True)
            printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
        self.assertEqual(printed[:-1], wanted)
        self.assertGreater(len(wanted), 100)

    def test_every_field_has_a_keyword(self):
        """A new field of FtxRequest is a setting of generate(), or stands here with the reason."""
        others = {"size", "user"} | {f for f, _ in _abi.FtxRequest._fields_ if f.endswith(("_count", "_bytes"))}
        others |= {"text", "ids", "bias_ids", "bias_values", "bad_lengths"}  # the prompt; bias; bad_ids
        others |= {"top_logprobs", "prompt_logprobs", "mask", "mask_user", "states"}  # pieces have no place for what they give
        named = set(PLAIN) | (set(LISTS) - {"bias"}) | set(WORDS)
        self.assertEqual({f for f, _ in _abi.FtxRequest._fields_} - others, named)
        for name in LISTS:
            self.assertTrue(hasattr(Request, "_" + name), name)


if __name__ == "__main__":
    unittest.main()
