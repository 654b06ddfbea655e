"""torch.py - Encoder: an artifact where a transformers encoder stood in inference."""
from __future__ import annotations

from typing import Any, Optional, Union

import numpy
import torch

from .model import Model


class Output(tuple):
    """(hidden states [B, S, hidden], pooled [B, pooled] or None) in float32: by position, by name, or by key, as
    transformers' outputs."""

    __slots__ = ()
    FIELDS = ("last_hidden_state", "pooler_output")

    def __new__(cls, hidden: torch.Tensor, pooled: Optional[torch.Tensor]) -> Output:
        return super().__new__(cls, (hidden, pooled))

    @property
    def last_hidden_state(self) -> torch.Tensor:
        return self[0]

    @property
    def pooler_output(self) -> Optional[torch.Tensor]:
        return self[1]

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        if at not in self.FIELDS:
            raise KeyError(at)
        return getattr(self, at)

    def keys(self) -> tuple[str, ...]:
        return self.FIELDS

    def to_tuple(self) -> tuple[torch.Tensor, ...]:
        return tuple(t for t in self if t is not None)


class Encoder(torch.nn.Module):
    """Takes `input_ids` [B, S], `attention_mask` and `token_type_ids` as BertModel does, and gives an Output with
    `last_hidden_state` [B, S, hidden] and `pooler_output` [B, pooled] (None without one), in float32: on the CPU, or, if
    the model runs on the GPU of input_ids, there, without a copy over the host.

    A mask must be ones and then zeros in each row, as tokenizers that pad on the right make them. Other arguments of
    BertModel are taken where they ask for nothing (None, False); return_dict=False gives a plain tuple."""

    def __init__(self, path: Any, **options: Any) -> None:
        super().__init__()
        self.model = Model(path, **options)
        if self.model.info.kind != "encoder":
            raise TypeError(f"{path} is a {self.model.info.kind}, no encoder")

    @property
    def device(self) -> torch.device:
        """Where results are, if the ids are there, too."""
        ordinal = self.model.info.ordinal
        return torch.device("cpu") if ordinal < 0 else torch.device("cuda", ordinal)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @torch.no_grad()
    def forward(self, input_ids: torch.Tensor, attention_mask: Optional[torch.Tensor] = None,
                token_type_ids: Optional[torch.Tensor] = None, *, return_dict: Optional[bool] = None,
                **others: Any) -> Union[Output, tuple[torch.Tensor, ...]]:
        for name, value in others.items():
            if value is not None and value is not False:
                raise TypeError(f"{name}: a compiled encoder takes input_ids, attention_mask and token_type_ids")
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids: expected [B, S], found {list(input_ids.shape)}")
        for name, given in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
            if given is not None and given.shape != input_ids.shape:
                raise ValueError(f"{name}: expected the shape of input_ids, {list(input_ids.shape)}, "
                                 f"found {list(given.shape)}")
        ids = input_ids.cpu().numpy()
        lengths = None
        if attention_mask is not None:
            mask = attention_mask.cpu().numpy().astype(bool)
            lengths = mask.sum(1)
            if (mask != (numpy.arange(mask.shape[1]) < lengths[:, None])).any():
                raise ValueError("attention_mask: expected ones and then zeros in each row (padding on the right)")
        kinds = None if token_type_ids is None else token_type_ids.cpu().numpy()
        there = input_ids.is_cuda and input_ids.device.index == self.model.info.ordinal
        out = torch.empty((*input_ids.shape, self.model.info.hidden), device=input_ids.device) if there else None
        hidden, pooled = self.model.forward(ids=ids, lengths=lengths, types=kinds, out=out)
        if not there:
            hidden, pooled = torch.from_numpy(hidden), None if pooled is None else torch.from_numpy(pooled)
        output = Output(hidden, pooled)
        return output.to_tuple() if return_dict is False else output


FtxEncoder = Encoder
