-- config.lua - checks the table that a family is called with: every field is known and in its range.
--
--   local c = config.read("llama", given, { layers = config.count(1, 1000), bias = config.flag(false) })
--
-- -D graph.layers=2 replaces the value in the table.
--
-- A mistake is reported at the line that called the family.
local ftx = require "ftx"

local config = {}

local function shown(v)
  if type(v) == "string" then return string.format("%q", v) end
  if type(v) == "number" or type(v) == "boolean" then return tostring(v) end
  return v == nil and "nothing" or "a " .. type(v)
end

-- A whole number in low..high; without a default it must be given.
function config.count(low, high, default)
  return {
    default = default,
    what = string.format("a whole number from %d to %d", low, high),
    fits = function(v) return math.type(v) and v == math.floor(v) and v >= low and v <= high end,
    take = function(v) return math.tointeger(v) end,
  }
end

-- A finite number above low and up to high.
function config.number(low, high, default)
  return {
    default = default,
    what = string.format("a number above %g and up to %g", low, high),
    fits = function(v) return math.type(v) and v > low and v <= high end,
  }
end

function config.flag(default)
  return { default = default, what = "true or false", fits = function(v) return type(v) == "boolean" end }
end

-- One of a list of words.
function config.word(words, default)
  return {
    default = default,
    what = "one of " .. table.concat(words, ", "),
    fits = function(v)
      for _, w in ipairs(words) do
        if v == w then return true end
      end
      return false
    end,
  }
end

-- A table that another function checks.
function config.options(default)
  return { default = default, what = "a table", fits = function(v) return type(v) == "table" end }
end

-- The activations that nn.act knows.
config.activations = { "silu", "gelu_erf", "gelu_tanh", "quick_gelu", "relu", "tanh", "relu2", "sigmoid" }

-- The value of -D graph.NAME=; nil: there is none.
local function overridden(name, field)
  local path = "graph." .. name
  local text = ftx.override(path)
  if text == nil then return nil end
  local v = tonumber(text) or text
  if text == "true" or text == "false" then v = text == "true" end
  if not field.fits(v) then ftx.refuse("-D " .. path .. "=" .. text, name .. " must be " .. field.what) end
  return v
end

function config.read(family, given, fields)
  local c, names = {}, {}
  for name in pairs(fields) do table.insert(names, name) end
  if type(given) ~= "table" then
    error(string.format("%s takes a table with the fields %s, got %s", family, table.concat(names, ", "),
                        shown(given)), 3)
  end
  for name in pairs(given) do
    if fields[name] == nil then
      error(string.format("%s: there is no field '%s'; the fields are: %s", family, tostring(name),
                          table.concat(names, ", ")), 3)
    end
  end
  for name, field in pairs(fields) do
    local v = overridden(name, field)
    if v == nil then v = given[name] end
    if v == nil then
      if field.default == nil then
        error(string.format("%s: %s is missing; it must be %s", family, name, field.what), 3)
      end
      v = field.default
    elseif not field.fits(v) then
      error(string.format("%s: %s must be %s, got %s", family, name, field.what, shown(v)), 3)
    elseif field.take then
      v = field.take(v)
    end
    c[name] = v
  end
  return c
end

-- Sets kv_heads and head_dim of heads that are equal parts of hidden. Mistakes: at the line that called the family.
function config.split_hidden(family, c)
  if c.hidden % c.heads ~= 0 then
    error(string.format("%s: hidden must be a multiple of heads, got %d and %d", family, c.hidden, c.heads), 3)
  end
  c.kv_heads, c.head_dim = c.heads, c.hidden // c.heads
  config.check_heads(family, c, 4)
end

-- Checks that the heads can be compiled. Mistakes: at the line that called the family.
function config.check_heads(family, c, level)
  level = level or 3
  if c.heads % c.kv_heads ~= 0 then
    error(string.format("%s: heads must be a multiple of kv_heads, got %d and %d", family, c.heads, c.kv_heads), level)
  end
  if c.head_dim % 8 ~= 0 or c.head_dim < 16 or c.head_dim > 576 then
    error(string.format("%s: head_dim must be a multiple of 8 from 16 to 576, got %d", family, c.head_dim), level)
  end
end

return config
