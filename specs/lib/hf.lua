-- hf.lua - reads the fields of a Hugging Face JSON file. Each mistake names the file and the field.
local ftx = require "ftx"
local rope = require "lib.rope"

local hf = {}

local function shown(v)
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) == "table" then return "a list or an object" end
  return v == nil and "nothing" or tostring(v)
end

local function is_empty(t)
  for _ in pairs(t) do return false end
  return true
end

local File = {}
File.__index = File

-- values: the object; prefix: its place in the file, as in "rope_scaling."
-- tensors: the names of the checkpoint's tensors; false or nil: not known.
function hf.file(path, values, prefix, tensors)
  return setmetatable({ path = path, values = values, prefix = prefix or "", tensors = tensors, read = {} }, File)
end

function File:refuse(key, expected)
  ftx.refuse(self.path, string.format("%s%s must be %s, got %s", self.prefix, key, expected, shown(self:value(key))))
end

-- A field; nil where it is missing or null. JSON's null is the only userdata in the table.
function File:value(key)
  self.read[key] = true
  local v = self.values[key]
  if type(v) == "userdata" then return nil end
  return v
end

-- The value of a field, or its default. Refuses a value that does not fit.
function File:get(key, default, expected, fits)
  local v = self:value(key)
  if v == nil then v = default end
  if v == nil or not fits(v) then self:refuse(key, expected) end
  return v
end

function File:count(key, low, high, default)
  local v = self:get(key, default, string.format("a whole number from %d to %d", low, high), function(v)
    return math.type(v) and v == math.floor(v) and v >= low and v <= high
  end)
  return math.tointeger(v)
end

function File:number(key, low, high, default)
  return self:get(key, default, string.format("a number from %g to %g", low, high), function(v)
    return math.type(v) and v >= low and v <= high
  end)
end

-- null is false, as in Python.
function File:flag(key, default)
  if self.values[key] ~= nil and self:value(key) == nil then return false end
  return self:get(key, default, "true or false", function(v) return type(v) == "boolean" end)
end

-- The value in `words` for the field, which must be one of its keys.
function File:word(key, words, default)
  local names = {}
  for name in pairs(words) do table.insert(names, name) end
  local v = self:get(key, default, "one of " .. table.concat(names, ", "), function(v)
    return type(v) == "string" and rawget(words, v) ~= nil
  end)
  return words[v]
end

-- An object in the file, as a File; nil if it is missing.
function File:inside(key)
  local v = self:value(key)
  if v == nil then return nil end
  if type(v) ~= "table" then self:refuse(key, "an object") end
  return hf.file(self.path, v, self.prefix .. key .. ".")
end

-- Refuses the field unless it is missing or one of the given values.
function File:only(key, expected, ...)
  local v = self:value(key)
  if v == nil then return end
  for i = 1, select("#", ...) do
    if v == select(i, ...) then return end
  end
  if type(v) == "table" and #v == 0 and expected == "empty" then return end
  self:refuse(key, expected)
end

-- Refuses a field that no method has read, unless it is in `harmless` or turned off: null, false or empty.
function File:known(harmless)
  for key, v in pairs(self.values) do
    local off = type(v) == "userdata" or v == false or v == "" or type(v) == "table" and is_empty(v)
    if not (self.read[key] or rawget(harmless, key) or off) then
      ftx.refuse(self.path, string.format("%s%s is not known; it may change the result", self.prefix, key))
    end
  end
end

-- Whether the checkpoint has a tensor of this name, perhaps after a prefix ("bert."); nil: not known.
function File:stored(name)
  if not self.tensors then return nil end
  for _, tensor in ipairs(self.tensors) do
    if tensor == name or string.sub(tensor, -#name - 1) == "." .. name then return true end
  end
  return false
end

-- Activation names of Hugging Face to those of nn.act.
hf.activations = {
  silu = "silu", swish = "silu", relu = "relu", gelu = "gelu_erf", quick_gelu = "quick_gelu",
  relu2 = "relu2", gelu_new = "gelu_tanh", gelu_pytorch_tanh = "gelu_tanh", gelu_fast = "gelu_tanh", tanh = "tanh",
}

-- A number as the weights' type holds it: some models round constants to it.
function hf.rounded(config, x)
  local bits = { fp32 = 24, float32 = 24, fp16 = 11, float16 = 11, bf16 = 8, bfloat16 = 8 }
  local kind = ftx.override("precision.weights") or config:value("dtype") or config:value("torch_dtype")
  local unit = 2.0 ^ (math.floor(math.log(x, 2)) + 1 - (bits[kind] or 24))
  return math.floor(x / unit + 0.5) * unit
end

-- The number of a classifier's classes: of id2label, else num_labels, else 2.
function hf.labels(config)
  local names, n = config:inside("id2label"), 0
  if not names then return config:count("num_labels", 1, 2 ^ 20, 2) end
  for _ in pairs(names.values) do n = n + 1 end
  return n
end

-- Adds the names of a classifier's classes and its scoring: sigmoid if several classes may be right.
function hf.classifier(config, model)
  local names, n = config:inside("id2label"), hf.labels(config)
  local kind = config:value("problem_type")
  model.labels = {}
  for i = 0, n - 1 do
    model.labels[i + 1] = names and names:get(tostring(i), nil, "a text", function(v) return type(v) == "string" end)
      or "LABEL_" .. i
  end
  model.scoring = kind == "regression" and "none"
    or (kind == "multi_label_classification" or n == 1) and "sigmoid" or "softmax"
  return model
end

-- Heads that are a linear of each token, with the name of its tensors.
hf.token_heads = { ForTokenClassification = "classifier", ForQuestionAnswering = "qa_outputs" }

-- Adds the names of the classes of each token: of an answer's first and last token two numbers that are no scores.
function hf.token_classifier(config, head, model)
  hf.classifier(config, model)
  model.scoring = "softmax"
  if head == "ForQuestionAnswering" then model.labels, model.scoring = { "start", "end" }, "none" end
  return model
end

-- Tokens of a sequence that the model is compiled for: -D limits.context, else what it can have, up to 4096.
function hf.context(positions)
  return tonumber(ftx.override("limits.context") or nil) or math.min(positions, 4096)
end

-- The field as a list of n numbers.
local function numbers(file, key, n)
  return file:get(key, nil, "a list of " .. n .. " positive numbers", function(v)
    for i = 1, n do
      if type(v) ~= "table" or #v ~= n or not math.type(v[i]) or v[i] <= 0 then return false end
    end
    return true
  end)
end

-- A number that may be missing.
local function maybe(file, key)
  return file:value(key) and file:number(key, 1e-6, 1e6) or nil
end

-- Kinds of scaling: functions of the object in the file, theta, the elements that are rotated, and the longest text.
local scaled = {}

function scaled.linear(at, theta, dim)
  return { theta = theta, dim = dim, scaling = { kind = "linear", factor = at:number("factor", 1, 1e6) } }
end

function scaled.llama3(at, theta, dim)
  local scaling = {
    kind = "llama3",
    factor = at:number("factor", 1, 1e6),
    low = at:number("low_freq_factor", 1e-6, 1e6),
    high = at:number("high_freq_factor", 1e-6, 1e6),
    original = at:count("original_max_position_embeddings", 1, 2 ^ 30),
  }
  if scaling.high < scaling.low then
    at:refuse("high_freq_factor", "low_freq_factor " .. scaling.low .. " or more")
  end
  if scaling.high == scaling.low then return rope.slowed(theta, dim, scaling.factor, scaling.original / scaling.low) end
  return { theta = theta, dim = dim, scaling = scaling }
end

function scaled.dynamic(at, theta, dim, positions)
  return rope.dynamic(theta, dim, at:number("factor", 1, 1e6), positions, hf.context(positions))
end

function scaled.yarn(at, theta, dim, positions, beside)
  local original = (beside or at):count("original_max_position_embeddings", 1, 2 ^ 30, positions)
  return rope.yarn(theta, dim, {
    original = original,
    factor = at:number("factor", 1, 1e6, positions / original),
    fast = at:number("beta_fast", 1e-6, 1e6, 32),
    slow = at:number("beta_slow", 1e-6, 1e6, 1),
    truncate = at:flag("truncate", true),
    amplitude = maybe(at, "attention_factor"),
    mscale = maybe(at, "mscale"),
    mscale_all = maybe(at, "mscale_all_dim"),
  })
end

function scaled.longrope(at, theta, dim, positions, beside)
  local original = (beside or at):count("original_max_position_embeddings", 2, 2 ^ 30, positions)
  return rope.longrope(theta, dim, {
    original = original,
    context = hf.context(positions),
    factor = at:number("factor", 1e-6, 1e6, positions / original),
    short = numbers(at, "short_factor", dim // 2),
    long = numbers(at, "long_factor", dim // 2),
    amplitude = maybe(at, "attention_factor"),
  })
end
scaled.su = scaled.longrope

-- rope_scaling, or rope_parameters where that is missing or empty; then rope_parameters alone.
function hf.rope_object(config)
  local new, old = config:inside("rope_parameters"), config:inside("rope_scaling")
  return old and not is_empty(old.values) and old or new, new
end

-- The options of nn.rope, from rope_scaling or rope_parameters. If both are there, transformers 5 reads rope_scaling
-- alone unless it is empty; what that lacks (rope_theta) comes from the fields beside it.
-- positions: max_position_embeddings; names: other names of the fields theta and partial, which stand beside it; class:
-- their values theta and partial if no field says so. With a class every field must be known, or in its rope_fields.
function hf.rope(config, head_dim, positions, names, class)
  local at, new = hf.rope_object(config)
  local kinds = { default = "none", proportional = "proportional" }
  for name in pairs(scaled) do kinds[name] = name end
  if class and class.mrope then kinds.mrope = "none" end            -- of text alone all sections of a head have one position
  local function place(key, beside)
    config:value(beside or key)                                     -- the object's own goes before it
    if at and at:value(key) then return at, key end
    return config, beside or key
  end
  local theta_at, theta_name = place("rope_theta", names and names.theta)
  local theta = theta_at:number(theta_name, 1, 1e12, class and class.theta or 10000.0)
  local partial, partial_name = place("partial_rotary_factor", names and names.partial)
  local part = partial:number(partial_name, 0, 1, class and class.partial or 1.0)
  local kind = at and at:word(at:value("rope_type") and "rope_type" or "type", kinds, at == new and "default" or nil)
  local dim = math.tointeger(math.floor(head_dim * part))
  local beside = config:value("original_max_position_embeddings") and config
  local made = { theta = theta, dim = dim }
  if kind == "proportional" then
    made = rope.proportional(theta, head_dim, part, at:number("factor", 1, 1e6, 1.0))
  elseif dim % 2 ~= 0 or dim < 2 then
    partial:refuse(partial_name, "a part of head_dim " .. head_dim .. " that is even")
  elseif scaled[kind] then
    made = scaled[kind](at, theta, dim, positions, beside)
  end
  local known = { type = true, original_max_position_embeddings = true }
  if class and class.mrope then known.mrope_section, known.mrope_interleaved, known.interleaved = true, true, true end
  for _, name in ipairs(class and class.rope_fields or {}) do known[name] = true end
  if at and (made.freqs or class) then at:known(known) end
  return made
end

-- Rotary positions of layers that see all of the text and of windowed ones: rope_parameters by kind of layer, or in older
-- files rope_theta and rope_scaling for the first, rope_local_base_freq for the second. near_dim: head_dim of the windowed ones, if
-- it is another. both: theta of both, if the file has none; then rope_theta of older files is that of both.
function hf.two_ropes(config, head_dim, positions, near_dim, both)
  local new, whole, windowed = config:inside("rope_parameters"), { theta = both or 1000000.0 }, {}
  local near = config:number(both and "rope_theta" or "rope_local_base_freq", 1, 1e12, both or 10000.0)
  windowed.theta = near
  if new then whole.theta = config:number("rope_theta", 1, 1e12, whole.theta) end
  if not new then return hf.rope(config, head_dim, positions, nil, whole), { theta = near, dim = near_dim or head_dim } end
  local function of(kind, class, dim)
    local values = new:inside(kind)
    if values and (values:value("rope_type") or values:value("type") or "default") == "default" then
      values:only("partial_rotary_factor", "1 with rope_type default", 1.0)
    end
    return hf.rope(hf.file(config.path, { rope_parameters = values and values.values }), dim, positions, nil, class)
  end
  local made, other = of("full_attention", whole, head_dim), of("sliding_attention", windowed, near_dim or head_dim)
  new:known { rope_theta = true }                                   -- of no kind
  return made, other
end

-- RoPE of a kind of layer; old: its theta in older files, with the class's.
function hf.rope_of_kind(config, kind, head_dim, positions, old, theta)
  local new = config:inside("rope_parameters")
  local values = new and new:inside(kind)
  return hf.rope(hf.file(config.path, { rope_parameters = values and values.values }), head_dim, positions, nil,
                 { theta = config:number(old, 1, 1e12, theta) })
end

-- The same of classes whose layers of both kinds may turn a part of each head. class: fields of hf.rope's class for both.
function hf.ropes_by_kind(config, head_dim, positions, class)
  local new, made = config:inside("rope_parameters"), {}
  for i, kind in ipairs { "full_attention", "sliding_attention" } do
    local values = new and new:inside(kind) or config:refuse("rope_parameters", "an object with " .. kind)
    local kind = values:value("rope_type") or "default"             -- others turn all of a head if no field says it
    made[i] = hf.rope(hf.file(config.path, { rope_parameters = values.values }), head_dim, positions, nil,
                      setmetatable({ partial = kind == "default" and class.partial or 1.0 }, { __index = class }))
  end
  new:known {}
  return made[1], made[2]
end

return hf
