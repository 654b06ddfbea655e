#!/usr/bin/env python3
"""models.py - whole small models as a GGUF file and as a checkout of the same values: the artifacts are equal, or the tokens.

    models.py FTXC FOLDER [NAME...]

Architectures: matrices of F32, F16 or BF16; all of the artifact is equal, weights bit for bit. Quantised types: the
checkout has the dequantised values in fp32; greedy tokens are equal. "refused": files that must not compile, and what is
said of them. "split": a model in several files. "fable": the storyteller with its tokenizer."""
import json, pathlib, random, subprocess, sys
from writer import floats, matrix, rounded, write_gguf, write_safetensors

FTXC, ROOM = sys.argv[1], pathlib.Path(sys.argv[2])
SIZES = dict(hidden=64, layers=2, heads=4, kv=2, dim=24, ffn=88, vocab=101)

LLAMA = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA2 = dict(LLAMA, post_attention_norm="post_attention_layernorm", ffn_norm="pre_feedforward_layernorm",
              post_ffw_norm="post_feedforward_layernorm")
OLMO2 = {k: v for k, v in GEMMA2.items() if k not in ("attn_norm", "ffn_norm")}
EXPERTS = {"ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.experts.*.gate_proj",
           "ffn_up_exps": "mlp.experts.*.up_proj", "ffn_down_exps": "mlp.experts.*.down_proj"}
SHARED = {"ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
          "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj"}
MIXTRAL = {"ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
           "ffn_up_exps": "block_sparse_moe.experts.*.w3", "ffn_down_exps": "block_sparse_moe.experts.*.w2"}
GPT2 = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
        "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}


def without(names, *gone):
    return {k: v for k, v in names.items() if k not in gone}


BASE = dict(arch="llama", type="F32", names=LLAMA, tie=False, keys={}, config={}, bias=(), sizes={}, plus=False,
            eps="layer_norm_rms_epsilon", eps_field="rms_norm_eps", experts=0, transposed=False, paired=False)
CASES = {
    "llama": dict(paired=True, keys={"attention.causal": True}),
    "llama-f16": dict(paired=True, type="F16"),
    "llama-bf16": dict(paired=True, type="BF16", tie=True, sizes=dict(dim=16)),
    "llama-bias": dict(paired=True, bias=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
                       config=dict(attention_bias=True, mlp_bias=True)),
    "llama-linear": dict(paired=True, keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
                         config=dict(rope_scaling=dict(type="linear", factor=4.0))),
    "llama-yarn": dict(paired=True, keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                                          "rope.scaling.original_context_length": 32},
                       config=dict(rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "mistral": dict(paired=True, cls="MistralForCausalLM", keys={"attention.sliding_window": 7},
                    config=dict(sliding_window=7)),
    "mixtral": dict(paired=True, cls="MixtralForCausalLM", names={**without(LLAMA, "ffn_gate", "ffn_up", "ffn_down"),
                                                                  **MIXTRAL}, experts=5,
                    keys={"expert_count": 5, "expert_used_count": 2, "expert_gating_func": 1,
                          "expert_weights_norm": True},
                    config=dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    "qwen2": dict(arch="qwen2", cls="Qwen2ForCausalLM", bias=("attn_q", "attn_k", "attn_v")),
    "qwen2moe": dict(arch="qwen2moe", cls="Qwen2MoeForCausalLM", bias=("attn_q", "attn_k", "attn_v"), experts=6,
                     names={**without(LLAMA, "ffn_gate", "ffn_up", "ffn_down"), **EXPERTS, **SHARED},
                     sizes=dict(expert=20, shared=52),
                     keys={"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 20,
                           "expert_shared_feed_forward_length": 52},
                     config=dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                 shared_expert_intermediate_size=52, norm_topk_prob=False)),
    "qwen3": dict(arch="qwen3", cls="Qwen3ForCausalLM", names={**LLAMA, **HEAD_NORMS}, type="BF16"),
    "qwen3moe": dict(arch="qwen3moe", cls="Qwen3MoeForCausalLM", experts=6, sizes=dict(expert=20),
                     names={**without(LLAMA, "ffn_gate", "ffn_up", "ffn_down"), **HEAD_NORMS, **EXPERTS},
                     keys={"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 20},
                     config=dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True)),
    "gemma": dict(arch="gemma", cls="GemmaForCausalLM", plus=True, tie=True),
    "gemma2": dict(arch="gemma2", cls="Gemma2ForCausalLM", plus=True, tie=True, names=GEMMA2,
                   keys={"attention.sliding_window": 5, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
                   config=dict(sliding_window=5, attn_logit_softcapping=3.0, final_logit_softcapping=2.0,
                               query_pre_attn_scalar=24)),
    "gemma2-27b": dict(arch="gemma2", cls="Gemma2ForCausalLM", plus=True, tie=True, names=GEMMA2, type="BF16",
                       sizes=dict(layers=46, hidden=32, ffn=16, heads=2, kv=1, dim=24, vocab=20),
                       keys={"attention.sliding_window": 5},
                       config=dict(sliding_window=5, query_pre_attn_scalar=16)),
    "gemma3": dict(arch="gemma3", cls="Gemma3ForCausalLM", plus=True, tie=True, names={**GEMMA2, **HEAD_NORMS},
                   sizes=dict(layers=7), rope=1000000.0,
                   keys={"attention.sliding_window": 5, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
                   config=dict(sliding_window=5, query_pre_attn_scalar=24, rope_local_base_freq=10000.0,
                               rope_scaling=dict(rope_type="linear", factor=8.0))),
    "granite": dict(arch="granite", cls="GraniteForCausalLM", paired=True, tie=True,
                    keys={"attention.scale": 0.15, "embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5},
                    config=dict(attention_multiplier=0.15, embedding_multiplier=3.0, residual_multiplier=0.4,
                                logits_scaling=2.5)),
    "smollm3": dict(arch="smollm3", cls="SmolLM3ForCausalLM", paired=True, tie=True, sizes=dict(layers=5),
                    config=dict(no_rope_layer_interval=4)),
    "command-r": dict(arch="command-r", cls="CohereForCausalLM", tie=True, eps="layer_norm_epsilon",
                      eps_field="layer_norm_eps", names=without(LLAMA, "ffn_norm"), sizes=dict(dim=16),
                      keys={"logit_scale": 0.125}, config=dict(logit_scale=0.125, head_dim=None)),
    "olmo2": dict(arch="olmo2", cls="Olmo2ForCausalLM", names={**OLMO2, **HEAD_NORMS}, sizes=dict(dim=16)),
    "phi3": dict(arch="phi3", cls="Phi3ForCausalLM", sizes=dict(dim=16),
                 names={**without(LLAMA, "attn_q", "attn_k", "attn_v", "ffn_gate"), "attn_qkv": "self_attn.qkv_proj",
                        "ffn_up": "mlp.gate_up_proj"},
                 keys={"attention.sliding_window": 7, "rope.dimension_count": 12},
                 config=dict(sliding_window=7, partial_rotary_factor=0.75)),
    "phi3-long": dict(arch="phi3", cls="Phi3ForCausalLM", sizes=dict(dim=16),
                      names={**without(LLAMA, "attn_q", "attn_k", "attn_v", "ffn_gate"),
                             "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
                      keys={"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25},
                      factors=[1.0, 1.125, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0],
                      config=dict(sliding_window=None, original_max_position_embeddings=32)),
    "starcoder2": dict(arch="starcoder2", cls="Starcoder2ForCausalLM", eps="layer_norm_epsilon",
                       eps_field="norm_epsilon", sizes=dict(dim=16),
                       names={**without(LLAMA, "ffn_gate"), "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
                       bias=("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_up", "ffn_down",
                             "output_norm"), config=dict(use_bias=True, sliding_window=None)),
    "gpt2": dict(arch="gpt2", cls="GPT2LMHeadModel", eps="layer_norm_epsilon", eps_field="layer_norm_epsilon",
                 sizes=dict(dim=16, kv=4), names=GPT2, tie=True, transposed=True,
                 bias=("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down", "output_norm")),
}
CASES["phi3-short"] = dict(CASES["phi3-long"], keys={"rope.scaling.original_context_length": 128,
                                                     "rope.scaling.attn_factor": 1.25},
                           config=dict(sliding_window=None, original_max_position_embeddings=128))
TOP = ("token_embd", "position_embd", "output_norm", "output")
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL",
             "IQ4_XS")
WIDE = dict(hidden=256, layers=2, heads=4, kv=2, dim=64, ffn=256, vocab=101)
for kind in QUANTISED:
    CASES["llama-" + kind.lower().replace("_", "")] = dict(paired=True, type=kind, sizes=WIDE)
CASES["llama-mixed"] = dict(paired=True, type="Q4_K", sizes=WIDE, tie=True, more={"attn_v": "Q6_K", "ffn_down": "Q6_K",
                                                                                  "token_embd": "Q6_K"})
CASES["qwen2-mixed"] = dict(arch="qwen2", cls="Qwen2ForCausalLM", bias=("attn_q", "attn_k", "attn_v"), type="Q4_0",
                            sizes=WIDE, more={"output": "Q8_0", "attn_k": "Q8_0", "ffn_up": "Q4_1"})
MIXTURE = dict(CASES["qwen3moe"], experts=3, sizes=dict(expert=32),
               keys={"expert_count": 3, "expert_used_count": 2, "expert_feed_forward_length": 32},
               config=dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True))
CASES["qwen3moe-q80"] = dict(MIXTURE, type="Q8_0")
CASES["mixtral-q40"] = dict(CASES["mixtral"], type="Q4_0", sizes=dict(ffn=96))
CASES["qwen3moe-mixed"] = dict(
    MIXTURE, type="Q4_K", more={"ffn_up_exps": "Q5_K", "ffn_down_exps": "Q6_K"},
    sizes=dict(hidden=256, layers=1, dim=64, expert=256), keys={**MIXTURE["keys"], "expert_feed_forward_length": 256},
    config={**MIXTURE["config"], "moe_intermediate_size": 256})


def shapes(s, case):
    """The shape of each tensor, [outputs, inputs]."""
    q, kv = s["heads"] * s["dim"], s["kv"] * s["dim"]
    h, f, e, x = s["hidden"], s["ffn"], s.get("expert", s["ffn"]), case["experts"]
    fused = "ffn_gate" not in case["names"] and case["arch"] == "phi3"
    all_heads = case["arch"] == "olmo2"
    return {
        "token_embd": [s["vocab"], h], "output": [s["vocab"], h], "output_norm": [h], "position_embd": [128, h],
        "attn_norm": [h], "ffn_norm": [h], "post_attention_norm": [h], "post_ffw_norm": [h],
        "attn_q_norm": [q if all_heads else s["dim"]], "attn_k_norm": [kv if all_heads else s["dim"]],
        "attn_q": [q, h], "attn_k": [kv, h], "attn_v": [kv, h], "attn_qkv": [q + 2 * kv, h], "attn_output": [h, q],
        "ffn_gate": [f, h], "ffn_up": [2 * f if fused else f, h], "ffn_down": [h, f], "ffn_gate_inp": [x, h],
        "ffn_gate_exps": [x, e, h], "ffn_up_exps": [x, e, h], "ffn_down_exps": [x, h, e],
        "ffn_gate_inp_shexp": [h], "ffn_gate_shexp": [s.get("shared"), h], "ffn_up_shexp": [s.get("shared"), h],
        "ffn_down_shexp": [h, s.get("shared")]}


def moved(data, rows, head):
    """Rows as llama.cpp's converter writes them: those of a head's halves in turn."""
    n = len(data) // rows
    row = [data[i * n:(i + 1) * n] for i in range(rows)]
    return b"".join(row[at + i + j * head // 2] for at in range(0, rows, head) for i in range(head // 2)
                    for j in range(2))


def transposed(values, rows):
    n = len(values) // rows
    return [values[r * n + c] for c in range(n) for r in range(rows)]


def make(name, case):
    rng, s, arch = random.Random(name), {**SIZES, **case["sizes"]}, case["arch"]
    sizes, stored, checkpoint = shapes(s, case), {}, {}
    quantised = case["type"] in QUANTISED
    plain = "F32" if quantised else case["type"]

    def put(part, suffix, at, prefix):
        shape, vector = sizes[part], len(sizes[part]) == 1
        shape = shape[:1] if suffix == "bias" else shape
        if suffix == "bias":
            vector = True
        n = 1
        for d in shape:
            n *= d
        kind = "F32" if vector or part in ("ffn_gate_inp", "position_embd") else case.get("more", {}).get(part, case["type"])
        head = s["dim"] if case["paired"] and part in ("attn_q", "attn_k") else 0
        hf = case["names"][part]
        if vector and suffix == "weight" and "norm" in part:  # as the checkpoint's type holds it, so that both are equal
            data, values = rounded([(0 if case["plus"] else 1) + rng.uniform(-0.25, 0.25) for _ in range(n)], plain)
            data = floats([1 + x for x in values] if case["plus"] else values)
        elif vector:
            data, values = rounded([rng.uniform(-0.2, 0.2) for _ in range(n)], plain)
            data = floats(values)
        elif kind == "F32":
            data, values = rounded([rng.uniform(-0.25, 0.25) for _ in range(n)], plain)
            data = floats(values)
        else:
            data, values = matrix(rng, kind, n, 0.25)
        stored[at + part + "." + suffix] = (shape, kind, moved(data, shape[0], head) if head else data)
        to = prefix + hf + "." + suffix
        if part == "ffn_gate_inp_shexp":
            shape = [1] + shape
        if "*" in hf:
            each = n // shape[0]
            for x in range(shape[0]):
                checkpoint[to.replace("*", str(x))] = (shape[1:], plain, rounded(values[x * each:(x + 1) * each], plain)[0])
        elif case["transposed"] and not vector and part not in TOP:
            checkpoint[to] = (shape[::-1], plain, rounded(transposed(values, shape[0]), plain)[0])
        else:
            checkpoint[to] = (shape, plain, rounded(values, plain)[0])

    for part in case["names"]:
        for suffix in ("weight", "bias") if part in case["bias"] else ("weight",):
            if part in TOP:
                if part != "output" or not case["tie"]:
                    put(part, suffix, "", "")
                continue
            for i in range(s["layers"]):
                put(part, suffix, "blk.%d." % i, ("transformer.h.%d." if arch == "gpt2" else "model.layers.%d.") % i)
    keys = {
        "general.architecture": arch, "general.name": name, "general.type": "model",
        arch + ".block_count": s["layers"], arch + ".context_length": 128, arch + ".embedding_length": s["hidden"],
        arch + ".feed_forward_length": s["ffn"], arch + ".attention.head_count": s["heads"],
        arch + ".attention." + case["eps"]: 0.001,
        **{arch + "." + k: v for k, v in case["keys"].items()},
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    }
    theta = case.get("rope", 5000.0)
    config = {"architectures": [case.get("cls", "LlamaForCausalLM")], "vocab_size": s["vocab"], "bos_token_id": 1,
              "eos_token_id": 2, case["eps_field"]: 0.001, "tie_word_embeddings": case["tie"],
              "torch_dtype": {"F16": "float16", "BF16": "bfloat16"}.get(case["type"], "float32")}
    if arch == "gpt2":
        config.update(n_embd=s["hidden"], n_layer=s["layers"], n_head=s["heads"], n_inner=s["ffn"], n_positions=128)
    else:
        keys.update({arch + ".attention.head_count_kv": s["kv"]})
        if case["sizes"] is not WIDE:
            keys.update({arch + ".attention.key_length": s["dim"], arch + ".attention.value_length": s["dim"]})
        if "rope" not in case:
            keys[arch + ".rope.freq_base"] = theta
        config.update(hidden_size=s["hidden"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                      num_key_value_heads=s["kv"], head_dim=s["dim"], intermediate_size=s["ffn"], rope_theta=theta,
                      max_position_embeddings=128)
    config.update(case["config"])
    if "factors" in case:
        f = case["factors"]
        config["rope_scaling"] = dict(rope_type="longrope", short_factor=f, long_factor=[2 * x for x in f],
                                      attention_factor=1.25)
        stored["rope_factors_short.weight"] = ([len(f)], "F32", floats(f))
        stored["rope_factors_long.weight"] = ([len(f)], "F32", floats([2 * x for x in f]))
    folder = ROOM / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", checkpoint)
    write_gguf(ROOM / (name + ".gguf"), keys, stored)
    return keys, stored


def run(*words):
    r = subprocess.run([FTXC, *map(str, words)], capture_output=True, text=True)
    return r.returncode, r.stdout, r.stderr


def compiled(path, out, *more):
    code, _, err = run("compile", path, "-t", "cpu", "-q", "-o", out, *more)
    if code:
        sys.exit("%s: exit code %d: %s" % (path, code, err))


def tokens(path, ids):
    code, out, err = run("run", path, "--ids", ids, "-g", "-n", 24, "--ignore-eos", "--json")
    if code:
        sys.exit("%s: exit code %d: %s" % (path, code, err))
    r = json.loads(out[:out.index("\n") + 1] if "\n" in out else out)
    return r["ids"], r["logprobs"]


def nameless(x):
    if isinstance(x, dict):
        return {k: nameless(v) for k, v in x.items() if k != "name"}
    return [nameless(v) for v in x] if isinstance(x, list) else x


def sections(path):
    """The checksums of all that is computed, and plans: not the text of the spec, the command, and names."""
    code, out, err = run("show", path, "--json")
    if code:
        sys.exit("%s: %s" % (path, err))
    all = json.loads(out)
    parts = {(x["kind"], x["target"]): x["checksum"] for x in all["sections"]
             if x["kind"] not in ("spec", "build", "strings", "weight index", "facts", "buffers")}
    parts["plans"] = nameless(all["plans"])
    parts["model"] = nameless(all["model"])
    return parts


def same_artifact(name):
    compiled(ROOM / name, ROOM / "a.ftx")
    compiled(ROOM / (name + ".gguf"), ROOM / "b.ftx")
    a, b = sections(ROOM / "a.ftx"), sections(ROOM / "b.ftx")
    if a != b or len(a) < 9:
        sys.exit("%s: other sections: %s" % (name, [k for k in a if a[k] != b.get(k)] or list(b)))


def same_adapter(name):
    """A LoRA adapter of the checkout fits the GGUF file: its rows are in the checkout's order."""
    folder, rng = ROOM / "adapter", random.Random("adapter")
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}))
    part = "base_model.model.model.layers.1.self_attn.q_proj.lora_"
    write_safetensors(folder / "adapter_model.safetensors", {
        part + "A.weight": ([2, 64], "F32", floats([rng.uniform(-1, 1) for _ in range(128)])),
        part + "B.weight": ([96, 2], "F32", floats([rng.uniform(-1, 1) for _ in range(192)]))})
    compiled(ROOM / name, ROOM / "a.ftx", "--lora", folder)
    compiled(ROOM / (name + ".gguf"), ROOM / "b.ftx", "--lora", folder)
    compiled(ROOM / name, ROOM / "c.ftx")
    a, b, plain = sections(ROOM / "a.ftx"), sections(ROOM / "b.ftx"), sections(ROOM / "c.ftx")
    if a != b or a[("weights", "")] == plain[("weights", "")]:
        sys.exit("%s: with an adapter other sections: %s" % (name, [k for k in a if a[k] != b.get(k)]))


def same_tokens(name):
    compiled(ROOM / name, ROOM / "a.ftx", "-D", "precision.weights=fp32")
    compiled(ROOM / (name + ".gguf"), ROOM / "b.ftx", "-D", "precision.compute=fp32")
    for ids in ("7", "3,61,24,90,11,45,8,77,30,2,52,19,66"):
        (a, p), (b, q) = tokens(ROOM / "a.ftx", ids), tokens(ROOM / "b.ftx", ids)
        if a != b or max(abs(x - y) for x, y in zip(p, q)) > 2e-3:
            sys.exit("%s: tokens %s, of the checkout %s; log-probabilities %s, %s" % (name, b, a, q, p))


def same_experts(name):
    """Experts keep their codes; with activations as codes the first log-probability is near that of numbers."""
    same_tokens(name)
    compiled(ROOM / (name + ".gguf"), ROOM / "c.ftx")
    for path in ("b.ftx", "c.ftx"):
        plans = run("show", ROOM / path, "--json")[1]
        if "expert_linear_q" not in plans or "expert_sum_q" not in plans:
            sys.exit("%s: its experts have no codes" % name)
    for ids in ("7", "3,61,24,90,11,45,8,77,30,2,52,19,66"):
        p, q = tokens(ROOM / "a.ftx", ids)[1][0], tokens(ROOM / "c.ftx", ids)[1][0]
        if abs(p - q) > 0.03:
            sys.exit("%s: log-probability %s, of the checkout %s" % (name, q, p))


def refused(name, keys, stored, words):
    path = ROOM / "refused.gguf"
    write_gguf(path, keys, stored)
    code, _, err = run("compile", path, "-t", "cpu", "-q", "-o", ROOM / "c.ftx")
    if code != 2 or "refused.gguf" not in err or words not in err:
        sys.exit("%s: exit code %d, wanted 2 and \"%s\": %s" % (name, code, words, err))


def split():
    """A model in three files, as llama-gguf-split writes them: the artifact of the whole one."""
    keys, stored = make("split", {**BASE, **CASES["llama-mixed"]})
    keys.update({"tokenizer.ggml.model": "none"})
    write_gguf(ROOM / "split.gguf", keys, stored)
    names = list(stored)
    compiled(ROOM / "split.gguf", ROOM / "a.ftx")
    for empty in (False, True):  # whether the first part has no tensors
        cuts = [0, 0 if empty else 5, 9, len(names)]
        for i in range(3):
            own = {"split.no": ("u16", i), "split.count": ("u16", 3), "split.tensors.count": ("i32", len(names))}
            write_gguf(ROOM / ("split-%05d-of-00003.gguf" % (i + 1)), own if i else {**keys, **own},
                       {n: stored[n] for n in names[cuts[i]:cuts[i + 1]]})
        compiled(ROOM / "split-00001-of-00003.gguf", ROOM / "b.ftx")
        a, b = sections(ROOM / "a.ftx"), sections(ROOM / "b.ftx")
        if a != b:
            sys.exit("split: other sections: %s" % [k for k in a if a[k] != b.get(k)])
    made = ROOM / "split.ftx"  # the name without -o
    made.unlink(missing_ok=True)
    r = subprocess.run([pathlib.Path(FTXC).resolve(), "compile", "split-00001-of-00003.gguf", "-t", "cpu", "-q"], cwd=ROOM)
    if r.returncode or json.loads(run("show", made, "--json")[1])["model"]["name"] != "split":
        sys.exit("split: the artifact, or its model, has another name")
    code, _, err = run("compile", ROOM / "split-00003-of-00003.gguf", "-t", "cpu", "-q", "-o", ROOM / "c.ftx")
    if code != 2 or "is part 3 of 3 of a model; name its first part, " not in err:
        sys.exit("split: the last part: exit code %d: %s" % (code, err))
    for no_weights in [], ["--no-weights"]:  # parts are not replaced
        for i in (1, 2, 3):
            part = ROOM / ("split-%05d-of-00003.gguf" % i)
            was = part.read_bytes()
            code, _, err = run("compile", ROOM / "split-00001-of-00003.gguf", "-t", "cpu", "-q", "-o", part, *no_weights)
            if code != 2 or "would overwrite this file, which is no artifact" not in err or part.read_bytes() != was:
                sys.exit("split: an artifact over part %d: exit code %d: %s" % (i, code, err))
    code, _, err = run("compile", ROOM / "split-00001-of-00003.gguf", "-t", "cpu", "-q", "-o",
                       ROOM / "split-00004-of-00003.gguf")  # is none of its parts
    if code:
        sys.exit("split: an artifact with a name like a part's: exit code %d: %s" % (code, err))
    (ROOM / "split-00002-of-00003.gguf").unlink()
    code, _, err = run("compile", ROOM / "split-00001-of-00003.gguf", "-t", "cpu", "-q", "-o", ROOM / "c.ftx")
    if code != 2 or "part 2 of 3 is missing: there is no split-00002-of-00003.gguf beside it" not in err:
        sys.exit("split: without a part: exit code %d: %s" % (code, err))


FABLE = pathlib.Path("specs/fable")
TEXTS = ["Once upon a time", " the 3rd of 12345 kings,\n\n  said: \"I'll go!\"", "\u00fcber <|end_of_text|> \u4e2d\u6587 e\u0301\t\r\n ", ""]


def fable():
    """The whole storyteller: its checkpoint's bytes, moved and named as llama.cpp's converter does."""
    config, tokenizer = json.loads((FABLE / "config.json").read_text()), json.loads((FABLE / "tokenizer.json").read_text())
    data = (FABLE / "model.safetensors").read_bytes()
    n = int.from_bytes(data[:8], "little")
    stored = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        part, shape = name.rsplit(".", 1)[0], t["shape"]
        layer = part.split(".")[2] if ".layers." in part else None
        part = {v: k for k, v in LLAMA.items()}[part.split("%s." % layer, 1)[1] if layer else part]
        raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
        if part in ("attn_q", "attn_k"):
            raw = moved(raw, shape[0], config["head_dim"])
        if len(shape) == 1:
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        stored[("blk.%s." % layer if layer else "") + part + ".weight"] = (shape, "F32" if len(shape) == 1 else "BF16", raw)
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda x: x[1])
    special = {t["content"] for t in tokenizer["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    keys = {
        "general.architecture": "llama", "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"], "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": config["head_dim"], "llama.vocab_size": len(vocab), "general.alignment": 64,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "dbrx", "tokenizer.ggml.tokens": ("str", [t for t, _ in vocab]),
        "tokenizer.ggml.token_type": ("i32", [3 if t in special else 1 for t, _ in vocab]),
        "tokenizer.ggml.merges": ("str", merges), "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{{ bos_token }}",
    }
    write_gguf(ROOM / "fable.gguf", keys, stored)
    compiled(FABLE, ROOM / "a.ftx")
    compiled(ROOM / "fable.gguf", ROOM / "b.ftx")
    a, b = sections(ROOM / "a.ftx"), sections(ROOM / "b.ftx")
    a = {k: v for k, v in a.items() if "token" not in k[0]}
    if a != {k: b.get(k) for k in a} or a["model"]["ends"] != [1]:  # by the name of the control token
        sys.exit("fable: other sections: %s" % [k for k in a if a[k] != b.get(k)])
    for text in TEXTS:
        for words in (("tokenize", "--json"), ("run", "-g", "-n", "40", "--json")):
            found = [run(words[0], ROOM / file, text, *words[1:])[1] for file in ("a.ftx", "b.ftx")]
            ids = [json.loads(x).get("ids") if words[0] == "run" else x for x in found]
            if ids[0] != ids[1] or not ids[0]:
                sys.exit("fable: %s of %r: %s, of the checkout %s" % (words[0], text, ids[1], ids[0]))
    (ROOM / "messages.json").write_text('[{"role": "user", "content": "Hello"}]')
    out = [run("run", ROOM / "b.ftx", "-g", "-n", "8", "--json", *more)[1]
           for more in (("--messages", ROOM / "messages.json"),
                        ("<|begin_of_text|>user: Hello<|begin_of_text|>", "--no-bos"))]
    if json.loads(out[0])["ids"] != json.loads(out[1])["ids"]:
        sys.exit("fable: its chat template gives another text: %s, %s" % tuple(out))


def refusals():
    keys, stored = make("llama", {**BASE, **CASES["llama"]})
    half = dict(list(stored.items())[:5])

    def change(words, **changed):
        refused(words, {**keys, **{k.replace("__", "."): v for k, v in changed.items()}}, stored, words)

    change("general.architecture: rwkv6 is not read; these are:", general__architecture="rwkv6")
    change("general.type must be model", general__type="adapter")
    change("llama.expert_weights_scale is not known; it may change the result", llama__expert_weights_scale=2.5)
    change("llama.long is not known; it may change the result", llama__long=("u32", [1] * 4097))
    change("llama.rope.scaling.type must be one of linear, longrope, none, yarn", llama__rope__scaling__type="ntk")
    change("llama.rope.scaling.factor must be 1 without rope.scaling.type", llama__rope__scaling__factor=2.0)
    change("llama.rope.scaling.type must be of a file with rope_factors_short", llama__rope__scaling__type="longrope")
    change("llama.attention.head_count must be a whole number", llama__attention__head_count="4")
    change("llama.attention.head_count_kv must be a whole number", llama__attention__head_count_kv=("u32", [2, 2]))
    change("llama.attention.value_length must be attention.key_length, 24", llama__attention__value_length=16)
    change("key \"tokenizer.ggml.model\" is bert; llama and gpt2 are read", tokenizer__ggml__model="bert")
    change("llama.expert_used_count must be 0 without expert_count", llama__expert_used_count=2)
    change("llama.expert_weights_norm must be true, got false", llama__expert_count=4, llama__expert_weights_norm=False)
    refused("a key", {k: v for k, v in keys.items() if k != "llama.block_count"}, stored, "llama.block_count must be")
    refused("tensors", keys, half, "is missing in")
    refused("more", keys, {**stored, "blk.0.extra.weight": ([4], "F32", floats([0, 0, 0, 0]))},
            "tensor \"blk.0.extra.weight\" [4] is not used")
    refused("embedding", keys, {k: v for k, v in stored.items() if k != "token_embd.weight"},
            "tensor token_embd.weight is missing")
    nan = dict(stored)
    nan["blk.1.ffn_up.weight"] = ([88, 64], "F32", floats([float("nan")] * 88 * 64))
    refused("nan", keys, nan, "element [0,0] is NaN")
    other = dict(stored)
    other["blk.1.ffn_up.weight"] = ([88, 64], "MXFP4", bytes(88 * 64 // 32 * 17))
    refused("type", keys, other, "is stored as MXFP4")


def main():
    ROOM.mkdir(parents=True, exist_ok=True)
    (ROOM / "config.json").write_text('{"quantization_config": {"quant_method": "gptq"}}')  # not of these files
    others = {"refused": refusals, "split": split, "fable": fable}
    for name in sys.argv[3:] or [*CASES, *others]:
        if name in others:
            others[name]()
            continue
        case = {**BASE, **CASES[name]}
        make(name, case)
        quantised = same_experts if case["experts"] else same_tokens
        (quantised if case["type"] in QUANTISED else same_artifact)(name)
        if name == "llama":
            same_adapter(name)
        print(name, flush=True)


main()
