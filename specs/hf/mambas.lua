-- mambas.lua - as decoders.lua, for decoders whose layers are Mamba alone (lib/recurrent.lua): no attention, no feed-forward.
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

local selective_names = { selective_in = "mixer.x_proj", selective_dt = "mixer.dt_proj" }

-- Mamba of the first kind. eps: of norms within the layers; nil: there are none
local function selective(config, c, eps)
  local bias, rank = config:flag("use_bias", false), (c.hidden + 15) // 16
  c.selective = {
    inner = config:count("intermediate_size", 1, 2 ^ 20, config:count("expand", 1, 64, 2) * c.hidden),
    state = config:count("state_size", 1, 65536, 16), width = config:count("conv_kernel", 1, 1024, 4),
    rank = config:value("time_step_rank") == "auto" and rank or config:count("time_step_rank", 1, 65536, rank),
    bias = bias, out_bias = bias, conv_bias = config:flag("use_conv_bias", true), eps = eps, activation = c.activation,
  }
  layers(config, c, "selective")
  for _, name in ipairs { "use_associative_scan", "use_falcon_mambapy", "use_mambapy" } do config:value(name) end
end

return {
  MambaForCausalLM = alone {
    type = "mamba", tie = true, names = selective_names,
    set = function(config, c)
      selective(config, c)
      for _, name in ipairs { "d_inner", "d_model", "fused_add_norm", "n_layer", "pad_vocab_size_multiple", "rms_norm", "ssm_cfg" } do
        config:value(name)
      end
    end,
  },
  FalconMambaForCausalLM = alone {
    type = "falcon_mamba", tie = true, names = selective_names,
    set = function(config, c) selective(config, c, config:number("mixer_rms_eps", 1e-30, 1, 1e-6)) end,
  },
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
