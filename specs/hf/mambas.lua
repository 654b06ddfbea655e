-- mambas.lua - as decoders.lua, for decoders whose layers are Mamba alone (lib/recurrent.lua): no attention, no feed-forward.
local nn = require "nn"
local fields = require "lib.fields"

-- What a class has that no layer of attention needs; own: its other fields.
local function alone(own)
  own.eps, own.positions = 1e-5, 2 ^ 20                             -- texts of any length; the files have no bound
  own.fields = { heads = false, kv_heads = false, head_dim = false, ffn = false, positions = false, theta = false,
                 eps = "layer_norm_epsilon" }
  own.names = fields.with({
    prefix = "backbone.", embedding = "backbone.embeddings", layers = "backbone.layers.", final_norm = "backbone.norm_f",
    attention_norm = "norm", mamba_in = "mixer.in_proj", mamba_conv = "mixer.conv1d", mamba_rate = "mixer.A_log",
    mamba_skip = "mixer.D", mamba_out = "mixer.out_proj",
  }, own.names)
  return own
end

-- Fields of training alone
local idle = { "initializer_range", "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_init_scheme",
               "time_step_max", "time_step_min", "time_step_scale" }

-- Every layer is one part.
local function layers(config, c, kind)
  c.mixers, c.only = {}, {}
  for i = 1, c.layers do c.mixers[i], c.only[i], c.unrotated[i] = kind, "mixer", true end
  for _, name in ipairs(idle) do config:value(name) end
end

return {
  -- Codestral Mamba
  Mamba2ForCausalLM = alone {
    type = "mamba2", names = { mamba_shift = "mixer.dt_bias", mamba_norm = "mixer.norm.weight" },
    set = function(config, c)
      local inner = config:count("expand", 1, 64, 2) * c.hidden
      local heads, bias = config:count("num_heads", 1, 2 ^ 16, 128), config:flag("use_bias", false)
      if inner % heads ~= 0 then config:refuse("num_heads", "a divisor of " .. inner) end
      config:only("head_dim", inner // heads .. ", so that all heads have " .. inner .. " elements", inner // heads)
      local low, high = fields.time_steps(config)
      c.mamba = {
        heads = heads, head_dim = inner // heads, groups = config:count("n_groups", 1, heads, 8),
        state = config:count("state_size", 1, 65536, 128), width = config:count("conv_kernel", 1, 1024, 4),
        bias = bias, out_bias = bias, conv_bias = config:flag("use_conv_bias", true), low = low, high = high,
        norm = "gated", norm_groups = 1, eps = c.norm_eps, activation = c.activation,
      }
      layers(config, c, "mamba")
      for _, name in ipairs { "chunk_size", "norm_before_gate", "rms_norm", "time_step_rank" } do config:value(name) end
    end,
  },
}
