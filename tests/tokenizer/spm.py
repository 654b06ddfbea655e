#!/usr/bin/env python3
# spm.py - makes spm.json: a small SentencePiece file for every switch of its format, with what the sentencepiece library
# gives for some texts and for some ids. Needs that library and protobuf (pip install sentencepiece protobuf); the tests
# read the file alone.
#
#   python3 tests/tokenizer/spm.py >tests/tokenizer/spm.json
import io
import json
import os
import random
import re
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
PIECES = ["▁", "a", "b", "c", "d", "e", "é", "中", "1", "2", ".", "-", "<", ">", "\n", "n", "A"]
MERGED = ["ab", "abc", "▁a", "▁ab", "bc", "12", "▁▁", "aa", "ca", "▁b", "cab", "bca", "aab", "b▁", "a▁", "1.2", "caa"]
TEXTS = ["ab", "abc", " ab", "ab ", "  ab  c", "a b c", "aab bcab", "abcabcabc", "aaaa", "cabcabca", "xyz", "a xyz b", "é", "e\u0301",
         "中a文", "12 1.2", "\n", "a\n\nb", "a\tb", "\u3000a\u00a0b", "😀a", "<0x41>", "<s>ab</s>", "a<u>b", "<u>a <u> b<u>", "a<uu>b<u",
         "▁a ▁", "  ", " ", "", "   a", "a   ", "ＡＢ", "ﬁ", "A", "ab<unk>", "<u><u>", "a <uu> b", "\r\n", "bb", "ba", "abab", "caab",
         "\ufeffa", "a\u200bb", "x\u0000y"[:1], "½", "aab<u>aab", "aqb", "<x>", "\n\n\n\n", "cacaab"]


def charsmap(*rules):
    """The map of characters that the library's trainer makes of some rules; none: of nmt_nfkc."""
    with tempfile.TemporaryDirectory() as folder:
        tsv, out = os.path.join(folder, "rules.tsv"), io.BytesIO()
        with open(tsv, "w") as f:
            for what, becomes in rules:
                f.write(" ".join(f"{ord(c):X}" for c in what) + "\t" + " ".join(f"{ord(c):X}" for c in becomes) + "\n")
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c a b c d e f g"] * 10), model_writer=out, vocab_size=12,
                                                 model_type="char", normalization_rule_tsv=tsv, minloglevel=2)
    return pb.ModelProto.FromString(out.getvalue()).normalizer_spec.precompiled_charsmap


def model(kind, extra=(), scores=None, seed=7, **options):
    m, rng = pb.ModelProto(), random.Random(seed)
    pieces = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), *extra]
    if options.get("byte_fallback"):
        pieces += [(f"<0x{i:02X}>", 0, BYTE) for i in range(256)]
    for i, p in enumerate([*PIECES, *MERGED]):
        score = scores(i) if scores else -round(rng.uniform(1, 9), 3) if kind == "UNIGRAM" else -float(i)
        if p not in [e[0] for e in extra]:
            pieces.append((p, score, NORMAL))
    for text, score, type_ in pieces:
        m.pieces.add(piece=text, score=score, type=type_)
    t, n = m.trainer_spec, m.normalizer_spec
    t.model_type = getattr(pb.TrainerSpec, kind)
    t.byte_fallback = options.get("byte_fallback", False)
    t.treat_whitespace_as_suffix = options.get("suffix", False)
    if "unk_surface" in options:
        t.unk_surface = options["unk_surface"]
    n.name = "of this test"
    n.add_dummy_prefix = options.get("dummy", True)
    n.remove_extra_whitespaces = options.get("squeeze", True)
    n.escape_whitespaces = options.get("escape", True)
    n.precompiled_charsmap = options.get("charsmap", b"")
    return m


def all_models():
    ours = {}
    users = [("<u>", 0, USER), ("<uu>", 0, USER), ("▁▁▁", 0, USER), ("\n\n", 0, USER), ("ca", 0, USER), ("cab", 0, USER), ("<tab> x", 0, USER)]
    rules = charsmap(("Ａ", "A"), ("ﬁ", "ab"), ("\u3000", " "), ("\u00a0", " "), ("e\u0301", "é"), ("\u200b", ""), ("½", "1.2"), ("\t", " "), ("<", "b"))
    for kind in ("UNIGRAM", "BPE"):
        for dummy in (False, True):
            for squeeze in (False, True):
                for escape in (False, True):
                    ours[f"{kind} dummy={dummy} squeeze={squeeze} escape={escape}"] = model(kind, dummy=dummy, squeeze=squeeze, escape=escape)
            for squeeze in (False, True):
                ours[f"{kind} suffix dummy={dummy} squeeze={squeeze}"] = model(kind, suffix=True, dummy=dummy, squeeze=squeeze)
        for squeeze in (False, True):
            ours[f"{kind} bytes squeeze={squeeze}"] = model(kind, byte_fallback=True, squeeze=squeeze)
            ours[f"{kind} map squeeze={squeeze}"] = model(kind, charsmap=rules, squeeze=squeeze)
            for dummy in (False, True):
                ours[f"{kind} users squeeze={squeeze} dummy={dummy}"] = model(kind, users, squeeze=squeeze, dummy=dummy)
        ours[f"{kind} users map"] = model(kind, users, charsmap=rules)
        ours[f"{kind} gemma"] = model(kind, users, byte_fallback=True, squeeze=False, dummy=False)
        ours[f"{kind} users positive"] = model(kind, users, scores=lambda i: i / 7)
        ours[f"{kind} equal scores"] = model(kind, scores=lambda i: -1.0)
        ours[f"{kind} few scores"] = model(kind, scores=lambda i: -float(i * 7 % 3))
        ours[f"{kind} surface"] = model(kind, unk_surface="?")
        ours[f"{kind} unused"] = model(kind, [("q", -1, UNUSED), ("<x>", -1, UNUSED)])
    return ours


def texts_of_bytes(rng):
    return [f"<0x{b:02X}>" for b in rng.choice(["é", "€", "😀", "a"]).encode()]


def some_ids(sp, rng):
    """Bytes come as whole characters: of others ftxc makes one U+FFFD for each longest start of a character."""
    ids, size = [], sp.get_piece_size()
    for _ in range(rng.randrange(1, 9)):
        i = rng.randrange(size)
        if sp.is_byte(i):
            ids += [sp.piece_to_id(p) for p in texts_of_bytes(rng)]
        elif not re.fullmatch("<0x..>", sp.id_to_piece(i)):
            ids.append(i)
    return ids


def main():
    out = []
    for name, m in all_models().items():
        sp, rng, cases = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString()), random.Random(name), []
        for text in TEXTS:
            ids = sp.encode(text)
            cases.append({"text": text, "ids": ids, "framed": ids})
        for _ in range(12):
            ids = some_ids(sp, rng)
            cases.append({"decode": ids, "skipped": sp.decode(ids)})
        out.append({"name": name, "file": "small.model", "hex": m.SerializeToString().hex(), "cases": cases})
    print(f'{{"made_by": "sentencepiece {sentencepiece.__version__}", "tokenizers": [')
    print(",\n".join(json.dumps(o, ensure_ascii=False, separators=(",", ":")) for o in out))
    print("]}")
    print(f"{len(out)} models", file=sys.stderr)


if __name__ == "__main__":
    main()
