#!/usr/bin/env python3
# switches.py - makes switches.json: a small tokenizer for every switch of every part of a tokenizer.json, with what
# Hugging Face's tokenizers gives for some texts and for some ids. Needs that library (pip install tokenizers); the
# tests read the file alone.
#
#   python3 tests/tokenizer/switches.py >tests/tokenizer/switches.json
import json
import random
import re
import sys

import tokenizers

PIECES = ["a", "b", "c", "d", "e", "n", "t", "A", "B", "é", "ß", "中", "文", "▁", " ", "'", "1", "2", "3", ".", ",", "-", "!"]
MERGED = ["ab", "abc", "▁a", "▁ab", "bc", "'t", "n't", "12", "▁▁", "aa", "中文", "e\u0301", "ca"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
TEXTS = ["ab", "abc", " ab", "ab ", "  ab  c", "a b c", "aab bcab", "A B", "AB Ab", "don't", " n't", "can't 'tn't", "xyz",
         "a xyz b", "axb", "ax yb", "é", "e\u0301", "ßÉ", "中文a", "a中b文", "12 123 3a1", "a.b,c", "a - b!", "...", "a..b--c", "\t\na",
         "a\u00a0b", "a\u3000b", "😀a", "<0x41>abc", "<s>ab</s>", "a<s>b", "ab <x> c", "<x><x>", "<X>ab", "a\u0007b", "ﬁ x", "",
         " ", "   ", "\ufeffab", "a\u200bb", "ab\n\nab", "Ａb", "n't'tn't", "abcabcabcabc", "a<x> B", "<x>  B b", "a <x>", "<x>\t Bc", "A B AB", " AB AB ", "xAB ABx", "<x>AB B", "B B",
         "a\u200db \u200c1", " ab гд a, ひカー漢ー字 ー a", "ー", "\ue000 a\ue000гa", "a\u0301г\u0301", "<unk>", "x<unk>y"]


def vocab(pieces):
    return {p: i for i, p in enumerate(dict.fromkeys(pieces))}


def base(model, added_tokens=(), **parts):
    """Added tokens get the ids behind the vocabulary, as the library gives them."""
    first = len(model["vocab"])
    ids = {}
    for k, token in enumerate(added_tokens):
        token["id"] = ids[token["content"]] = first + k
    post = parts.get("post_processor")
    if post and "special_tokens" in post:
        for name, token in post["special_tokens"].items():
            token["ids"] = [ids[name]]
    for key in ("sep", "cls"):
        if post and key in post and post[key][0] in ids:
            post[key][1] = ids[post[key][0]]
    t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added_tokens), "normalizer": None,
         "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    t.update(parts)
    return t


def bpe(extra=(), merges=True, **options):
    v = vocab(["<unk>", *PIECES, *MERGED, *extra])
    ms = []
    if merges:
        for left, right in [("a", "b"), ("ab", "c"), ("▁", "a"), ("▁", "ab"), ("b", "c"), ("'", "t"), ("n", "'t"), ("1", "2"),
                            ("▁", "▁"), ("a", "a"), ("中", "文"), ("c", "a")]:
            ms.append([left, right])
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": v,
             "merges": ms}
    model.update(options)
    return model


def wordpiece(**options):
    v = vocab(["[UNK]", "[CLS]", "[SEP]", *PIECES, "ab", "abc", "##a", "##b", "##c", "##bc", "##ab", "can", "don", "##t", "##1",
               "12", "##3", "##é", "##中", "##'"])
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
             "vocab": v}
    model.update(options)
    return model


def unigram(extra=(), **options):
    rng = random.Random(7)
    v = [["<unk>", 0.0]] + [[p, -round(rng.uniform(2, 9), 3)] for p in dict.fromkeys([*PIECES, *MERGED, *extra])]
    model = {"type": "Unigram", "unk_id": 0, "vocab": v, "byte_fallback": False}
    model.update(options)
    return model


def meta(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def bytelevel(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def alphabet():
    from tokenizers.pre_tokenizers import ByteLevel
    return sorted(ByteLevel.alphabet())


def byte_bpe(**options):
    v = vocab([*alphabet(), "ab", "abc", "Ġa", "Ġab", "'t", "n't", "Ġn", "Ġn't", "Ã©"])
    merges = [["a", "b"], ["ab", "c"], ["Ġ", "a"], ["Ġ", "ab"], ["'", "t"], ["n", "'t"], ["Ġ", "n"], ["Ġn", "'t"], ["Ã", "©"]]
    model = bpe(merges=False)
    model.update(vocab=v, merges=merges)
    model.update(options)
    return model


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}
    token.update(flags)
    return token


def split(pattern, behavior, invert=False, regex=True):
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior, "invert": invert}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


O200K = ("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
CL100K = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}%s| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
          "\\s+(?!\\S)|\\s+")
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
CLIP = "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"


def ends_bpe(prefix, suffix, pieces, **options):
    """Pieces inside and at the end of words, with merges of both."""
    first = [p + end for p in pieces for end in ("", suffix)]
    v = vocab(["<unk>", *first, *[prefix + p for p in first], "ab", f"ab{suffix}", f"abc{suffix}", prefix + "bc" + suffix])
    merges = [["a", prefix + "b"], ["a", prefix + "b" + suffix], ["ab", prefix + "c" + suffix], [prefix + "b", prefix + "c" + suffix]]
    merges = [m for m in merges if all(p in v for p in [*m, m[0] + m[1][len(prefix):]])]
    model = bpe(merges=False, continuing_subword_prefix=prefix or None, end_of_word_suffix=suffix or None)
    model.update(vocab=v, merges=merges)
    model.update(options)
    return model


def families(ours):
    """The parts that families of models put together."""
    unk = {"unk_token": "<unk>"}

    def bytes_of(name, *steps, **options):
        ours[name] = base(byte_bpe(**options), pre_tokenizer=sequence("pretokenizers", *steps), decoder=bytelevel(),
                          added_tokens=[added("<s>", special=True), added("<x>")])

    plain = bytelevel(False, False)
    bytes_of("family qwen", split(CL100K % "", "Isolated"), plain)
    ours["family qwen"]["normalizer"] = {"type": "NFC"}
    bytes_of("family llama3", split(CL100K % "{1,3}", "Isolated"), plain, ignore_merges=True)
    bytes_of("family gpt-oss", split(O200K, "Isolated"), plain, ignore_merges=True)
    bytes_of("family deepseek3", split("\\p{N}{1,3}", "Isolated"), split("[一-龥\u3040-ゟ゠-ヿ]+", "Isolated"), split(DEEPSEEK, "Isolated"), plain)
    bytes_of("family deepseek2", split("[\\r\\n]", "Isolated"), split("\\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+", "Isolated"),
             split("\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "Isolated"), split("\\s+$", "Isolated"), split("[一-龥ࠀ-一가-퟿]+", "Isolated"),
             {"type": "Digits", "individual_digits": True}, plain)
    for single in (False, True):
        bytes_of(f"family falcon {single}", {"type": "Punctuation", "behavior": "Contiguous"}, bytelevel(),
                 {"type": "Digits", "individual_digits": single}, split("[0-9][0-9][0-9]", "Isolated"))
    bytes_of("family starcoder", {"type": "Digits", "individual_digits": True}, bytelevel())
    bytes_of("family bloom", split(BLOOM, "Isolated"), plain)
    ours["family gemma"] = base(bpe(BYTES, **unk, fuse_unk=True, byte_fallback=True),
                                normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                                pre_tokenizer=split(" ", "MergedWithPrevious", regex=False),
                                decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                 {"type": "ByteFallback"}, {"type": "Fuse"}),
                                added_tokens=[added("▁▁▁"), added("<x>"), added("<s>", special=True)])
    letters = sorted(set("".join(byte_bpe()["vocab"])))
    for unknown in (False, True):
        some = [c for c in letters if unknown is False or c not in "bé1Ĵ"]
        ours[f"family clip unk={unknown}"] = base(
            ends_bpe("", "</w>", some, unk_token="<unk>"),
            normalizer=sequence("normalizers", {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
                                {"type": "Lowercase"}),
            pre_tokenizer=sequence("pretokenizers", split(CLIP, "Removed", True), bytelevel()), decoder=bytelevel(),
            added_tokens=[added("<s>", special=True)])
    for prefix in ("", "##"):
        for suffix in ("", "</w>"):
            ours[f"word ends '{prefix}' '{suffix}'"] = base(ends_bpe(prefix, suffix, [p for p in PIECES if p not in "d2"], **unk),
                                                            pre_tokenizer={"type": "BertPreTokenizer"},
                                                            decoder={"type": "BPEDecoder", "suffix": suffix or "</w>"})
    ours["word ends ignore_merges"] = base(ends_bpe("", "</w>", PIECES, **unk, ignore_merges=True),
                                           pre_tokenizer={"type": "WhitespaceSplit"})
    for name, model in (("bpe", bpe(**unk)), ("unigram", unigram()), ("wordpiece", wordpiece())):
        ours[f"bytelevel before {name}"] = base(model, pre_tokenizer=bytelevel())
    ours["bytelevel fallback"] = base(bpe(BYTES, **unk, byte_fallback=True), pre_tokenizer=bytelevel(), decoder=bytelevel())
    ours["bytelevel decoder alone"] = base(byte_bpe(), pre_tokenizer={"type": "WhitespaceSplit"}, decoder=bytelevel())
    for decoder in (None, sequence("decoders", {"type": "Replace", "pattern": {"String": "Ġ"}, "content": "a"}, bytelevel())):
        ours[f"bytelevel ignore_merges {'sequence' if decoder else 'null'}"] = base(byte_bpe(ignore_merges=True),
                                                                                   pre_tokenizer=bytelevel(), decoder=decoder)
    for u in ("<unk>", "<none>"):
        ours[f"wordlevel {u}"] = base({"type": "WordLevel", "unk_token": u, "vocab": vocab(["<unk>", "ab", "a", "don", "'", "12", "é", "中文a", "."])},
                                      pre_tokenizer={"type": "Whitespace"})
    ours["wordlevel bytes"] = base({"type": "WordLevel", "unk_token": "<unk>", "vocab": vocab(["<unk>", "ab", "Ġab", "Ġa", "Ã©"])},
                                   pre_tokenizer=bytelevel(True), decoder=bytelevel())
    for behavior in ("MergedWithPrevious", "MergedWithNext", "Contiguous", "Isolated"):
        for invert in (False, True):  # empty matches end pieces, too
            ours[f"split empty {behavior} invert={invert}"] = base(byte_bpe(), pre_tokenizer=sequence(
                "pretokenizers", split("b*|(?=c)", behavior, invert), bytelevel(True, False)), decoder=bytelevel())
    for behavior in ("MergedWithPrevious", "MergedWithNext", "Removed"):
        ours[f"split then metaspace {behavior}"] = base(bpe(**unk), pre_tokenizer=sequence(
            "pretokenizers", split("[ab]", behavior), meta("first")), decoder=meta("first"))
    ours["split class in class"] = base(bpe(**unk), pre_tokenizer=split("[^a[b1[c]] \\S]+|[a[bc]n]+", "Removed"))
    ours["scripts"] = base(bpe(**unk), pre_tokenizer={"type": "UnicodeScripts"})
    for n in (1, 3):
        ours[f"lengths {n}"] = base(bpe(**unk), pre_tokenizer={"type": "FixedLength", "length": n})
    translators(ours)


def framed(*tokens):
    """A post-processor: "A" and "B" are the texts, the others special tokens."""
    def of(names):
        return [{"Sequence": {"id": n, "type_id": 0}} if n in "AB" else {"SpecialToken": {"id": n, "type_id": 0}} for n in names]
    both = tokens[:tokens.index("A") + 1] + ("B",) + tokens[tokens.index("A") + 1:]
    return {"type": "TemplateProcessing", "single": of(tokens), "pair": of(both),
            "special_tokens": {n: {"id": n, "ids": [0], "tokens": [n]} for n in tokens if n != "A"}}


def translators(ours):
    """As transformers 5.23 makes them: T5, NLLB, mBART, Pegasus."""
    def replace(pattern):
        return {"type": "Replace", "pattern": {"Regex": pattern}, "content": " "}

    words = sequence("pretokenizers", {"type": "WhitespaceSplit"}, meta())

    def special(*names):
        return [added(n, special=True) for n in names]

    ours["family t5"] = base(unigram(), pre_tokenizer=words, decoder=meta(), post_processor=framed("A", "</s>"),
                             added_tokens=special("</s>", "<s>", "<x>"))
    ours["family nllb"] = base(bpe(unk_token="<unk>", fuse_unk=True), normalizer=replace(" {2,}"), pre_tokenizer=meta(),
                               decoder=meta(), post_processor=framed("<x>", "A", "</s>"),
                               added_tokens=special("</s>", "<x>", "<s>"))
    ours["family mbart"] = base(unigram(), pre_tokenizer=words, decoder=meta(), post_processor=framed("A", "</s>", "<x>"),
                                added_tokens=special("</s>", "<x>", "<s>"))
    ours["family pegasus"] = base(unigram(), normalizer=sequence("normalizers", replace("\\n"), replace(" {2,}")),
                                  pre_tokenizer=meta(), decoder=meta(), post_processor=framed("A", "</s>"),
                                  added_tokens=special("</s>", "<x>"))


def all_tokenizers():
    ours = {}
    unk = {"unk_token": "<unk>"}
    for fuse in (False, True):
        ours[f"bpe unk fuse={fuse}"] = base(bpe(**unk, fuse_unk=fuse))
        for fall in (False, True):
            ours[f"bpe bytes={fall} fuse={fuse}"] = base(bpe(BYTES, **unk, fuse_unk=fuse, byte_fallback=fall),
                                                        decoder=sequence("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}))
        ours[f"bpe some bytes fuse={fuse}"] = base(bpe(["<0xF0>", "<0x9F>", "<0xC3>"], **unk, fuse_unk=fuse, byte_fallback=True))
    ours["bpe no unk"] = base(bpe())
    ours["bpe ignore_merges"] = base(byte_bpe(ignore_merges=True), pre_tokenizer=bytelevel(), decoder=bytelevel())
    for prefix in (False, True):
        for regex in (False, True):
            ours[f"bytelevel prefix={prefix} regex={regex}"] = base(byte_bpe(), pre_tokenizer=bytelevel(prefix, regex),
                                                                   decoder=bytelevel())
    for scheme in ("always", "never", "first"):
        for cut in (False, True):
            ours[f"metaspace {scheme} split={cut}"] = base(bpe(**unk), pre_tokenizer=meta(scheme, cut),
                                                          decoder=meta(scheme, cut),
                                                          added_tokens=[added("<s>", special=True)])
            ours[f"unigram metaspace {scheme} split={cut}"] = base(unigram(), pre_tokenizer=meta(scheme, cut),
                                                                  decoder=meta(scheme, cut))
    ours["unigram"] = base(unigram())
    ours["unigram bytes"] = base(unigram(BYTES, byte_fallback=True), decoder=sequence("decoders", {"type": "ByteFallback"}))
    ours["unigram no unk"] = base(unigram(unk_id=None))
    for limit in (2, 3, 100):
        ours[f"wordpiece most={limit}"] = base(wordpiece(max_input_chars_per_word=limit), pre_tokenizer={"type": "Whitespace"})
    for cleanup in (False, True):
        for prefix in ("##", "b"):
            ours[f"wordpiece decoder {prefix} cleanup={cleanup}"] = base(
                wordpiece(), pre_tokenizer={"type": "BertPreTokenizer"},
                decoder={"type": "WordPiece", "prefix": prefix, "cleanup": cleanup})
    ours["wordpiece prefix @"] = base(wordpiece(continuing_subword_prefix="@", vocab=vocab(["[UNK]", "a", "b", "@b", "@a", "@@b"])),
                                      pre_tokenizer={"type": "WhitespaceSplit"})
    for clean in (False, True):
        for chinese in (False, True):
            for strip in (None, False, True):
                for lower in (False, True):
                    ours[f"bert {clean} {chinese} {strip} {lower}"] = base(
                        bpe(**unk), normalizer={"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese,
                                                "strip_accents": strip, "lowercase": lower})
    for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        ours[f"normalizer {n}"] = base(bpe(**unk), normalizer={"type": n})
    for left in (False, True):
        for right in (False, True):
            ours[f"strip {left} {right}"] = base(bpe(**unk), normalizer={"type": "Strip", "strip_left": left, "strip_right": right})
    ours["prepend"] = base(bpe(**unk), normalizer={"type": "Prepend", "prepend": "▁"})
    ours["replace text"] = base(bpe(**unk), normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    ours["replace empty"] = base(bpe(**unk), normalizer={"type": "Replace", "pattern": {"String": "b"}, "content": ""})
    ours["replace regex"] = base(bpe(**unk), normalizer={"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    ours["llama"] = base(bpe(BYTES, **unk, fuse_unk=True, byte_fallback=True),
                         normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                                             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
                         decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                          {"type": "ByteFallback"}, {"type": "Fuse"},
                                          {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    for start, stop in ((0, 0), (1, 0), (0, 1), (2, 2)):
        ours[f"decoder strip {start} {stop}"] = base(bpe(**unk), decoder=sequence(
            "decoders", {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": start, "stop": stop}))
    for single in (False, True):
        ours[f"digits {single}"] = base(bpe(**unk), pre_tokenizer={"type": "Digits", "individual_digits": single})
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        ours[f"pre {name}"] = base(bpe(**unk), pre_tokenizer={"type": name})
    ours["pre delimiter"] = base(bpe(**unk), pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": "-"})
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        ours[f"punctuation {behavior}"] = base(bpe(**unk), pre_tokenizer={"type": "Punctuation", "behavior": behavior})
        for invert in (False, True):
            ours[f"split {behavior} invert={invert}"] = base(bpe(**unk), pre_tokenizer=split("[ab]+", behavior, invert))
        ours[f"split text {behavior}"] = base(bpe(**unk), pre_tokenizer=split("b", behavior, regex=False))
    ours["pre sequence"] = base(byte_bpe(), pre_tokenizer=sequence(
        "pretokenizers", split("\\s+(?!\\S)|\\p{L}+|\\p{N}{1,2}|[^\\s\\p{L}\\p{N}]+", "Isolated"), bytelevel(False, False)),
        decoder=bytelevel())
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True},
                  {"normalized": True}, {"special": True}, {"special": True, "rstrip": True}):
        for norm in (None, {"type": "Lowercase"}):
            named = " ".join(sorted(flags)) or "plain"
            ours[f"added {named}{' lower' if norm else ''}"] = base(
                bpe(**unk), normalizer=norm, added_tokens=[added("<x>", **flags), added("AB", **flags),
                                                           added(" B", **flags), added("<s>", special=True)])
    two = [added("<s>", special=True), added("</s>", special=True)]
    ours["template"] = base(bpe(**unk), added_tokens=two, post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [60], "tokens": ["<s>"]},
                           "</s>": {"id": "</s>", "ids": [61], "tokens": ["</s>"]}}})
    ours["bert post"] = base(wordpiece(), pre_tokenizer={"type": "BertPreTokenizer"},
                             post_processor={"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]})
    for prefix in (False, True):
        ours[f"roberta post {prefix}"] = base(byte_bpe(), pre_tokenizer=bytelevel(prefix), decoder=bytelevel(), added_tokens=[
            added("<s>", special=True), added("</s>", special=True)],
            post_processor={"type": "RobertaProcessing", "sep": ["</s>", 401], "cls": ["<s>", 400], "trim_offsets": True,
                            "add_prefix_space": prefix})
    families(ours)
    return ours


def some_ids(t, rng):
    """Ids of which no byte pieces stand alone: of bytes that are no UTF-8 ftxc makes one U+FFFD for each longest start
    of a character (Unicode's advice), ByteFallback one for each byte."""
    size, text = t.get_vocab_size(), []
    for _ in range(rng.randrange(1, 9)):
        i = rng.randrange(size)
        if not re.fullmatch("<0x..>", t.id_to_token(i) or ""):
            text.append(i)
        elif t.token_to_id("<0xE2>") is not None:
            text += [t.token_to_id(f"<0x{b:02X}>") for b in rng.choice(["é", "€", "😀", "a"]).encode()]
    return text


def cases_of(t, rng):
    cases = []
    for text in TEXTS:
        try:
            cases.append({"text": text, "ids": t.encode(text, add_special_tokens=False).ids, "framed": t.encode(text).ids})
        except Exception:  # a text that this model cannot say: the library raises
            cases.append({"text": text, "refused": True})
    for _ in range(12):
        ids = some_ids(t, rng)
        cases.append({"decode": ids, "text": t.decode(ids, skip_special_tokens=False),
                      "skipped": t.decode(ids, skip_special_tokens=True)})
    return cases


def main():
    out, rng = [], random.Random(1)
    for name, spec in all_tokenizers().items():
        t = tokenizers.Tokenizer.from_str(json.dumps(spec))
        out.append({"name": name, "tokenizer": spec, "cases": cases_of(t, rng)})
    print(f'{{"made_by": "tokenizers {tokenizers.__version__}", "tokenizers": [')
    print(",\n".join(json.dumps(o, ensure_ascii=False, separators=(",", ":")) for o in out))
    print("]}")
    print(f"{len(out)} tokenizers", file=sys.stderr)


if __name__ == "__main__":
    main()
