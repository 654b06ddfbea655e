#!/usr/bin/env python3
# many.py - random texts and ids by the hundred thousand for each tokenizer of switches.py, spm.py and ranks.py, and for those
# of the models in specs/: ftxc beside tokenizers, sentencepiece and tiktoken. Not run by CI. Needs these libraries, protobuf
# and numpy.
#
#   PYTHONPATH=python FTX_LIBRARY=build/libftx.so FTX_PROGRAM=build/ftxc python3 tests/tokenizer/many.py [COUNT [NAME]]
#
# COUNT: texts, and lists of ids, for each tokenizer (100,000); NAME: those alone whose name has it. Two things differ and are
# left out: BERT's normalizer and words of tokenizers know Unicode 8, ftxc's the version of utf8proc and PCRE2, so no later
# character is in RANGES; and tokenizers 0.23 writes an added token that is normalized as its normalizer leaves it ("ab" of
# "AB"), 0.22 and ftxc as the file has it.
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
import tiktoken
import tokenizers

import ftxc
import ranks
import spm
import switches

SPEC = """local ftx = require "ftx"
local llama = require "llama"
return ftx.model { graph = llama { vocab = %d, hidden = 8, layers = 1, heads = 1, kv_heads = 1, head_dim = 16, ffn = 8,
  rope = { theta = 10000 } }, tokenizer = "%s", limits = { sequences = 1, context = 64 } }
"""
RANGES = [(0x20, 0x7f), (0x20, 0x7f), (0x01, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0x9fc), (0xe00, 0xe80),
          (0x1100, 0x1200), (0x2000, 0x2070), (0x3000, 0x3100), (0x4e00, 0x5000), (0xac00, 0xac80), (0xe000, 0xe010), (0xff00, 0xfff0),
          (0x1f300, 0x1f321), (0x1f600, 0x1f640), (0x10000, 0x10100)]


class Library:
    """A tokenizer of another library. encode: ids, or None where it refuses; ids: a random list; decode: the text with special
    tokens and without them, None where the library has no such way."""

    def __init__(self, size, encode, ids, decode, pieces):
        self.size, self.encode, self.ids, self.decode, self.pieces = size, encode, ids, decode, pieces


def of_tokenizers(spec):
    t = tokenizers.Tokenizer.from_str(spec)

    def encode(text):
        try:
            return t.encode(text, add_special_tokens=False).ids
        except Exception:  # a text that the model cannot say
            return None

    return Library(max(t.get_vocab().values()) + 1, encode, lambda rng: switches.some_ids(t, rng),
                   lambda ids: (t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)),
                   [p for p in t.get_vocab() if len(p) < 20])


def of_sentencepiece(proto):
    sp = sentencepiece.SentencePieceProcessor(model_proto=proto)
    n = sp.get_piece_size()
    return Library(n, sp.encode, lambda rng: spm.some_ids(sp, rng), lambda ids: (None, sp.decode(ids)),
                   [sp.id_to_piece(i) for i in range(n)])


def of_tiktoken(enc):
    special = set(enc._special_tokens.values())
    return Library(enc.n_vocab, lambda text: enc.encode(text, allowed_special="all"), lambda rng: ranks.some_ids(enc, rng),
                   lambda ids: (enc.decode(ids), enc.decode([i for i in ids if i not in special])),
                   [b.decode("utf-8", "ignore") for b in enc._mergeable_ranks])


def all_of_them():
    """Name: (the library's, the name of its file, the files)."""
    for path in ("specs/fable/tokenizer.json", "specs/verse/tokenizer.json", "tests/tokenizer/emb/tokenizer.json"):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        yield path, of_tokenizers(text), "tokenizer.json", {"tokenizer.json": text.encode()}
    for name, spec in switches.all_tokenizers().items():
        text = json.dumps(spec)
        yield name, of_tokenizers(text), "tokenizer.json", {"tokenizer.json": text.encode()}
    for name, model in spm.all_models().items():
        proto = model.SerializeToString()
        yield name, of_sentencepiece(proto), "small.model", {"small.model": proto}
    for name, (enc, _, entry) in ranks.all_files().items():
        if "tokenizer" in entry:
            files = {entry["file"]: json.dumps(entry["tokenizer"]).encode()}
        else:
            files = {entry["file"]: bytes.fromhex(entry["hex"]), entry["file"] + ".json": json.dumps(entry["beside"]).encode()}
        yield name, of_tiktoken(enc), entry["file"], files


def random_text(rng, pieces, texts):
    parts = []
    for _ in range(rng.randrange(1, 7)):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(texts))
        elif kind == 1:
            parts.append(rng.choice(pieces))
        elif kind == 2:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 5))))
        else:
            parts.append("".join(rng.choice(" aab\n'.1tT▁") for _ in range(rng.randrange(1, 9))))
    return "".join(parts)


def opened(folder, name, files, size):
    """The model of a spec with this tokenizer; None if ftxc refuses it."""
    for file, data in files.items():
        (folder / file).write_bytes(data)
    spec = folder / "model.lua"
    spec.write_text(SPEC % (size, name))
    made = subprocess.run([os.environ["FTX_PROGRAM"], "compile", spec, "-o", folder / "model.ftx", "-t", "cpu"], capture_output=True, text=True)
    if made.returncode:  # two decoders are refused
        print(f"{name}: {made.stderr.strip()}")
        return None
    return ftxc.Model(str(folder / "model.ftx"), threads=1, random_weights=1)


def compare(name, library, model, count):
    rng, texts, bad = random.Random(name), [*switches.TEXTS, *spm.TEXTS, *ranks.TEXTS[:-1]], 0

    def differs(what, given, want, got):
        nonlocal bad
        bad += 1
        if bad <= 5:
            print(f"  {name}: {what} {given!r}\n    library {want!r}\n    ftxc    {got!r}")

    for _ in range(count):
        text = random_text(rng, library.pieces, texts)
        want = library.encode(text)
        try:
            got = model.tokenize(text, special=False)
        except ftxc.Error:
            got = None
        if got != want:
            differs("encode", text, want, got)
        ids = library.ids(rng)
        for skip, want in enumerate(library.decode(ids)):
            if want is not None and model.detokenize(ids, skip_special=bool(skip)) != want:
                differs("decode", ids, want, model.detokenize(ids, skip_special=bool(skip)))
    return bad


def main():
    count, only = int(sys.argv[1]) if len(sys.argv) > 1 else 100000, sys.argv[2] if len(sys.argv) > 2 else ""
    number, wrong = 0, 0
    for name, library, file, files in all_of_them():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = opened(pathlib.Path(folder), file, files, library.size)
            if not model:
                continue
            bad = compare(name, library, model, count)
        number, wrong = number + 1, wrong + (bad > 0)
        print(f"{name}: {bad} of {count} texts and lists differ", flush=True)
    print(f"{number} tokenizers, {wrong} differ; tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}, "
          f"tiktoken {tiktoken.__version__}")
    sys.exit(wrong > 0)


main()
