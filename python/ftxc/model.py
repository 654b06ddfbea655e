"""model.py - Model: a compiled model, opened."""
from __future__ import annotations

import asyncio
import collections
import ctypes
import dataclasses
import os
import threading
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy

from . import _abi
from .chat import is_messages, render
from .encoder import Encoding
from .library import call, chars, ints, lib, new, text
from .settings import Request
from .worker import Worker

Ids = Sequence[int]
Message = Dict[str, Any]  # {"role": "user", "content": "Hello"}
Prompt = Union[str, Ids, Sequence[Message]]


@dataclasses.dataclass
class Text:
    """What generate() returns for one sequence."""

    text: str  # UTF-8, nothing of an end token
    ids: List[int]  # the new tokens; an end token is the last one
    finish: str  # "end", "length", "stop", "cancel", "deadline", or "nan": its logits were not finite numbers
    prompt_tokens: int  # tokens of the prompt or source that the model has read
    seed: int  # of the request: with the same settings it gives the same text again
    sample: int = 0  # which sample of the request
    logprobs: Optional[List[float]] = None  # of each id under the raw logits, with logprobs=True
    logits: Optional[numpy.ndarray] = None  # numpy float32 [vocab]: of the prompt's last position, with logits=True
    score: Optional[float] = None  # beam search: what the search ranks by
    cached_tokens: int = 0  # tokens of the prompt that Model(prefix_cache=True) did not have to compute

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass
class Piece:
    """What stream() yields: one new token, the end of a sequence, or both."""

    text: str  # whole characters; may be empty
    id: int  # -1: none
    finish: Optional[str]  # None while the sequence runs
    sample: int
    logprob: Optional[float]  # of id, with logprobs=True

    def __str__(self) -> str:
        return self.text


class _Pieces:
    """Events between the engine's thread and a reader. It does not know the Stream, which may be collected."""

    def __init__(self):
        self.events, self.ready = collections.deque(), threading.Condition()
        self.loop = self.awaited = None

    def __call__(self, item):
        with self.ready:
            self.events.append(item)
            self.ready.notify_all()
            if self.loop:
                try:
                    self.loop.call_soon_threadsafe(self.awaited.set)
                except RuntimeError:  # the loop is closed: nobody reads
                    self.loop = None


class Stream:
    """The pieces of one request, as an iterator or as an async iterator. Closing it cancels the request.

    The engine does not wait for the reader. `ids`, `prompt_tokens` and `seed` can be read at any time."""

    seed: int
    prompt_tokens: int
    ids: List[int]

    def __init__(self, worker: Worker, request: Request) -> None:
        self._pieces, self._done = _Pieces(), False
        self._logprobs = request.c.logprobs
        self.seed, self.prompt_tokens, self.ids = request.c.seed, 0, []
        self._left = request.texts if request.c.beams <= 1 else 1
        self._worker = worker
        self._job = worker.submit(request, self._pieces)

    def _take(self) -> Optional[Piece]:
        """The next piece; None: there is none yet. StopIteration at the end."""
        if self._done:
            raise StopIteration
        if not self._pieces.events:
            return None
        item = self._pieces.events.popleft()
        if isinstance(item, Exception):
            self._done = True
            raise item
        self.prompt_tokens = item.prompt_tokens
        if item.token >= 0:
            self.ids.append(item.token)
        if item.hypotheses:
            self.ids = item.hypotheses[0]["ids"]
        if item.finish:
            self._left -= 1
            self._done = not self._left
        return Piece(item.text, item.token, item.finish, item.sample, item.logprob if self._logprobs else None)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        with self._pieces.ready:
            while (piece := self._take()) is None:
                self._pieces.ready.wait()
        return piece

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece:
        pieces, loop = self._pieces, asyncio.get_running_loop()
        while True:
            with pieces.ready:
                if pieces.loop is not loop:
                    pieces.loop, pieces.awaited = loop, asyncio.Event()
                pieces.awaited.clear()
                try:
                    if (piece := self._take()) is not None:
                        return piece
                except StopIteration:
                    raise StopAsyncIteration from None
            await pieces.awaited.wait()

    def close(self) -> None:
        """Cancels what still runs; iteration ends."""
        if not self._worker.is_here():  # in a forked child another thread's lock is never given back
            self._done = True
        if not self._done:
            with self._pieces.ready:
                self._done = True
                self._pieces.ready.notify_all()
            self._worker.cancel(self._job)

    async def aclose(self) -> None:
        self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def __del__(self):
        if not getattr(self, "_done", True) and hasattr(self, "_job"):
            self.close()


class _Collector:
    """All sequences of one request."""

    def __init__(self, request):
        self.request, self.error, self.done = request, None, threading.Event()
        self.texts, self.left = {}, request.texts if request.c.beams <= 1 else 1

    def __call__(self, item):
        if isinstance(item, Exception):
            self.error = item
            self.done.set()
            return
        if item.hypotheses:
            for n, h in enumerate(item.hypotheses):
                self.texts[n] = Text(h["text"], h["ids"], h["finish"], item.prompt_tokens, self.request.c.seed,
                                     logprobs=h["logprobs"], score=h["score"], cached_tokens=item.cached_tokens)
        else:
            self._add(item)
        if item.logits is not None:
            self.texts[min(self.texts)].logits = numpy.array(item.logits, numpy.float32)
        if item.finish:
            self.left -= 1
            if not self.left:
                self.done.set()

    def _add(self, item):
        t = self.texts.get(item.sample)
        if t is None:
            logprobs = [] if self.request.c.logprobs else None
            t = self.texts[item.sample] = Text("", [], None, item.prompt_tokens, self.request.c.seed, item.sample, logprobs)
        t.text += item.text
        t.cached_tokens = item.cached_tokens
        if item.token >= 0:
            t.ids.append(item.token)
            if t.logprobs is not None:
                t.logprobs.append(item.logprob)
        t.finish = item.finish

    def result(self):
        if self.error:
            raise self.error
        texts = [self.texts[n] for n in sorted(self.texts)]
        return texts[0] if self.request.texts == 1 else texts


class Model:
    """An artifact (`ftxc compile`, ftxc.compile) on a device, with one engine.

        model = ftxc.Model("fable.ftx")
        print(model.generate("Once upon a time", max_new=50))

    Any thread may use it, several at once: their requests run together. It is closed by close(), by `with`, or when
    it is collected.

    device   "auto", "cpu", "cuda" or "cuda:N"
    threads  of the CPU; 0: as many as the process may use
    random_weights  draw the weights from this seed (artifacts without weights; benchmarks)
    kv_bytes  memory for the KV cache; 0: what is free, less a reserve. info.kv_tokens says how many tokens fit
    prefix_cache  keep keys and values of texts that have ended, for prompts that begin alike (FtxOptions.prefix_cache)
    overcommit  take KV memory as texts grow, so that more requests run at once (FtxOptions.overcommit)
    swap_bytes  memory of the host for KV pages of preempted requests (FtxOptions.swap_bytes)
    gpu_layers  the layers whose weights a GPU holds; those of the others stay in host memory, and every step copies them.
        None: all, or as many as fit in gpu_memory
    gpu_memory  bytes for weights on the GPU; 0: no limit. info.host_layers and info.copy_us say what follows of it
    """

    info: Info

    def __init__(self, path: Union[str, os.PathLike[str]], *, device: str = "auto", threads: int = 0,
                 random_weights: int = 0, kv_bytes: int = 0, prefix_cache: bool = False,
                 overcommit: bool = False, swap_bytes: int = 0, gpu_layers: Optional[int] = None,
                 gpu_memory: int = 0) -> None:
        options = new(_abi.FtxOptions)
        kind, _, ordinal = str(device).partition(":")
        kinds = {"auto": _abi.DeviceKind.FTX_DEVICE_AUTO, "cpu": _abi.DeviceKind.FTX_DEVICE_CPU,
                 "cuda": _abi.DeviceKind.FTX_DEVICE_CUDA}
        if kind not in kinds or (ordinal and (kind != "cuda" or not ordinal.isdigit())):
            raise ValueError(f"device: expected auto, cpu, cuda or cuda:N, found {device!r}")
        options.device, options.ordinal = kinds[kind], int(ordinal or 0)
        options.prefix_cache, options.overcommit = int(prefix_cache), int(overcommit)
        for name, value, bits in (("threads", threads, 31), ("random_weights", random_weights, 64), ("kv_bytes", kv_bytes, 64),
                                  ("swap_bytes", swap_bytes, 64), ("gpu_memory", gpu_memory, 64)):
            if not 0 <= value < 1 << bits:  # ctypes would take the lower bits of any number
                raise ValueError(f"{name}: expected 0 to 2**{bits} - 1, found {value}")
            setattr(options, name, value)
        if gpu_layers is not None and not 0 <= gpu_layers < 1 << 31:
            raise ValueError(f"gpu_layers: expected a number of layers, found {gpu_layers}")
        options.gpu_layers = 0 if gpu_layers is None else gpu_layers or -1  # FTX_NO_GPU_LAYERS
        self._model = ctypes.c_void_p()
        call("ftx_model_open", os.fsencode(path), ctypes.byref(options), ctypes.byref(self._model))
        try:
            self._worker = Worker(self._model, Info(self._model), options)
            self.info = Info(self._model)  # kv_tokens is what the open engine has
        except BaseException:
            lib.ftx_model_close(self._model)
            raise
        self._close = weakref.finalize(self, _close, self._worker, self._model)

    def close(self) -> None:
        """Ends what runs and frees all memory. Later calls raise RuntimeError."""
        self._close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ftxc.Model {self.info.name} on {self.info.device}>"

    # --- decoders and translators ---------------------------------------------------------------------------

    def generate(self, prompt: Union[Prompt, Sequence[Prompt]], **settings: Any) -> Any:
        """Continues a prompt, or translates a source; returns a Text.

        prompt    str, token ids, messages ([{"role": "user", "content": "Hello"}]: see apply_chat_template), or a list
                  of them: then a list is returned, and all run together
        settings  those of `ftxc help run` with _ for -: max_new, temperature, top_k, top_p, min_p, typical_p, seed,
                  samples, beams, n_best, stop, bad_words, logprobs ...; or by the names of transformers'
                  GenerationConfig: max_new_tokens, do_sample, num_beams ... What is not given is the model's own

        With samples or n_best above 1 each prompt gives a list of Text.
        """
        many = isinstance(prompt, (list, tuple)) and not (
            is_messages(prompt) or prompt and isinstance(prompt[0], (int, numpy.integer)))
        requests = [self._request(p, settings) for p in (prompt if many else [prompt])]
        collectors, jobs = [_Collector(r) for r in requests], []
        try:
            for c in collectors:
                jobs.append(self._worker.submit(c.request, c))
            for c in collectors:
                c.done.wait()
            results = [c.result() for c in collectors]
        except BaseException:  # Ctrl-C, too
            for job in jobs:
                self._worker.cancel(job)
            raise
        return results if many else results[0]

    def stream(self, prompt: Prompt, **settings: Any) -> Stream:
        """As generate() of one prompt, but returns a Stream at once: `for piece in model.stream(...)`, or `async for`.
        A beam search gives one piece, at its end."""
        if "n_best" in settings:
            raise TypeError("n_best: a stream gives the best text only; use generate")
        return Stream(self._worker, self._request(prompt, settings))

    def score(self, prompt: Union[str, Ids], *, stride: Optional[int] = None, literal: bool = False) -> numpy.ndarray:
        """Log-probabilities of a text (str or ids): numpy float32 [n - 1], that of token i + 1 at i.

        A text longer than the context is read in windows, each `stride` tokens (default: half the context) after the
        one before; each scores the tokens that no earlier one has scored, as `ftxc score` does."""
        ids = self.tokenize(prompt, literal=literal) if isinstance(prompt, str) else [int(i) for i in prompt]
        context = self.info.context
        stride = context // 2 if stride is None else stride
        if not 1 <= stride < context:
            raise ValueError(f"stride: expected 1 to {context - 1} (the context less 1), found {stride}")
        around = self.tokenize("") if self.info.has_tokenizer else []
        begin = around[0] if around and ids[:1] == around[:1] else None
        out = numpy.zeros(max(len(ids) - 1, 0), numpy.float32)
        start = done = 0
        while done < len(ids) or not start:
            end = min(len(ids), start + context)
            window = ids[start:end]
            if start and begin is not None:
                window[0] = begin
            values = numpy.zeros(max(len(window) - 1, 1), numpy.float32)
            pointer = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            self._worker.call(
                lambda engine: call("ftx_engine_score", engine, ints(window), len(window), pointer))
            first = done or 1
            out[first - 1:end - 1] = values[first - 1 - start:end - 1 - start]
            done, start = end, start + stride
        return out

    # --- encoders -------------------------------------------------------------------------------------------

    def encode(self, texts: Union[str, Sequence[str]], *, pooling: Optional[str] = None, normalize_embeddings: bool = False,
               to: str = "numpy", convert_to_numpy: bool = True, convert_to_tensor: bool = False,
               batch_size: Optional[int] = None, show_progress_bar: Optional[bool] = None,
               pairs: Optional[Union[str, Sequence[str]]] = None, truncate: str = "longest", max_tokens: int = 0,
               literal: bool = False) -> Any:
        """float32 vectors [count, width] of a list of texts; [width] of one str.

        pooling     None: the vector that the artifact was compiled to give; "mean", "first" (or "cls"), "last" and
                    "max" are taken over the hidden states; "tokens": the hidden states themselves, a list of
                    [tokens, hidden]
        normalize_embeddings  divide each vector by its length
        to          "numpy", "torch" or "list"; "cuda": torch tensors on the model's GPU, to which the vectors come without
                    a copy over the host
        pairs       a second sentence to each text
        truncate    of texts of more than max_tokens tokens (0: the context): "longest", "first", "second", or "none":
                    they are refused
        literal     the text of a special token is text, and does not become that token

        Of sentence-transformers' names convert_to_tensor=True is to="torch" ("cuda" if the model runs there), and
        convert_to_numpy=False without it to="torch", but a list. batch_size (the engine makes batches of what fits) and
        show_progress_bar=False change nothing."""
        if show_progress_bar:
            raise TypeError("show_progress_bar: there is none")
        if to != "numpy" and (convert_to_tensor or not convert_to_numpy):
            raise TypeError("to and convert_to_tensor or convert_to_numpy exclude each other")
        if convert_to_tensor or not convert_to_numpy:
            to = "torch" if self.info.ordinal < 0 else "cuda"
        vectors = Encoding(self).encode(texts, pooling, normalize_embeddings, to, pairs=pairs, truncate=truncate,
                                        max_tokens=max_tokens, literal=literal)
        return vectors if convert_to_tensor or convert_to_numpy or isinstance(texts, str) else list(vectors)

    def label_tokens(self, texts: Union[str, Sequence[str]], *, pairs: Optional[Union[str, Sequence[str]]] = None,
                     truncate: str = "longest", max_tokens: int = 0, literal: bool = False) -> List[Any]:
        """Of a classifier of tokens (named entities, answers to questions), for each text a list of its tokens in order: each
        a tuple of its text and a dict from the names of info.labels to their scores; the list alone of one str. The first
        token and the last one of an answer ("start", "end") have the numbers that the model gives. The other arguments are
        those of encode; encode(texts, pooling="tokens") gives the numbers as arrays [tokens, labels]."""
        return Encoding(self).label_tokens(texts, pairs=pairs, truncate=truncate, max_tokens=max_tokens, literal=literal)

    def forward(self, *, ids: Any = None, hidden: Any = None, lengths: Any = None, types: Any = None,
                out: Any = None) -> Tuple[Any, Any]:
        """The hidden states behind the last layer, float32, shaped as the input; and pooled vectors [B, pooled], or None.

        ids       token ids: int [B, S] with lengths [B] (or all S long), or packed [tokens] with lengths
        hidden    in their place, hidden states before the first layer: float [B, S, input] or [tokens, input]
        lengths   tokens of each text that count; what is behind them in a row is not read, and 0 in the result
        types     token types, shaped as ids
        out       a float32 array, C-ordered, to write to: [B, S, hidden] or [tokens, hidden]
        Arrays are read and written in place where they have the right type and order (numpy, torch on the CPU, DLPack).

        hidden and out may be C-ordered arrays on the model's GPU (torch tensors there, DLPack,
        __cuda_array_interface__); nothing of them passes through the host then. hidden has the model's type there
        (info.input_type; a torch tensor of another is converted there). Without out the result is a torch tensor."""
        return Encoding(self).forward(ids=ids, hidden=hidden, lengths=lengths, types=types, out=out)

    # --- tokens ---------------------------------------------------------------------------------------------

    def tokenize(self, string: str, *, special: bool = True, literal: bool = False) -> List[int]:
        """Text to ids. special: with the tokens that the tokenizer puts around a text. literal: the text of a special
        token is text, and does not become that token."""
        data = string.encode()
        flags = (_abi.Tokenize.FTX_TOKENIZE_SPECIAL if special else 0) | (
            _abi.Tokenize.FTX_TOKENIZE_LITERAL if literal else 0)
        room, n = len(data) + 16, ctypes.c_size_t()
        while True:
            ids = (ctypes.c_int32 * room)()
            with self._worker.using():
                call("ftx_tokenize", self._model, chars(data), len(data), flags, ids, room, ctypes.byref(n))
            if n.value <= room:
                return ids[:n.value]
            room = n.value

    def detokenize(self, ids: Ids, *, skip_special: bool = True) -> str:
        """Ids to text, all at once."""
        ids = [int(i) for i in ids]
        room, n = 8 * len(ids) + 64, ctypes.c_size_t()
        while True:
            out = ctypes.create_string_buffer(room)
            with self._worker.using():
                call("ftx_detokenize", self._model, ints(ids), len(ids), skip_special, out, room, ctypes.byref(n))
            if n.value <= room:
                return out.raw[:n.value].decode("utf-8", "replace")
            room = n.value

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Optional[Sequence[Dict[str, Any]]] = None,
                            template: Optional[str] = None, tokenize: bool = True, add_generation_prompt: bool = True,
                            **variables: Any) -> Union[List[int], str]:
        """The ids of a conversation's prompt by the model's chat template, as transformers' tokenizers give them.

        messages   a list of dicts with role and content (a str, or parts), tool_calls ...
        tools      a list of dicts that describe functions
        template   which of several templates; None: "tool_use" with tools if there is one, else "default"
        tokenize   False: the text
        variables  further variables of the template: enable_thinking=False"""
        with self._worker.using():
            return render(self._model, messages, tools=tools, template=template, tokenize=tokenize,
                          add_generation_prompt=add_generation_prompt, **variables)

    def _request(self, prompt: Any, settings: Dict[str, Any]) -> Request:
        with self._worker.using():
            if is_messages(prompt):
                prompt = render(self._model, prompt)
            return Request(self._model, prompt, settings)


def _close(worker: Worker, model: Any) -> None:
    if worker.close():
        lib.ftx_model_close(model)


class Info:
    """Facts of a model: the fields of FtxModelInfo by name; kind and scoring as words; labels as a list of names,
    end_ids as a list of ids."""

    def __init__(self, model: Any) -> None:
        c = new(_abi.FtxModelInfo)
        lib.ftx_model_describe(model, ctypes.byref(c))
        for name, kind in c._fields_[1:]:
            value = getattr(c, name)
            setattr(self, name, text(value) if kind is ctypes.POINTER(ctypes.c_char) else value)
        self.kind = _abi.ModelKind(c.kind).name[len("FTX_MODEL_"):].lower()
        self.scoring = _abi.Scoring(c.scoring).name[len("FTX_SCORING_"):].lower()
        self.labels: List[str] = [self._label(model, i) for i in range(c.labels)]
        self.end_ids: List[int] = c.end_ids[:c.end_ids_count]
        del self.end_ids_count

    def __getattr__(self, name: str) -> Any:  # for type checkers: fields are set by name above
        raise AttributeError(f"Info has no {name}")

    @staticmethod
    def _label(model: Any, index: int) -> str:
        n = ctypes.c_size_t()
        return text(lib.ftx_model_label(model, index, ctypes.byref(n)), n.value)

    def __repr__(self) -> str:
        return f"Info({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"
