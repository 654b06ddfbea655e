"""encoder.py - arrays in and out of encoders: texts to vectors, ids or hidden states to hidden states."""
import ctypes

import numpy

from . import _abi
from .device import GpuArray, is_on_gpu, torch_of
from .library import call, chars, lib, new
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
        try:
            values = numpy.from_dlpack(values)
        except (BufferError, RuntimeError, TypeError):  # bfloat16: numpy has no such type
            found = getattr(values, "dtype", type(values).__name__)
            raise TypeError(f"{name}: expected {kind.__name__}, found {found}") from None
    out = numpy.asarray(values)
    if out.dtype.kind not in ("f" if kind == numpy.float32 else "iu"):
        raise TypeError(f"{name}: expected {kind.__name__}, found {out.dtype}")
    return numpy.ascontiguousarray(out, kind)


def pointer(values, kind):
    return values.ctypes.data_as(kind)


def place(job, field, values):
    """Gives the job an array of the host (numpy) or of the GPU (GpuArray), which lives as long as the job."""
    if not isinstance(values, GpuArray):
        setattr(job, field, pointer(values, FLOAT))
        return
    setattr(job, field, ctypes.cast(ctypes.c_void_p(values.pointer), FLOAT))
    job.on_device = True
    job.arrays = (*getattr(job, "arrays", ()), values)
    streams = {v.stream for v in job.arrays}
    job.stream = streams.pop() if len(streams) == 1 else None  # several streams: after all work of the GPU


def converted(out, to):
    if to in ("numpy", "cuda"):
        return out
    if to == "torch":
        import torch

        return torch.from_numpy(out) if isinstance(out, numpy.ndarray) else [torch.from_numpy(o) for o in out]
    if to == "list":
        return out.tolist() if isinstance(out, numpy.ndarray) else [o.tolist() for o in out]
    raise ValueError(f"to: expected numpy, torch, cuda or list, found {to!r}")


def _scores(numbers, scoring):
    """Numbers [tokens, labels] as scores."""
    x = numbers.astype(float)
    if scoring == "softmax":
        x = numpy.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)
    return 1 / (1 + numpy.exp(-x)) if scoring == "sigmoid" else x


class Encoding:
    """The encoder of a Model."""

    def __init__(self, model):
        self.model, self.info, self.run = model, model.info, lambda job: model._worker.call(
            lambda engine: call("ftx_engine_encode", engine, ctypes.byref(job)))
        if self.info.kind != "encoder":
            raise TypeError(f"{self.info.name} is a {self.info.kind}: it has no vectors of texts (use generate)")

    def encode(self, texts, pooling=None, normalize=False, to="numpy", *, pairs=None, truncate="longest", max_tokens=0,
               literal=False):
        """See Model.encode."""
        if isinstance(texts, str):
            pairs = None if pairs is None else [pairs]
            out = self.encode([texts], pooling, normalize, "cuda" if to == "cuda" else "numpy", pairs=pairs,
                              truncate=truncate, max_tokens=max_tokens, literal=literal)
            return converted(out[0], to)
        texts = list(texts)
        job, pairs = self._job_of_texts(texts, pairs, truncate, max_tokens, literal)
        arrays = _Cuda(self.info.ordinal) if to == "cuda" else _Host
        if pooling is None:
            out = self._pooled(job, texts, pairs, arrays)
        else:
            out = self._from_hidden(job, texts, pairs, pooling, arrays)
        if normalize:
            out = [arrays.unit(o) for o in out] if isinstance(out, list) else arrays.unit(out)
        return converted(out, to)

    @staticmethod
    def _job_of_texts(texts, pairs, truncate, max_tokens, literal):
        """A job without its texts yet, and the pairs as a list."""
        job = new(_abi.FtxEncode)
        job.truncate = word("truncate", truncate, _abi.Truncate, "FTX_TRUNCATE_")
        job.max_tokens, job.literal = max_tokens, literal
        if pairs is not None and len(pairs := list(pairs)) != len(texts):
            raise ValueError(f"pairs: expected {len(texts)}, as many as texts, found {len(pairs)}")
        return job, pairs

    def _pooled(self, job, texts, pairs, arrays):
        if not self.info.pooled:
            raise TypeError(f"{self.info.name} was compiled without a vector of a text: give pooling=, or compile it "
                            "with pooling=\"mean\"")
        out = arrays.zeros((len(texts), self.info.pooled))
        if texts:
            place(job, "pooled", arrays.seen(out, "pooled"))
            self._run_texts(job, texts, pairs)
        return out

    def _from_hidden(self, job, texts, pairs, pooling, arrays):
        pools = {"mean": lambda h: h.mean(0), "first": lambda h: h[0], "cls": lambda h: h[0], "last": lambda h: h[-1],
                 "max": arrays.most, "tokens": arrays.copy}
        if pooling not in pools:
            raise ValueError(f"pooling: expected {', '.join(pools)} or None, found {pooling!r}")
        out = [pools[pooling](h) for h, _ in self._states(job, texts, pairs, arrays)]
        if pooling == "tokens":
            return out
        return arrays.stack(out) if out else arrays.zeros((0, self.info.hidden))

    def _states(self, job, texts, pairs, arrays):
        """The hidden states and the token ids of each text; some texts are run at a time."""
        start = 0
        while start < len(texts):
            end, rows = start, 0
            while end < len(texts) and (end == start or rows < ROWS):
                rows += self._most_tokens(texts[end]) + (self._most_tokens(pairs[end]) if pairs else 0)
                end += 1
            hidden = arrays.zeros((rows, self.info.hidden))
            tokens, ids = numpy.zeros(end - start, numpy.int32), numpy.zeros(rows, numpy.int32)
            place(job, "hidden", arrays.seen(hidden, "hidden"))
            job.hidden_rows, job.tokens, job.text_ids = rows, pointer(tokens, INT), pointer(ids, INT)
            self._run_texts(job, texts[start:end], pairs[start:end] if pairs else None)
            for n, e in zip(tokens.tolist(), tokens.cumsum().tolist()):
                yield hidden[e - n:e], ids[e - n:e]
            start = end

    def label_tokens(self, texts, *, pairs=None, truncate="longest", max_tokens=0, literal=False):
        """See Model.label_tokens."""
        info = self.info
        if not info.labels or info.pooled:
            raise TypeError(f"{info.name} has no labels of tokens")
        if isinstance(texts, str):
            return self.label_tokens([texts], pairs=None if pairs is None else [pairs], truncate=truncate,
                                     max_tokens=max_tokens, literal=literal)[0]
        texts = list(texts)
        job, pairs = self._job_of_texts(texts, pairs, truncate, max_tokens, literal)
        out = []
        for numbers, ids in self._states(job, texts, pairs, _Host):
            rows = _scores(numbers, info.scoring).tolist()
            out.append([(self._token_text(i), dict(zip(info.labels, row))) for i, row in zip(ids.tolist(), rows)])
        return out

    def _token_text(self, token):
        n, special = ctypes.c_size_t(), ctypes.c_bool()
        data = lib.ftx_token_bytes(self.model._model, token, ctypes.byref(n), ctypes.byref(special))
        return ctypes.string_at(data, n.value).decode(errors="replace")

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
        """See Model.forward."""
        if (ids is None) == (hidden is None):
            raise TypeError("give either ids or hidden")
        if hidden is not None and is_on_gpu(hidden):
            return self._forward_on_gpu(hidden, lengths, types, out)
        given = array(ids, numpy.int32, "ids") if hidden is None else array(hidden, numpy.float32, "hidden")
        if out is not None and is_on_gpu(out):
            if hidden is not None:
                raise TypeError("out: hidden is in memory of the host, so out must be, too")
            job, kept, shape = self._job(given, True, lengths, types)
            return self._run_on_gpu(job, shape, out, out)
        job, kept, shape = self._job(given, hidden is None, lengths, types)
        if hidden is not None:
            job.input = pointer(given, FLOAT)
        result = numpy.zeros(shape, numpy.float32) if out is None else self._out(out, shape)
        job.hidden = pointer(result, FLOAT)
        pooled = numpy.zeros((job.count, self.info.pooled), numpy.float32) if self.info.pooled else None
        if pooled is not None:
            job.pooled = pointer(pooled, FLOAT)
        self.run(job)
        return (result if out is None else out), pooled

    def _forward_on_gpu(self, hidden, lengths, types, out):
        wanted = ("float32", "float16", "bfloat16")[self.info.input_type]
        if hasattr(hidden, "new_empty"):  # torch
            import torch

            hidden = hidden.to(getattr(torch, wanted))
        given = GpuArray(hidden, "hidden")
        if given.type != wanted:
            raise TypeError(f"hidden: expected {wanted} (info.input_type), found {given.type}")
        job, kept, shape = self._job(given, False, lengths, types)
        place(job, "input", given)
        return self._run_on_gpu(job, shape, out, hidden)

    def _run_on_gpu(self, job, shape, out, like):
        """Runs a job whose results come to the GPU of `like`."""
        if not hasattr(like, "new_empty") and (out is None or self.info.pooled):
            raise TypeError("expected torch tensors: of others neither the result nor pooled vectors can be made")
        results = [out, None]
        if hasattr(like, "new_empty"):
            import torch

            results = [like.new_empty(shape, dtype=torch.float32) if out is None else out,
                       like.new_empty((job.count, self.info.pooled), dtype=torch.float32) if self.info.pooled else None]
        for field, result in zip(("hidden", "pooled"), results):
            if result is not None:
                seen = GpuArray(result, "out")
                if seen.type != "float32" or field == "hidden" and seen.shape != shape:
                    raise ValueError(f"out: expected a C-ordered float32 array of {list(shape)}")
                place(job, field, seen)
        self.run(job)
        return tuple(results)

    def _job(self, given, are_ids, lengths, types):
        """A job for ids or hidden states; what must live as long; the shape of its hidden states."""
        ndim = len(given.shape)
        padded = ndim == (2 if are_ids else 3)
        if not padded and ndim != (1 if are_ids else 2):
            raise ValueError(f"expected {'[B, S] or [tokens]' if are_ids else '[B, S, D] or [tokens, D]'}, "
                             f"found {list(given.shape)}")
        if not are_ids and given.shape[-1] != self.info.input:
            raise ValueError(f"hidden: expected {self.info.input} columns, found {given.shape[-1]}")
        if lengths is None:
            if not padded:
                raise TypeError("lengths: packed texts need them")
            lengths = [given.shape[1]] * given.shape[0]
        lengths = array(lengths, numpy.int32, "lengths")
        self._check_lengths(lengths, given, padded)
        job = new(_abi.FtxEncode)
        job.count, job.lengths, job.stride = len(lengths), pointer(lengths, INT), given.shape[1] if padded else 0
        if are_ids:
            job.ids = pointer(given, INT)
        if types is not None:
            types = array(types, numpy.int32, "types")
            if types.shape != given.shape:
                raise ValueError(f"types: expected the shape of ids, {list(given.shape)}, found {list(types.shape)}")
            job.types = pointer(types, INT)
        job.hidden_rows = 0 if padded else given.shape[0]
        return job, (given, lengths, types), given.shape[:2 if padded else 1] + (self.info.hidden,)

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


class _Host:
    """Vectors in numpy's arrays."""

    stack, copy = numpy.stack, numpy.array

    @staticmethod
    def zeros(shape):
        return numpy.zeros(shape, numpy.float32)

    @staticmethod
    def seen(values, name):
        return values

    @staticmethod
    def most(hidden):
        return hidden.max(0)

    @staticmethod
    def unit(vectors):
        norms = numpy.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / numpy.where(norms == 0, 1, norms)


class _Cuda:
    """Vectors in torch tensors on a GPU."""

    seen = GpuArray

    def __init__(self, ordinal):
        self.torch, self.device = torch_of(ordinal)
        self.stack = self.torch.stack

    def zeros(self, shape):
        return self.torch.zeros(shape, dtype=self.torch.float32, device=self.device)

    def copy(self, hidden):
        return hidden.clone()

    def most(self, hidden):
        return hidden.amax(0)

    def unit(self, vectors):
        norms = self.torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        return vectors / norms.where(norms != 0, self.torch.ones_like(norms))
