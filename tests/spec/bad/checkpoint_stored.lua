-- checkpoint_stored.lua:3: checkpoint: stored must be a list of pairs: a tensor's name, and the weight's
local nn = require "nn"
nn.checkpoint { stored = { "blk.*.attn_q" } }
