-- qwen3-30b-a3b.lua - the published shape of Qwen3 30B A3B, 128 experts of which a token has 8, for benchmarks. Its
-- weights are random unless `-D weights=FOLDER -D tokenizer=FOLDER/tokenizer.json` names a checkpoint.
local ftx = require "ftx"
local decoder = require "decoder"

return ftx.model {
  name = "qwen3-30b-a3b",
  graph = decoder {
    vocab = 151936, hidden = 2048, layers = 48, heads = 32, kv_heads = 4, head_dim = 128, ffn = 6144,
    experts = { count = 128, k = 8, ffn = 768, renorm = true },
    names = {
      prefix = "model.", embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm",
      head = "lm_head", attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm",
      q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", out = "self_attn.o_proj",
      q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm", router = "mlp.gate",
      expert_gate = "mlp.experts.*.gate_proj", expert_up = "mlp.experts.*.up_proj",
      expert_down = "mlp.experts.*.down_proj",
    },
    norm = "rms", norm_eps = 1e-6, norm_heads = true, activation = "silu", scale = 128 ^ -0.5,
    rope = { theta = 1e6 },
  },
  bos = 151643,
  eos = { 151645, 151643 },
  precision = { weights = "bf16" },
  limits = { sequences = 64, context = 2304, tokens = 2048 },
  kv = { block_size = 16 },
  decode = ftx.sample { temperature = 0.6, top_p = 0.95, top_k = 20 },
}
