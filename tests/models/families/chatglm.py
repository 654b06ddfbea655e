"""chatglm.py - ChatGLM-6B, ChatGLM2 and ChatGLM3 in torch, for make.py: transformers has no class for them.

The published checkpoints bring their code with them (modeling_chatglm.py). This is what it computes, written anew from its
definition: RMSNorm before each block, one product for queries and a few heads of keys and values, rotary positions of
the first half of each head in neighbouring pairs, SwiGLU with the gate in the first half of one product.

ChatGLM-6B (Du et al. 2022, GLM: General Language Model Pretraining with Autoregressive Blank Infilling): sums of a multiple of
the normed input and the block, as DeepNorm has them, layer norms, one product in which each head has its query, key and
value. The tokens before <sop> see each other. Half of a head turns by the position, which stays at that of [gMASK] from
<sop> on, the other half by the position in the answer, which is 0 before <sop> and 1 at it."""
import shutil
import torch

CONFIG = dict(
    architectures=["ChatGLMModel"], model_type="chatglm", hidden_size=48, num_layers=2, num_attention_heads=4,
    kv_channels=16, ffn_hidden_size=40, padded_vocab_size=101, seq_length=72, multi_query_attention=True,
    multi_query_group_num=2, add_qkv_bias=True, add_bias_linear=False, rmsnorm=True, post_layer_norm=True,
    original_rope=True, layernorm_epsilon=1e-5, apply_query_key_layer_scaling=True,
    apply_residual_connection_post_layernorm=False, attention_softmax_in_fp32=True, bias_dropout_fusion=True,
    fp32_residual_connection=False, hidden_dropout=0.0, attention_dropout=0.0, use_cache=True, torch_dtype="float32",
    eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
IDLE = ["apply_query_key_layer_scaling", "bias_dropout_fusion", "attention_softmax_in_fp32"]


def shapes(c):
    """Names and shapes of the tensors."""
    heads, size, width = c["num_attention_heads"], c["kv_channels"], c["hidden_size"]
    groups = c["multi_query_group_num"] if c["multi_query_attention"] else heads
    made = {"transformer.embedding.word_embeddings.weight": [c["padded_vocab_size"], width],
            "transformer.encoder.final_layernorm.weight": [width]}
    if not c["tie_word_embeddings"]:
        made["transformer.output_layer.weight"] = [c["padded_vocab_size"], width]
    for i in range(c["num_layers"]):
        name = f"transformer.encoder.layers.{i}."
        rows = (heads + 2 * groups) * size
        made.update({name + "input_layernorm.weight": [width], name + "post_attention_layernorm.weight": [width],
                     name + "self_attention.query_key_value.weight": [rows, width],
                     name + "self_attention.dense.weight": [width, heads * size],
                     name + "mlp.dense_h_to_4h.weight": [2 * c["ffn_hidden_size"], width],
                     name + "mlp.dense_4h_to_h.weight": [width, c["ffn_hidden_size"]]})
        if c["add_qkv_bias"]:
            made[name + "self_attention.query_key_value.bias"] = [rows]
    return made


def norm(c, x, gain):
    return gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["layernorm_epsilon"])


def rotate(c, x):
    """x [T, heads, E]"""
    half = c["kv_channels"] // 2
    freqs = (10000.0 * c.get("rope_ratio", 1)) ** -(torch.arange(0, half, 2) / half)
    angle = torch.arange(len(x))[:, None] * freqs
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., 0:half:2], x[..., 1:half:2]
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([turned, x[..., half:]], -1)


def logits(c, w, ids):
    """Logits of every token of ids [1, T], as a model of transformers gives them."""
    heads, size = c["num_attention_heads"], c["kv_channels"]
    groups = c["multi_query_group_num"] if c["multi_query_attention"] else heads
    embedding = w["transformer.embedding.word_embeddings.weight"]
    h, n = embedding[ids[0]], ids.shape[1]
    mask = torch.full((n, n), float("-inf")).triu(1)
    for i in range(c["num_layers"]):
        at = lambda name: w.get(f"transformer.encoder.layers.{i}.{name}")
        x = norm(c, h, at("input_layernorm.weight"))
        qkv = torch.nn.functional.linear(x, at("self_attention.query_key_value.weight"),
                                         at("self_attention.query_key_value.bias"))
        q, k, v = qkv.split([heads * size, groups * size, groups * size], -1)
        q, k = rotate(c, q.view(n, heads, size)), rotate(c, k.view(n, groups, size))
        k, v = (t.reshape(n, groups, size).repeat_interleave(heads // groups, 1) for t in (k, v))
        scores = torch.einsum("ihe,jhe->hij", q, k) / size ** 0.5 + mask
        y = torch.einsum("hij,jhe->ihe", scores.softmax(-1), v).reshape(n, heads * size)
        h = h + y @ at("self_attention.dense.weight").T
        gate, up = (norm(c, h, at("post_attention_layernorm.weight")) @ at("mlp.dense_h_to_4h.weight").T).chunk(2, -1)
        h = h + (torch.nn.functional.silu(gate) * up) @ at("mlp.dense_4h_to_h.weight").T
    h = norm(c, h, w["transformer.encoder.final_layernorm.weight"])
    return h @ w.get("transformer.output_layer.weight", embedding).T


# --- ChatGLM-6B ---

FIRST = dict(
    architectures=["ChatGLMModel"], model_type="chatglm", hidden_size=96, num_layers=2, num_attention_heads=3,
    inner_hidden_size=72, vocab_size=101, max_sequence_length=72, layernorm_epsilon=1e-3, position_encoding_2d=True,
    bos_token_id=98, eos_token_id=99, mask_token_id=96, gmask_token_id=97, pad_token_id=3, use_cache=True,
    torch_dtype="float32", tie_word_embeddings=False)
FIRST_IDLE = ["mask_token_id", "gmask_token_id"]
FIRST_PROMPTS = [[97, 98], [3, 61, 24, 90, 11, 45, 8, 77, 30, 2, 52, 97, 98]]


def first_shapes(c):
    width, inner, vocab = c["hidden_size"], c["inner_hidden_size"], c["vocab_size"]
    made = {"transformer.word_embeddings.weight": [vocab, width]}
    if not c["tie_word_embeddings"]:
        made["lm_head.weight"] = [vocab, width]
    norms = ["transformer.final_layernorm"]
    for i in range(c["num_layers"]):
        name = f"transformer.layers.{i}."
        norms += [name + "input_layernorm", name + "post_attention_layernorm"]
        for part, rows, columns in [("attention.query_key_value", 3 * width, width), ("attention.dense", width, width),
                                    ("mlp.dense_h_to_4h", inner, width), ("mlp.dense_4h_to_h", width, inner)]:
            made.update({f"{name}{part}.weight": [rows, columns], f"{name}{part}.bias": [rows]})
    for name in norms:
        made.update({name + ".weight": [width], name + ".bias": [width]})
    return made


def half_turned(x, positions):
    """x [T, heads, E]: pairs i and i + E/2 turned by positions [T]"""
    size = x.shape[-1]
    angle = positions[:, None] * 10000.0 ** -(torch.arange(0, size, 2) / size)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def first_logits(c, w, ids):
    heads, n, width = c["num_attention_heads"], ids.shape[1], c["hidden_size"]
    size, by = width // heads, (2 * c["num_layers"]) ** 0.5
    linear = lambda x, name: torch.nn.functional.linear(x, w[name + ".weight"], w[name + ".bias"])
    normed = lambda x, name: torch.nn.functional.layer_norm(x, [width], w[name + ".weight"], w[name + ".bias"],
                                                            c["layernorm_epsilon"])
    prefix = ids[0].tolist().index(c["bos_token_id"])
    position, in_answer = torch.arange(n), torch.zeros(n, dtype=torch.long)
    position[prefix:] = ids[0].tolist().index(c["gmask_token_id"])
    in_answer[prefix:] = torch.arange(n - prefix) + 1
    sees = torch.ones(n, n).tril().bool()
    sees[:, :prefix] = True
    h = w["transformer.word_embeddings.weight"][ids[0]]
    for i in range(c["num_layers"]):
        name = f"transformer.layers.{i}."
        x = normed(h, name + "input_layernorm")
        q, k, v = linear(x, name + "attention.query_key_value").view(n, heads, 3 * size).chunk(3, -1)
        q, k = (torch.cat([half_turned(a, position), half_turned(b, in_answer)], -1)
                for a, b in (t.chunk(2, -1) for t in (q, k)))
        scores = torch.einsum("ihe,jhe->hij", q, k) / size ** 0.5
        y = torch.einsum("hij,jhe->ihe", scores.masked_fill(~sees, float("-inf")).softmax(-1), v)
        h = by * x + linear(y.reshape(n, width), name + "attention.dense")
        x = normed(h, name + "post_attention_layernorm")
        inner = torch.nn.functional.gelu(linear(x, name + "mlp.dense_h_to_4h"), approximate="tanh")
        h = by * x + linear(inner, name + "mlp.dense_4h_to_h")
    h = normed(h, "transformer.final_layernorm")
    return h @ w.get("lm_head.weight", w["transformer.word_embeddings.weight"]).T


class Model:
    def __init__(self, compute, config, tensors):
        self.compute, self.config, self.tensors = compute, config, tensors

    def __call__(self, ids, use_cache=False):
        return type("Output", (), {"logits": self.compute(self.config, self.tensors, ids)[None]})


def case(room, settings, idle, prompts, tensor, answer):
    shutil.rmtree(room)
    first = "position_encoding_2d" in settings
    names = (first_shapes if first else shapes)(settings)
    compute = first_logits if first else logits
    tensors = {name: tensor(name, torch.empty(shape)) for name, shape in names.items()}
    with torch.no_grad():
        prompts = [answer(Model(compute, settings, tensors), p) for p in (FIRST_PROMPTS if first else prompts)]
    return {"made_by": f"chatglm.py, torch {torch.__version__}", "config": settings, "idle": list(idle),
            "tensors": {name: list(t.shape) for name, t in sorted(tensors.items())}, "prompts": prompts}
