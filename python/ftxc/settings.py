"""settings.py - the keyword arguments of generate() and stream() as an FtxRequest."""
import ctypes
import difflib
import secrets

from . import _abi
from .library import chars, ints, lib

# Fields of FtxRequest that are numbers or switches: a keyword sets the field of its name.
_KINDS = {ctypes.c_bool: bool, ctypes.c_int: int, ctypes.c_uint64: int, ctypes.c_float: float}
WORDS = ("truncate", "early_stopping")
NOT_HERE = ("size", "top_logprobs", "prompt_logprobs", "states")  # the results have no place in a piece
PLAIN = {name: _KINDS[kind] for name, kind in _abi.FtxRequest._fields_
         if kind in _KINDS and name not in WORDS + NOT_HERE and not name.endswith(("_count", "_bytes"))}

# transformers' names of GenerationConfig -> ours. do_sample, early_stopping and the penalties of the same name are below.
TRANSFORMERS = {
    "max_new_tokens": "max_new", "min_new_tokens": "min_new", "num_beams": "beams", "num_beam_groups": "beam_groups",
    "diversity_penalty": "diversity_rate", "no_repeat_ngram_size": "no_repeat_ngram", "bad_words_ids": "bad_ids",
    "stop_strings": "stop", "eos_token_id": "stop_ids", "sequence_bias": "bias", "decoder_input_ids": "prefix",
    "forced_bos_token_id": "forced_bos", "forced_eos_token_id": "forced_eos",
}
LONG = tuple(name for name, kind in _abi.FtxRequest._fields_ if kind is ctypes.c_uint64)
LISTS = ("stop", "stop_ids", "bias", "bad_ids", "bad_words", "prefix")
ALL = sorted([*PLAIN, *LISTS, *WORDS, *TRANSFORMERS, "do_sample", "num_return_sequences"])


def ours(settings):
    """Settings with transformers' names replaced; refuses unknown ones and the same one by two names."""
    settings, out = dict(settings), {}
    sample, several = settings.pop("do_sample", None), settings.pop("num_return_sequences", None)
    for name, value in settings.items():
        if name not in ALL:
            near = difflib.get_close_matches(name, ALL, 1)
            raise TypeError(f"{name} is no setting" + (f": did you mean {near[0]}?" if near else ""))
        if value is None:
            continue
        name = TRANSFORMERS.get(name, name)
        if name in out:
            raise TypeError(f"{name} is given twice, by two names")
        out[name] = value
    if sample is False:
        if out.setdefault("temperature", 0) != 0:
            raise TypeError("do_sample=False and a temperature exclude each other")
    if several is not None:
        name = "n_best" if out.get("beams", 1) > 1 else "samples"
        if name in out:
            raise TypeError(f"num_return_sequences and {name} mean the same")
        out[name] = several
    return out


def _number(name, kind, value):
    fits = isinstance(value, bool) if kind is bool else not isinstance(value, bool)
    try:
        if fits and (kind is not int or int(value) == value):
            return kind(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected {'True or False' if kind is bool else kind.__name__}, found {value!r}")


def word(name, value, enum, prefix):
    words = {member.name[len(prefix):].lower(): member for member in enum}
    key = str(value).lower()
    if key not in words:
        raise TypeError(f"{name}: expected {', '.join(words)}, found {value!r}")
    return words[key]


def _list(name, value, kind):
    value = [value] if isinstance(value, kind) else value
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name}: expected a list of {kind.__name__}, found {value!r}")
    values = [v if kind is str else int(v) for v in value]
    if kind is str and not all(isinstance(v, str) for v in values):
        raise TypeError(f"{name}: expected a list of str, found {value!r}")
    return values


class Request:
    """One FtxRequest and the memory that it points to."""

    def __init__(self, model, prompt, settings):
        self.c = _abi.FtxRequest(size=ctypes.sizeof(_abi.FtxRequest))
        lib.ftx_request_fill(model, ctypes.byref(self.c), None)
        self.kept = []
        settings = ours(settings)
        self._prompt(prompt)
        if "seed" not in settings:
            self.c.seed = secrets.randbits(63)
        for name in PLAIN.keys() & settings.keys():
            value = _number(name, PLAIN[name], settings.pop(name))
            low, high = (0, 2**64) if name in LONG else (-2**31, 2**31)
            if PLAIN[name] is int and not low <= value < high:
                raise ValueError(f"{name}: expected {low} to {high - 1}, found {value}")
            setattr(self.c, name, value)
        if "truncate" in settings:
            self.c.truncate = word("truncate", settings.pop("truncate"), _abi.Truncate, "FTX_TRUNCATE_")
        if "early_stopping" in settings:
            self.c.early_stopping = word("early_stopping", settings.pop("early_stopping"), _abi.Early, "FTX_EARLY_")
        for name, value in settings.items():
            getattr(self, "_" + name)(value)

    @property
    def texts(self):
        """How many results it gives."""
        return max(1, self.c.n_best) if self.c.beams > 1 else max(1, self.c.samples)

    def _keep(self, value):
        self.kept.append(value)
        return value

    def _array(self, field, values, kind=ctypes.c_int32):
        setattr(self.c, field, self._keep((kind * len(values))(*values)))

    def _strings(self, field, texts):
        strings = [chars(self._keep(t.encode())) for t in texts]
        self._array(field, strings, ctypes.POINTER(ctypes.c_char))
        setattr(self.c, field + "_count", len(strings))

    def _prompt(self, prompt):
        if isinstance(prompt, str):
            data = self._keep(prompt.encode())
            self.c.text, self.c.text_bytes = chars(data), len(data)
            return
        self.c.ids, self.c.ids_count = self._keep(ints(_list("prompt", prompt, int))), len(prompt)

    def _stop(self, value):
        self._strings("stop", _list("stop", value, str))

    def _bad_words(self, value):
        self._strings("bad_words", _list("bad_words", value, str))

    def _stop_ids(self, value):
        ids = _list("stop_ids", value, int)
        self._array("stop_ids", ids)
        self.c.stop_ids_count = len(ids)

    def _prefix(self, value):
        ids = _list("prefix", value, int)
        self._array("prefix", ids)
        self.c.prefix_count = len(ids)

    def _bias(self, value):
        """{id: addend}; transformers' sequence_bias of single tokens, too."""
        try:
            pairs = {int(k[0] if isinstance(k, tuple) and len(k) == 1 else k): float(v) for k, v in dict(value).items()}
        except (TypeError, ValueError):
            raise TypeError(f"bias: expected a dict of token id to number, found {value!r}") from None
        self._array("bias_ids", list(pairs))
        self._array("bias_values", list(pairs.values()), ctypes.c_float)
        self.c.bias_count = len(pairs)

    def _bad_ids(self, value):
        words = [_list("bad_ids", word, int) for word in value]
        self._array("bad_ids", [i for word in words for i in word])
        self._array("bad_lengths", [len(word) for word in words], ctypes.c_size_t)
        self.c.bad_count = len(words)
