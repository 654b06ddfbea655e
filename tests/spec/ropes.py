#!/usr/bin/env python3
"""ropes.py - ropes.json: what transformers computes from rope_parameters: frequencies, and the factor of sines and cosines.

    python3 -m venv /tmp/families && /tmp/families/bin/pip install torch transformers
    /tmp/families/bin/python tests/spec/ropes.py      # from the top folder"""
import json
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

MODEL = dict(vocab_size=64, hidden_size=64, num_hidden_layers=1, intermediate_size=48, num_attention_heads=2,
             head_dim=32, max_position_embeddings=128)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LONG = dict(rope_type="longrope", original_max_position_embeddings=64, rope_theta=5e3,
            short_factor=[1 + i / 16 for i in range(16)], long_factor=[1 + i * i / 3 for i in range(16)])

# rope_parameters, the context that is compiled, changes of config.json
CASES = [
    (YARN, 128, {}),
    (dict(YARN, rope_theta=1e6, factor=8.0), 128, {}),
    (dict(YARN, truncate=False, beta_fast=4.0, beta_slow=0.5), 128, {}),
    (dict(YARN, attention_factor=0.75), 128, {}),
    (dict(YARN, mscale=2.0, mscale_all_dim=0.5), 128, {}),
    (dict(YARN, mscale=2.0), 128, {}),
    (dict(YARN, factor=1.0, beta_fast=2.0), 128, {}),
    (dict(YARN, partial_rotary_factor=0.5), 128, {}),
    (dict(rope_type="yarn", factor=2.0), 128, {}),
    (dict(YARN, factor=None), 128, {}),
    (dict(YARN, beta_fast=8.0), 128, {"original_max_position_embeddings": 16}),
    (LONG, 64, {}),
    (LONG, 65, {}),
    (dict(LONG, factor=6.0), 128, {}),
    (dict(LONG, factor=0.5), 128, {}),
    (dict(LONG, attention_factor=1.25), 128, {}),
    (LONG, 128, {"original_max_position_embeddings": 96}),
    (dict(LONG, partial_rotary_factor=0.5, short_factor=[2.0] * 8, long_factor=[3.0, 1.0] * 4), 100, {}),
    (dict(rope_type="dynamic", factor=4.0), 64, {}),
    (dict(rope_type="dynamic", factor=4.0), 129, {}),
    (dict(rope_type="dynamic", factor=2.0, rope_theta=500.0, partial_rotary_factor=0.5), 1000, {}),
    (dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6), 64, {}),
    (dict(rope_type="proportional", factor=4.0), 64, {}),
    (dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=64), 128, {}),
    (dict(rope_type="llama3", factor=8.0, low_freq_factor=4.0, high_freq_factor=4.0, original_max_position_embeddings=64,
          partial_rotary_factor=0.5), 128, {}),
]

out = []
for rope, context, more in CASES:
    config = transformers.LlamaConfig(**MODEL, rope_parameters=dict(rope), **more)
    freqs, amplitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=context)
    out.append({"config": {"architectures": ["LlamaForCausalLM"], **MODEL, "rope_parameters": rope, **more},
                "context": context, "freqs": [float(f"{f:.8g}") for f in freqs.tolist()], "amplitude": amplitude})
old = json.loads(json.dumps(out[CASES.index((LONG, 65, {}))]))  # as Phi-3's first files have it
old["config"]["rope_scaling"] = old["config"].pop("rope_parameters")
old["config"]["rope_scaling"]["type"] = "su"
del old["config"]["rope_scaling"]["rope_type"]
out.append(old)
with open("tests/spec/ropes.json", "w") as f:
    f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "]\n")
