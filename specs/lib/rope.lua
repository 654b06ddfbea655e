-- rope.lua - frequencies of rotary positions for contexts longer than that of the training: options of nn.rope.
--
-- theta: the base; dim: elements of a head that are rotated; factor: how many times as long the context becomes;
-- original: the context of the training. Computed in doubles, as transformers' modeling_rope_utils does in fp32.
local rope = {}

-- theta ^ (-2i / dim) for i < pairs
local function plain(theta, dim, pairs)
  local freqs = {}
  for i = 0, (pairs or dim // 2) - 1 do freqs[i + 1] = theta ^ (-2 * i / dim) end
  return freqs
end

-- The same the other way round; nil: options with scaling.
function rope.backwards(options)
  local made, freqs = { dim = options.dim, amplitude = options.amplitude }, options.freqs
  if not freqs and options.scaling then return nil end
  made.freqs = {}
  for i, f in ipairs(freqs or plain(options.theta, options.dim)) do made.freqs[i] = -f end
  return made
end

-- Position interpolation. Chen et al. 2023.
function rope.linear(theta, dim, factor)
  local freqs = plain(theta, dim)
  for i, f in ipairs(freqs) do freqs[i] = f / factor end
  return { dim = dim, freqs = freqs }
end

-- Pairs that turn less than once in `wave` positions are interpolated: Llama 3's way without a blend, as Llama 4 has it.
function rope.slowed(theta, dim, factor, wave)
  local freqs = plain(theta, dim)
  for i, f in ipairs(freqs) do
    if 2 * math.pi / f > wave then freqs[i] = f / factor end
  end
  return { dim = dim, freqs = freqs }
end

-- A larger base, so that the slowest pair turns 1 / factor as fast and the fastest as before ("NTK-aware").
function rope.ntk(theta, dim, factor)
  return { dim = dim, freqs = plain(theta * factor ^ (dim / (dim - 2)), dim) }
end

-- NTK-aware by the length of the context. It is that of the compiled context for all positions, since the keys in the
-- cache are rotated once.
function rope.dynamic(theta, dim, factor, original, context)
  return rope.ntk(theta, dim, factor * math.max(context, original) / original - (factor - 1))
end

-- The first `part` of a head's pairs with the frequencies of the whole head; the others are not rotated.
function rope.proportional(theta, head_dim, part, factor)
  local freqs = plain(theta, head_dim, math.tointeger(part * head_dim // 2))
  for i = 1, head_dim // 2 do freqs[i] = freqs[i] and freqs[i] / (factor or 1) or 0 end
  return { dim = head_dim, freqs = freqs }
end

local function mscale(factor, by)
  return factor <= 1 and 1 or 0.1 * by * math.log(factor) + 1
end

-- Pairs that turn more than `fast` times in the original context stay, those that turn less than `slow` times are
-- interpolated, between them a blend. Peng et al. 2023.
--
-- o: factor, original; fast = 32, slow = 1; truncate = true: the blend's bounds are whole numbers; amplitude, or mscale
-- and mscale_all
function rope.yarn(theta, dim, o)
  local freqs = plain(theta, dim)
  local function pair_that_turns(times)
    return dim * math.log(o.original / (times * 2 * math.pi)) / (2 * math.log(theta))
  end
  local low, high = pair_that_turns(o.fast or 32), pair_that_turns(o.slow or 1)
  if o.truncate ~= false then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, dim - 1)
  if low == high then high = high + 0.001 end
  for i, f in ipairs(freqs) do
    local interpolated = math.min(math.max((i - 1 - low) / (high - low), 0), 1)
    freqs[i] = f / o.factor * interpolated + f * (1 - interpolated)
  end
  local scaled = o.mscale and o.mscale_all and mscale(o.factor, o.mscale) / mscale(o.factor, o.mscale_all)
  return { dim = dim, freqs = freqs, amplitude = o.amplitude or scaled or mscale(o.factor, 1) }
end

-- A divisor for each pair: `short`, or `long` if the compiled context is longer than the original one. Ding et al. 2024.
--
-- o: short, long, factor, original, context; amplitude
function rope.longrope(theta, dim, o)
  local freqs, by = plain(theta, dim), o.context > o.original and o.long or o.short
  for i, f in ipairs(freqs) do freqs[i] = f / by[i] end
  local amplitude = o.factor <= 1 and 1 or math.sqrt(1 + math.log(o.factor) / math.log(o.original))
  return { dim = dim, freqs = freqs, amplitude = o.amplitude or amplitude }
end

return rope
