-- altup.lua - alternating updates (Baykal et al. 2023) of Gemma 3n, for decoder.lua: a token has several rows. Each layer
-- predicts all of them from their values before it, computes one, and corrects the others by what was wrong with that one's
-- prediction.
--
-- c.altup, a table:
--   count, active       rows of a token; the one (from 0) that layers compute
--   scaled              what a layer adds of its own inputs is made of the corrected row times names.altup_scale
-- names.altup_in, altup_out: the products that make the rows 1, 2 .. of row 0, and back; altup_router, altup_norm,
-- altup_predict, altup_correct of each layer.
local nn = require "nn"

local altup = {}

local function project(x, name, outputs)
  return nn.linear(x, nn.weight(name .. ".weight", { outputs, nn.width(x) }))
end

-- x as large as `like`, whose root mean square is `size`.
local function resized(x, size)
  return x * size * nn.row_rms(x, { inverse = true, floor = 1e-5 })
end

-- The numbers by which rows are mixed: [T, outputs] of x [T, D].
local function coefficients(c, tools, x, name, matrix, outputs)
  local y = project(1 / c.hidden * tools.norm(c, x, name .. c.names.altup_norm), name .. c.names.altup_router, c.altup.count)
  return project(nn.act(y, "tanh"), name .. matrix, outputs)
end

-- All rows of a token, of its embedding h [T, D].
function altup.rows(c, h)
  local rows, size = { h }, nn.row_rms(h)
  for i = 1, c.altup.count - 1 do
    rows[i + 1] = resized(project(h, c.names.altup_in .. "." .. i - 1, c.hidden), size)
  end
  return rows
end

-- One row of them all.
function altup.sum(c, rows)
  local size, sum = nn.row_rms(rows[1]), rows[1]
  for i = 1, c.altup.count - 1 do
    sum = sum + resized(project(rows[i + 1], c.names.altup_out .. "." .. i - 1, c.hidden), size)
  end
  return 1 / c.altup.count * sum
end

-- Row i of the result is row i plus, over all rows j, coefficient (i, j) times row j.
function altup.predict(c, tools, rows, name)
  local n, made = c.altup.count, {}
  local by = coefficients(c, tools, rows[c.altup.active + 1], name, c.names.altup_predict, n * n)
  for i = 1, n do
    made[i] = rows[i]
    for j = 1, n do made[i] = made[i] + rows[j] * nn.slice(by, (i - 1) * n + j - 1, 1) end
  end
  return made
end

-- y: what the layer computed of the active row.
function altup.correct(c, tools, rows, y, name)
  local n, made = c.altup.count, {}
  local by = coefficients(c, tools, y, name, c.names.altup_correct, n)
  local wrong = y + -1 * rows[c.altup.active + 1]
  for i = 1, n do made[i] = rows[i] + wrong + wrong * nn.slice(by, i - 1, 1) end
  return made
end

-- The multiple of the standard deviation above the mean that a part p of normally distributed numbers does not reach.
function altup.quantile(p)
  local x = 0.0
  for _ = 1, 100 do
    local term, sum, k = x, x, 1
    while math.abs(term) > 1e-17 do
      k = k + 2
      term = term * x * x / k
      sum = sum + term
    end
    local density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    local step = (0.5 + density * sum - p) / density
    x = x - step
    if math.abs(step) < 1e-14 then break end
  end
  return x
end

return altup
