#!/usr/bin/env python3
# ranks.py - makes ranks.json: small files of tiktoken and small tekken.json, one for each pattern of the families of models,
# with what the tiktoken library gives for some texts and for some ids. Needs that library (pip install tiktoken); the tests
# read the file alone.
#
#   python3 tests/tokenizer/ranks.py >tests/tokenizer/ranks.json
import base64
import json
import random
import sys

import tiktoken

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = r"\w+|[^\w\s]+"  # drops white space; words have joiners
ENDS = r"^ab|ab$|\d+|(?s:.)"
MERGED = [b"ab", b"bc", b" a", b"abc", b" ab", b"ca", b"aa", b"aab", b"  ", b"    ", b"12", b"123", b"'s", b"he", b"the", b" the", b"\n\n",
          "é".encode(), "中".encode(), "中文".encode(), b"\xe4\xb8", b"abcabc", b"cab", b"n't", b"\xc2\xa0", b"\x00\x00", b"AB", b"Ab"]
TEXTS = ["ab", "abc", " ab", "ab ", "  ab  c", "a b c", "aab bcab", "abcabcabc", "aaaa", "the the", "it's IT'S don't", "12 1234 3a1", "é", "e\u0301x",
         "中文a中", "a\n\nb", "a\r\n b\n", "a\tb", "\u3000a\u00a0b", "😀a", "a.b,c!", " - b", "...", "a/b//\nc", "<|x|>ab<|y|>", "a<|x|> b", "<|x|", "ABab AbAB",
         "   ", "a   ", " ", "", "a\u200db \u200c1", "ǅab ʰab", "ſ'ſ", "\u0000\u0000\u0000", "²½٣", "ab\nab", "x\u2028y", "ひらカナ漢字", "Ａb", "\u0085a",
         "[INST]ab", "aabab" * 30]


def ranks(merged=MERGED, shuffle=None):
    bytes_ = [bytes([i]) for i in range(256)]
    if shuffle is not None:
        random.Random(shuffle).shuffle(bytes_)
    return {t: i for i, t in enumerate([*bytes_, *merged])}


def reordered(seed):
    merged = list(MERGED)
    random.Random(seed).shuffle(merged)
    return merged


def tekken(vocab, pattern, specials, count):
    named = None if specials is None else [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(specials)]
    config = {"pattern": pattern, "num_vocab_tokens": len(vocab) + 3, "default_vocab_size": len(vocab) + count,
              "default_num_special_tokens": count, "version": "v3"}
    rows = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, i in vocab.items()]
    rows += [{"rank": len(vocab) + i, "token_bytes": base64.b64encode(b"never" + bytes([i])).decode(), "token_str": None} for i in range(3)]
    out = {"config": config, "vocab": rows}
    return {**out, "special_tokens": named} if named else out


def all_files():
    """Name: (the library's encoder, what is added to its ids, the entry)."""
    ours = {}
    specials = {"<|x|>": 300, "<|y|>": 290, "é x": 301}
    for name, pattern in (("gpt2", GPT2), ("cl100k", CL100K), ("o200k", O200K), ("qwen", QWEN), ("kimi", KIMI), ("words", WORDS), ("ends", ENDS)):
        for seed in (None, 1):
            vocab = ranks(reordered(seed) if seed else MERGED, seed)
            lines = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in vocab.items())
            enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=vocab, special_tokens=specials)
            ours[f"tiktoken {name} {'shuffled' if seed else 'plain'}"] = (enc, 0, {
                "file": "small.model" if seed else "small.tiktoken", "hex": lines.encode().hex(),
                "beside": {"pat_str": pattern, "special_tokens": specials}})
    for name, named, count in (("named", ["<unk>", "<s>", "</s>", "<|x|>", "<|y|>"], 9), ("first", None, 22)):
        vocab = ranks()
        entry = tekken(vocab, TEKKEN, named, count)
        names = named or ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
                          "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
                          "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
        names = names + [f"<SPECIAL_{i}>" for i in range(len(names), count)]
        enc = tiktoken.Encoding(name, pat_str=TEKKEN, mergeable_ranks={t: i + count for t, i in vocab.items()},
                                special_tokens={s: i for i, s in enumerate(names)})
        ours[f"tekken {name}"] = (enc, count, {"file": "tekken.json", "tokenizer": entry})
    return ours


def some_ids(enc, rng):
    known = sorted([*enc._mergeable_ranks.values(), *enc._special_tokens.values()])
    return [rng.choice(known) for _ in range(rng.randrange(1, 9))]


def main():
    out = []
    for name, (enc, _, entry) in all_files().items():
        rng, cases = random.Random(name), []
        special = set(enc._special_tokens.values())
        for text in TEXTS:
            ids = enc.encode(text, allowed_special="all")
            cases.append({"text": text, "ids": ids, "framed": ids})
        for _ in range(16):
            ids = some_ids(enc, rng)
            cases.append({"decode": ids, "text": enc.decode(ids), "skipped": enc.decode([i for i in ids if i not in special])})
        out.append({"name": name, **entry, "cases": cases})
    print(f'{{"made_by": "tiktoken {tiktoken.__version__}", "tokenizers": [')
    print(",\n".join(json.dumps(o, ensure_ascii=False, separators=(",", ":")) for o in out))
    print("]}")
    print(f"{len(out)} files", file=sys.stderr)


if __name__ == "__main__":
    main()
