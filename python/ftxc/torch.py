"""torch.py - Encoder: an artifact where a transformers encoder stood in inference."""
import types

import numpy
import torch

from .model import Model


class Encoder(torch.nn.Module):
    """Takes `input_ids` [B, S], `attention_mask` and `token_type_ids` as BertModel does, and gives an object with
    `last_hidden_state` [B, S, hidden] and `pooler_output` [B, pooled] (None without one), in float32: on the CPU, or, if
    the model runs on the GPU of input_ids, there, without a copy over the host.

    A mask must be ones and then zeros in each row, as tokenizers that pad on the right make them."""

    def __init__(self, path, **options):
        super().__init__()
        self.model = Model(path, **options)
        if self.model.info.kind != "encoder":
            raise TypeError(f"{path} is a {self.model.info.kind}, no encoder")

    @torch.no_grad()
    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
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
        return types.SimpleNamespace(last_hidden_state=hidden, pooler_output=pooled)
