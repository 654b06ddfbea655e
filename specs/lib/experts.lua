-- experts.lua - fields of config.json about experts, and names of their tensors, that decoders of several files have.
local fields = require "lib.fields"

local experts = {}

-- Experts in every layer. Newer versions of transformers write num_local_experts in place of num_experts.
function experts.experts(config, count, k, ffn)
  local key = config.values.num_local_experts == nil and "num_experts" or "num_local_experts"
  count = config:count(key, 1, 1024, count)
  return { count = count, k = config:count("num_experts_per_tok", 1, count, k), ffn = ffn }
end

-- Experts of the size moe_intermediate_size, in some layers; the others are dense. renorm: the class's norm_topk_prob.
function experts.qwen_experts(config, c, count, k, ffn, renorm)
  local step, only = config:count("decoder_sparse_step", 1, 1024, 1), config:value("mlp_only_layers") or {}
  c.experts = experts.experts(config, count, k, config:count("moe_intermediate_size", 1, 2 ^ 20, ffn))
  c.experts.renorm, c.experts.dense = config:flag("norm_topk_prob", renorm or false), {}
  for i = 1, c.layers do c.experts.dense[i] = i % step ~= 0 end
  if type(only) ~= "table" then config:refuse("mlp_only_layers", "a list of layers") end
  for _, i in ipairs(only) do
    if math.type(i) ~= "integer" then config:refuse("mlp_only_layers", "a list of layers") end
    c.experts.dense[i + 1] = true
  end
end

function experts.expert_names(more)
  more.router, more.expert_gate = "mlp.gate", "mlp.experts.*.gate_proj"
  more.expert_up, more.expert_down = "mlp.experts.*.up_proj", "mlp.experts.*.down_proj"
  return more
end

experts.granite_names = {
  router = "block_sparse_moe.router.layer", expert_gate_up = "block_sparse_moe.input_linear",
  expert_down = "block_sparse_moe.output_linear", shared_gate_up = "shared_mlp.input_linear",
  shared_down = "shared_mlp.output_linear",
}

-- The weights are a softmax of the chosen logits.
function experts.granite_experts(config, c)
  fields.granite(config, c)
  c.experts = experts.experts(config, 8, 2, c.ffn)
  c.experts.order = "topk_softmax"
end

return experts
