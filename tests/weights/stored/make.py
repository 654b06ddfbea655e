#!/usr/bin/env python3
"""make.py - small checkpoints in each format of quantised weights, and the numbers that they stand for.

    python3 -m venv /tmp/families && /tmp/families/bin/pip install torch transformers
    /tmp/families/bin/python tests/weights/stored/make.py     # from the top folder

Codes, scales and zeros are random. They are packed here by the words of the formats' own definitions (AutoGPTQ's and
AutoAWQ's QuantLinear, compressed-tensors' pack_to_int32, the FP8 linears of transformers, gpt-oss's convert_moe_packed_tensors),
and multiplied out by numpy in fp32. NAME/model.safetensors and config.json are what ftxc reads; want.bin has the fp32 numbers
of the matrices a and b, one after another, 32 rows of 128 each (gptq-256: 8 of 512).

../../models/stored/NAME is a whole model (Llama, one layer) of which the linear layers are quantised: golden.json has the
greedy tokens that transformers finds with the same matrices multiplied out to fp32."""
import json, pathlib, shutil, sys
import numpy, torch
from safetensors.torch import save_file

HERE = pathlib.Path("tests/weights/stored")
MODELS = pathlib.Path("tests/models/stored")
random = numpy.random.default_rng(17)


def words(codes, bits, axis, order=None):
    """Codes in words of 32 bits along an axis; order: the code at each place of a word."""
    codes = numpy.moveaxis(codes.astype(numpy.uint64), axis, -1)
    per = 32 // bits
    codes = codes.reshape(*codes.shape[:-1], -1, per)
    if order:
        codes = codes[..., order]
    packed = sum(codes[..., i] << numpy.uint64(bits * i) for i in range(per)).astype(numpy.uint32)
    return torch.from_numpy(numpy.moveaxis(packed, -1, axis).copy().view(numpy.int32))


def scales_of(shape, kind, largest=8):
    s = torch.from_numpy((random.uniform(0.02, 0.2, shape) / largest).astype(numpy.float32)).to(kind)
    return s, s.to(torch.float32).numpy()


def multiplied(codes, zeros, scales, group):
    """[N,K] from codes [N,K], zeros and scales [N,G]."""
    each = lambda x: numpy.repeat(x, group, axis=1)
    return each(scales) * (codes.astype(numpy.float32) - each(zeros).astype(numpy.float32))


def drawn(n, k, bits, group, symmetric, kind):
    codes = random.integers(0, 2 ** bits, (n, k))
    zeros = numpy.full((n, k // group), 2 ** (bits - 1)) if symmetric else random.integers(0, 2 ** bits, (n, k // group))
    stored, scales = scales_of((n, k // group), kind, 2 ** (bits - 1))
    return codes, zeros, stored, multiplied(codes, zeros, scales, group)


def gptq(name, n, k, bits=4, group=32, symmetric=False, kind=torch.float16, v2=False, order=True):
    each = group if group > 0 else k
    codes, zeros, scales, want = drawn(n, k, bits, each, symmetric, kind)
    kept = zeros if v2 else (zeros - 1) % 2 ** bits
    t = {name + ".qweight": words(codes.T, bits, 0), name + ".qzeros": words(kept.T, bits, 1),
         name + ".scales": scales.T.contiguous()}
    if order:
        t[name + ".g_idx"] = torch.arange(k, dtype=torch.int32) // each
    return t, want


def awq(name, n, k, group=32):
    codes, zeros, scales, want = drawn(n, k, 4, group, False, torch.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {name + ".qweight": words(codes.T, 4, 1, order), name + ".qzeros": words(zeros.T, 4, 1, order),
            name + ".scales": scales.T.contiguous()}, want


def packed(name, n, k, bits=4, group=32, symmetric=True, kind=torch.bfloat16):
    codes, zeros, scales, want = drawn(n, k, bits, group if group > 0 else k, symmetric, kind)
    t = {name + ".weight_packed": words(codes, bits, 1), name + ".weight_scale": scales,
         name + ".weight_shape": torch.tensor([n, k])}
    if not symmetric:
        t[name + ".weight_zero_point"] = words(zeros, bits, 0)
    return t, want


def int8(name, n, k, symmetric=True, kind=torch.bfloat16):
    codes, zeros, scales, want = drawn(n, k, 8, k, symmetric, kind)
    t = {name + ".weight": torch.from_numpy((codes - 128).astype(numpy.int8)), name + ".weight_scale": scales}
    if not symmetric:
        t[name + ".weight_zero_point"] = torch.from_numpy((zeros - 128).astype(numpy.int8))
    return t, want


def float8(name, n, k, rows, columns, end=".weight_scale", kind=torch.float32, shape=None, more=()):
    codes = random.integers(0, 256, (n, k)).astype(numpy.uint8)
    codes[(codes & 127) == 127] = 0x7e
    weight = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    scales, s = scales_of((-(-n // rows), -(-k // columns)), kind, 448)
    want = weight.to(torch.float32).numpy() * numpy.repeat(numpy.repeat(s, rows, 0)[:n], columns, 1)[:, :k]
    t = {name + ".weight": weight, name + end: scales if shape is None else scales.reshape(shape)}
    for extra in more:
        t[name + extra] = torch.tensor([1.0])
    return t, want


ternaries = numpy.random.default_rng(18)  # of its own: the numbers of the others stay as they are


def ternary(name, n, k, divides):
    """Four values in a byte, as pack_weights of transformers has them."""
    values = ternaries.integers(-1, 2, (n, k))
    scale = torch.tensor([float(ternaries.uniform(0.05, 0.1))]).to(torch.bfloat16)
    s = float(scale.to(torch.float32))
    blocks = (values + 1).astype(numpy.uint8).reshape(4, n // 4, k)
    codes = sum(blocks[i] << (2 * i) for i in range(4)).astype(numpy.uint8)
    stored = scale if not divides else torch.tensor([1 / s], dtype=torch.float32)
    by = s if not divides else float(numpy.float32(1) / stored.numpy()[0])
    return {name + ".weight": torch.from_numpy(codes), name + ".weight_scale": stored}, (values * by).astype(numpy.float32)


def mxfp4(name, experts, n, k):
    blocks = torch.from_numpy(random.integers(0, 256, (experts, n, k // 32, 16)).astype(numpy.uint8))
    scales = torch.from_numpy(random.integers(118, 130, (experts, n, k // 32)).astype(numpy.uint8))
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
    both = torch.stack((table[(blocks & 15).long()], table[(blocks >> 4).long()]), -1).flatten(-2)
    want = torch.ldexp(both, (scales.to(torch.int32) - 127)[..., None]).reshape(experts, n, k)
    return {name + "_blocks": blocks, name + "_scales": scales}, want.transpose(1, 2).numpy()


def scheme(bits, kind="int", symmetric=True, strategy="group", group=None, activations=None, **more):
    return {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "quantization_status": "compressed", **more,
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": activations, "weights": {
                "num_bits": bits, "type": kind, "symmetric": symmetric, "strategy": strategy, "group_size": group,
                **({"block_structure": [16, 64]} if strategy == "block" else {})}}}}


PACK, INT, FLOAT = ({"format": x + "-quantized"} for x in ("pack", "int", "float"))
DYNAMIC = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}
F16, F32 = torch.float16, torch.float32

# name: what makes a matrix, and quantization_config
CASES = {
    "gptq": (lambda *a: gptq(*a), dict(quant_method="gptq", bits=4, group_size=32, desc_act=False, sym=False)),
    "gptq-sym": (lambda *a: gptq(*a, group=128, symmetric=True, order=False),
                 dict(quant_method="gptq", bits=4, group_size=128, sym=True, checkpoint_format="gptq")),
    "gptq-v2": (lambda *a: gptq(*a, group=64, v2=True),
                dict(quant_method="gptq", bits=4, group_size=64, sym=False, checkpoint_format="gptq_v2")),
    "gptq-8": (lambda *a: gptq(*a, bits=8), dict(quant_method="gptq", bits=8, group_size=32, sym=False)),
    "gptq-row": (lambda *a: gptq(*a, group=-1), dict(quant_method="gptq", bits=4, group_size=-1, desc_act=True)),
    "gptq-256": (lambda name, n, k: gptq(name, n // 4, k * 4, group=256),
                 dict(quant_method="gptq", bits=4, group_size=256)),
    "gptq-bf16": (lambda *a: gptq(*a, kind=torch.bfloat16), dict(quant_method="gptq", bits=4, group_size=32)),
    "awq": (lambda *a: awq(*a), dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")),
    "awq-old": (lambda *a: awq(*a, group=64), dict(w_bit=4, q_group_size=64, zero_point=True, version="GEMM")),
    "pack": (lambda *a: packed(*a), scheme(4, group=32, **PACK)),
    "pack-zeros": (lambda *a: packed(*a, group=64, symmetric=False, kind=F16),
                   scheme(4, symmetric=False, group=64, **PACK)),
    "pack-8": (lambda *a: packed(*a, bits=8, group=-1), scheme(8, strategy="channel", **PACK)),
    "pack-8-zeros": (lambda *a: packed(*a, bits=8, group=-1, symmetric=False),
                     scheme(8, symmetric=False, strategy="channel", **PACK)),
    "int8": (lambda *a: int8(*a), scheme(8, strategy="channel", activations=DYNAMIC, **INT)),
    "int8-zeros": (lambda *a: int8(*a, symmetric=False, kind=F16), scheme(8, symmetric=False, strategy="channel", **INT)),
    "float": (lambda *a: float8(*a, 1, 1 << 20, kind=torch.bfloat16),
              scheme(8, "float", strategy="channel", activations=DYNAMIC, **FLOAT)),
    "float-tensor": (lambda *a: float8(*a, 1 << 20, 1 << 20, shape=(1,), more=[".input_scale"]),
                     scheme(8, "float", strategy="tensor", **FLOAT)),
    "float-block": (lambda *a: float8(*a, 16, 64), scheme(8, "float", strategy="block", **FLOAT)),
    "float-group": (lambda *a: float8(*a, 1, 32), scheme(8, "float", group=32, **FLOAT)),
    "fp8": (lambda *a: float8(*a, 1 << 20, 1 << 20, shape=(), more=[".input_scale", ".k_scale"]),
            dict(quant_method="fp8", activation_scheme="static")),
    "fp8-block": (lambda *a: float8(*a, 20, 48, end=".weight_scale_inv"),
                  dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[20, 48], fmt="e4m3")),
    "bitnet": (lambda *a: ternary(*a, False), dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline")),
    "bitnet-old": (lambda *a: ternary(*a, True), dict(quant_method="bitnet")),
    "fp8-inv": (lambda *a: float8(*a, 1 << 20, 1 << 20, shape=(), end=".weight_scale_inv", more=[".activation_scale"]),
                dict(quant_method="fp8", activation_scheme="static", weight_block_size=None)),
}


def write(folder, tensors, config, quantised, separate=None):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    if separate:
        (folder / separate).write_text(json.dumps(quantised))
    (folder / "config.json").write_text(json.dumps(config if separate else {**config, "quantization_config": quantised}))


def matrices():
    for name, (make, config) in CASES.items():
        (a, first), (b, second) = make("a", 32, 128), make("b", 32, 128)
        write(HERE / name, {**a, **b}, {}, config, "quant_config.json" if name == "awq-old" else None)
        numpy.concatenate([first, second]).astype("<f4").tofile(HERE / name / "want.bin")
    t, want = mxfp4("a", 2, 32, 128)
    write(HERE / "mxfp4", t, {}, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    want.astype("<f4").tofile(HERE / "mxfp4" / "want.bin")


def models():
    import transformers
    sizes = dict(vocab_size=101, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                 head_dim=32, intermediate_size=96, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
                 pad_token_id=0, tie_word_embeddings=False)
    own = {"gptq-sym": lambda *a: gptq(*a, symmetric=True, order=False),
           "gptq-v2": lambda *a: gptq(*a, group=32, v2=True), "pack-zeros": lambda *a: packed(*a, symmetric=False, kind=F16)}
    for name in ["gptq", "gptq-sym", "gptq-v2", "gptq-8", "gptq-row", "awq", "pack", "pack-zeros", "pack-8", "int8",
                 "int8-zeros", "float", "float-block", "fp8", "fp8-block", "bitnet"]:
        make, quantised = own.get(name, CASES[name][0]), json.loads(json.dumps(CASES[name][1]))
        if "group_size" in quantised and quantised["group_size"] > 0:
            quantised["group_size"] = 32
        for group in quantised.get("config_groups", {}).values():
            if group["weights"]["group_size"]:
                group["weights"]["group_size"] = 32
        torch.manual_seed(5)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, dtype="float32")).eval()
        tensors, config = {}, {"architectures": ["LlamaForCausalLM"], **json.loads(model.config.to_json_string())}
        with torch.no_grad():
            for key, p in model.state_dict().items():
                if "proj" in key:
                    made, want = make(key[:-len(".weight")], *p.shape)
                    tensors.update(made)
                    p.copy_(torch.from_numpy(want))
                else:
                    p.copy_((p if "norm" in key else 8 * p).to(F16).to(F32))
                    tensors[key] = p.to(F16)
        write(MODELS / name, tensors, config, quantised)
        write_tokens(name, model)


def write_tokens(name, model, prompts=([7], [3, 61, 24, 90, 11, 45, 8, 77, 30, 52])):
    cases = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        tokens, margins, logits = [], [], None
        for _ in range(20):
            last = model(ids).logits[0, -1].detach()
            logits, top = logits or [round(float(x), 6) for x in last], last.topk(2)
            tokens.append(int(top.indices[0]))
            margins.append(round(float(top.values[0] - top.values[1]), 5))
            ids = torch.cat([ids, top.indices[:1][None]], 1)
        cases.append({"prompt": prompt, "logits": logits, "tokens": tokens, "margins": margins})
    (MODELS / name / "golden.json").write_text(json.dumps({"cases": cases}))


def gpt_oss():
    import transformers
    torch.manual_seed(5)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
        vocab_size=101, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=96, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64, sliding_window=8,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype="float32",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})).eval()
    tensors = {}
    with torch.no_grad():
        for key, p in model.state_dict().items():
            if key.endswith(("gate_up_proj", "down_proj")):
                made, want = mxfp4(key, p.shape[0], p.shape[2], p.shape[1])
                made[key + "_scales"] -= 8
                tensors.update(made)
                p.copy_(torch.from_numpy(want) / 256)
            else:
                p.copy_((p if "norm" in key else torch.randn(p.shape) / 4).to(F16).to(F32))
                tensors[key] = p.to(F16)
    write(MODELS / "mxfp4", tensors, {"architectures": ["GptOssForCausalLM"], **json.loads(model.config.to_json_string())},
          {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    write_tokens("mxfp4", model)


def mixtures():
    """Qwen3-MoE, one layer, all linears quantised but the router and the head. GPUs have other kernels for the longer prompt."""
    import transformers
    global random
    random = numpy.random.default_rng(29)
    for name, of in (("moe-pack", "pack"), ("moe-gptq", "gptq"), ("moe-int8", "int8"), ("moe-fp8", "fp8")):
        make, quantised = CASES[of]
        torch.manual_seed(5)
        model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
            vocab_size=101, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
            intermediate_size=96, moe_intermediate_size=64, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
            max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
            dtype="float32")).eval()
        tensors = {}
        with torch.no_grad():
            for key, p in model.state_dict().items():
                if ".experts." in key:
                    for e in range(p.shape[0]):
                        for i, part in enumerate(("gate_proj", "up_proj") if "gate_up" in key else ("down_proj",)):
                            rows = slice(64 * i, 64 * i + 64)
                            made, want = make(f"{key[:key.rindex('.')]}.{e}.{part}", 64, 64)
                            tensors.update(made)
                            p[e][rows].copy_(torch.from_numpy(want))
                elif "proj" in key:
                    made, want = make(key[:-len(".weight")], *p.shape)
                    tensors.update(made)
                    p.copy_(torch.from_numpy(want))
                else:
                    p.copy_((p if "norm" in key else 8 * p).to(F16).to(F32))
                    tensors[key] = p.to(F16)
        write(MODELS / name, tensors, {"architectures": ["Qwen3MoeForCausalLM"], **json.loads(model.config.to_json_string())},
              quantised)
        write_tokens(name, model, ([7], [3 + 37 * i % 97 for i in range(90)]))


if __name__ == "__main__":
    matrices()
    models()
    gpt_oss()
    mixtures()
