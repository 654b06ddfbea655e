"""encoder.py - arrays in and out of encoders: texts to vectors, ids or hidden states to hidden states."""
import ctypes

import numpy

from . import _abi
from .library import call, chars, new
from .settings import word

FLOAT, INT = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int32)
ROWS = 65536  # of hidden states that are pooled at a time


def array(values, kind, name):
    """`values` as a C-ordered array of `kind`, without a copy where it is one already. Lists, what has the buffer
    protocol and what has DLPack (torch tensors on the CPU) are taken."""
    if hasattr(values, "__dlpack__") and not isinstance(values, numpy.ndarray):
        if getattr(values, "requires_grad", False):
            values = values.detach()
        if values.__dlpack_device__()[0] != 1:
            raise TypeError(f"{name}: expected memory of the CPU; move it there first (tensor.cpu())")
        values = numpy.from_dlpack(values)
    out = numpy.asarray(values)
    if out.dtype.kind not in ("f" if kind == numpy.float32 else "iu"):
        raise TypeError(f"{name}: expected {kind.__name__}, found {out.dtype}")
    return numpy.ascontiguousarray(out, kind)


def pointer(values, kind):
    return values.ctypes.data_as(kind)


def converted(out, to):
    if to == "numpy":
        return out
    if to == "torch":
        import torch

        return torch.from_numpy(out) if isinstance(out, numpy.ndarray) else [torch.from_numpy(o) for o in out]
    if to == "list":
        return out.tolist() if isinstance(out, numpy.ndarray) else [o.tolist() for o in out]
    raise ValueError(f"to: expected numpy, torch or list, found {to!r}")


class Encoding:
    """The encoder of a Model."""

    def __init__(self, model):
        self.info, self.run = model.info, lambda job: model._worker.call(
            lambda engine: call("ftx_engine_encode", engine, ctypes.byref(job)))
        if self.info.kind != "encoder":
            raise TypeError(f"{self.info.name} is a {self.info.kind}: it has no vectors of texts (use generate)")

    def encode(self, texts, pooling=None, normalize=False, to="numpy", *, pairs=None, truncate="longest", max_tokens=0,
               literal=False):
        """float32 [count, width] of a list of texts; [width] of one str.

        pooling     None: the vector that the artifact was compiled to give; "mean", "first" (or "cls"), "last" and
                    "max" are taken over the hidden states; "tokens": the hidden states themselves, a list of
                    [tokens, hidden]
        normalize   divide each vector by its length
        to          "numpy", "torch" or "list"
        pairs       a second sentence to each text
        truncate    of texts of more than max_tokens tokens (0: the context): "longest", "first", "second", or "none":
                    they are refused
        """
        if isinstance(texts, str):
            pairs = None if pairs is None else [pairs]
            out = self.encode([texts], pooling, normalize, "numpy", pairs=pairs, truncate=truncate,
                              max_tokens=max_tokens, literal=literal)
            return converted(out[0], to)
        texts = list(texts)
        job = new(_abi.FtxEncode)
        job.truncate = word("truncate", truncate, _abi.Truncate, "FTX_TRUNCATE_")
        job.max_tokens, job.literal = max_tokens, literal
        if pairs is not None and len(pairs := list(pairs)) != len(texts):
            raise ValueError(f"pairs: expected {len(texts)}, as many as texts, found {len(pairs)}")
        if pooling is None:
            out = self._pooled(job, texts, pairs)
        else:
            out = self._from_hidden(job, texts, pairs, pooling)
        if normalize:
            out = [_unit(o) for o in out] if isinstance(out, list) else _unit(out)
        return converted(out, to)

    def _pooled(self, job, texts, pairs):
        if not self.info.pooled:
            raise TypeError(f"{self.info.name} was compiled without a vector of a text: give pooling=, or compile it "
                            "with pooling=\"mean\"")
        out = numpy.zeros((len(texts), self.info.pooled), numpy.float32)
        job.pooled = pointer(out, FLOAT)
        self._run_texts(job, texts, pairs)
        return out

    def _from_hidden(self, job, texts, pairs, pooling):
        pools = {"mean": lambda h: h.mean(0), "first": lambda h: h[0], "cls": lambda h: h[0], "last": lambda h: h[-1],
                 "max": lambda h: h.max(0), "tokens": numpy.array}
        if pooling not in pools:
            raise ValueError(f"pooling: expected {', '.join(pools)} or None, found {pooling!r}")
        out, start = [], 0
        while start < len(texts):
            end, rows = start, 0
            while end < len(texts) and (end == start or rows < ROWS):
                rows += self._most_tokens(texts[end]) + (self._most_tokens(pairs[end]) if pairs else 0)
                end += 1
            hidden = numpy.zeros((rows, self.info.hidden), numpy.float32)
            tokens = numpy.zeros(end - start, numpy.int32)
            job.hidden, job.hidden_rows, job.tokens = pointer(hidden, FLOAT), rows, pointer(tokens, INT)
            self._run_texts(job, texts[start:end], pairs[start:end] if pairs else None)
            ends = tokens.cumsum()
            out += [pools[pooling](hidden[e - n:e]) for n, e in zip(tokens, ends)]
            start = end
        if pooling == "tokens":
            return out
        return numpy.stack(out) if out else numpy.zeros((0, self.info.hidden), numpy.float32)

    def _most_tokens(self, text):
        return min(self.info.context, len(text.encode()) + 16)

    def _run_texts(self, job, texts, pairs):
        kept = [self._strings(job, "text", texts)]
        if pairs is not None:
            kept.append(self._strings(job, "pair", pairs))
        job.count = len(texts)
        self.run(job)

    @staticmethod
    def _strings(job, field, texts):
        data = [t.encode() for t in texts]
        strings = (ctypes.POINTER(ctypes.c_char) * len(data))(*[chars(d) for d in data])
        sizes = (ctypes.c_size_t * len(data))(*[len(d) for d in data])
        setattr(job, field, strings)
        setattr(job, field + "_bytes", sizes)
        return data, strings, sizes

    def forward(self, *, ids=None, hidden=None, lengths=None, types=None, out=None):
        """The hidden states behind the last layer: float32, shaped as the input.

        ids       token ids: int [B, S] with lengths [B] (or all S long), or packed [tokens] with lengths
        hidden    in their place, hidden states before the first layer: float [B, S, input] or [tokens, input]
        lengths   tokens of each text that count; what is behind them in a row is not read, and 0 in the result
        types     token types, shaped as ids
        out       a float32 array, C-ordered, to write to: [B, S, hidden] or [tokens, hidden]
        Arrays are read and written in place where they have the right type and order (numpy, torch on the CPU, DLPack).
        Returns (hidden states, pooled [B, pooled] or None).
        """
        if (ids is None) == (hidden is None):
            raise TypeError("give either ids or hidden")
        given = array(ids, numpy.int32, "ids") if hidden is None else array(hidden, numpy.float32, "hidden")
        padded = given.ndim == (2 if hidden is None else 3)
        if not padded and given.ndim != (1 if hidden is None else 2):
            raise ValueError(f"expected {'[B, S] or [tokens]' if hidden is None else '[B, S, D] or [tokens, D]'}, "
                             f"found {list(given.shape)}")
        if hidden is not None and given.shape[-1] != self.info.input:
            raise ValueError(f"hidden: expected {self.info.input} columns, found {given.shape[-1]}")
        if lengths is None:
            if not padded:
                raise TypeError("lengths: packed texts need them")
            lengths = [given.shape[1]] * given.shape[0]
        lengths = array(lengths, numpy.int32, "lengths")
        self._check_lengths(lengths, given, padded)
        job = new(_abi.FtxEncode)
        job.count, job.lengths, job.stride = len(lengths), pointer(lengths, INT), given.shape[1] if padded else 0
        if hidden is None:
            job.ids = pointer(given, INT)
        else:
            job.input = pointer(given, FLOAT)
        if types is not None:
            types = array(types, numpy.int32, "types")
            if types.shape != given.shape:
                raise ValueError(f"types: expected the shape of ids, {list(given.shape)}, found {list(types.shape)}")
            job.types = pointer(types, INT)
        shape = given.shape[:2 if padded else 1] + (self.info.hidden,)
        result = numpy.zeros(shape, numpy.float32) if out is None else self._out(out, shape)
        job.hidden, job.hidden_rows = pointer(result, FLOAT), 0 if padded else shape[0]
        pooled = numpy.zeros((len(lengths), self.info.pooled), numpy.float32) if self.info.pooled else None
        if pooled is not None:
            job.pooled = pointer(pooled, FLOAT)
        self.run(job)
        return (result if out is None else out), pooled

    @staticmethod
    def _check_lengths(lengths, given, padded):
        if lengths.ndim != 1 or (lengths < 0).any():
            raise ValueError("lengths: expected one number of at least 0 for each text")
        if padded and (len(lengths) != given.shape[0] or (lengths > given.shape[1]).any()):
            raise ValueError(f"lengths: expected {given.shape[0]} of at most {given.shape[1]}")
        if not padded and int(lengths.sum()) != given.shape[0]:
            raise ValueError(f"lengths: expected a sum of {given.shape[0]} tokens, found {int(lengths.sum())}")

    @staticmethod
    def _out(out, shape):
        own = array(out, numpy.float32, "out")
        same = getattr(out, "data_ptr", lambda: getattr(getattr(out, "ctypes", None), "data", None))()
        if own.shape != shape or own.ctypes.data != same:
            raise ValueError(f"out: expected a C-ordered float32 array of {list(shape)}")
        return own


def _unit(vectors):
    norms = numpy.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / numpy.where(norms == 0, 1, norms)
