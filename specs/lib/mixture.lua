-- mixture.lua - feed-forwards of which a router chooses some for each token, and shared ones, for decoder.lua.
--
-- c.experts, a table:
--   count, k, ffn       experts, those of a token, rows of the gate of each
--   dense               by layer: true if the layer has a feed-forward in place of experts
--   shared              rows of the gate of a shared expert, which is added for all tokens. With names.shared_router its
--                       result is multiplied with the sigmoid of one logit
--   average             half of the sum of both is added
--   shared_bias         a shared expert without such a router has biases
--   order, score, renorm, groups, groups_kept, group_by, scale, near    of nn.route
--   router_bias         the router's product has a bias
--   choice_bias         names.router_choice: a bias of the scores for the choice alone
--   suffix              what follows the names of the experts' matrices: ".weight"
--   transposed          those lie with their inputs first
--   flat                those are rows of one tensor [count*ffn, hidden], those of down with their inputs first
--   interleaved         names.expert_gate_up has rows of the gate and of up in turn
--   bias                experts have biases: names with "_bias" behind them
--   limit, alpha        gates within limits (nn.experts)
--   weigh_input         the weights of the chosen experts are multiplied with their inputs
--   width               experts read and give so many elements: names.expert_in and expert_out, linears, are before and behind
--                       them, with biases if `shared_bias`. nil: hidden
-- Without names.expert_gate and expert_gate_up an expert is an activation between two products; so is a shared one without
-- names.shared_gate and shared_gate_up.
local nn = require "nn"

-- w [n*N, K] of a stack; its tensors are [N, K], or transposed [K, N].
local function stack(e, name, part, rows, columns)
  if not part then return nil end
  name = name .. part .. (e.suffix or ".weight")
  if e.flat and rows == e.ffn then return nn.weight(name, { e.count * rows, columns }) end
  if e.flat then return nn.transpose(nn.weight(name, { e.count * columns, rows }), e.count) end
  if not e.transposed then return nn.stack(name, { e.count, rows, columns }) end
  return nn.transpose(nn.stack(name, { e.count, columns, rows }), e.count)
end

local function chosen(c, x, name)                                   -- x [T, D]
  local n, e = c.names, c.experts
  local logits = nn.linear(x, nn.weight(name .. n.router .. ".weight", { e.count, c.hidden }),
                           e.router_bias and nn.weight(name .. n.router .. ".bias", { e.count }))
  local routes = nn.route(logits, {
    k = e.k, order = e.order, score = e.score, renorm = e.renorm, groups = e.groups, groups_kept = e.groups_kept,
    group_by = e.group_by, scale = e.scale, near = e.near,
    bias = e.choice_bias and nn.weight(name .. n.router_choice, { e.count }),
  })
  local several = e.weigh_input and e.k > 1
  if e.weigh_input and not several then
    x = x * nn.route_weights(routes)                                -- [T, D] * [T, 1]
    routes = nn.route(logits, { k = 1, order = "topk_softmax" })    -- the same expert, its weight is 1
  end
  local function bias(part, rows)
    return e.bias and nn.stack(name .. part .. "_bias", { e.count, rows }) or nil
  end
  local function narrowed(x, part, outputs)
    if not e.width then return x end
    return nn.linear(x, nn.weight(name .. part .. ".weight", { outputs, nn.width(x) }),
                     e.shared_bias and nn.weight(name .. part .. ".bias", { outputs }))
  end
  local width = e.width or c.hidden
  local y = nn.experts(narrowed(x, n.expert_in, width), routes, {   -- [T, width]
    gate = stack(e, name, n.expert_gate, e.ffn, width), up = stack(e, name, n.expert_up, e.ffn, width),
    gate_up = stack(e, name, n.expert_gate_up, 2 * e.ffn, width),
    down = stack(e, name, n.expert_down, width, e.ffn),
    gate_up_bias = bias(n.expert_gate_up, 2 * e.ffn), down_bias = bias(n.expert_down, c.hidden),
    weigh_input = several or nil,
    interleaved = e.interleaved, kind = not e.limit and c.activation or nil, limit = e.limit, alpha = e.alpha,
  })
  return narrowed(y, n.expert_out, c.hidden)                        -- [T, D]
end

-- The shared expert. One with a gate of its own is a mixture of one expert.
local function shared(c, x, name)
  local n, e = c.names, c.experts
  local function weight(part, rows, columns) return nn.weight(name .. part .. ".weight", { rows, columns }) end
  local function bias(part, rows) return e.shared_bias and nn.weight(name .. part .. ".bias", { rows }) or nil end
  local gate, up
  if not n.shared_gate_up and not n.shared_gate then
    local y = nn.linear(x, weight(n.shared_up, e.shared, c.hidden), bias(n.shared_up, e.shared))
    return nn.linear(nn.act(y, c.activation), weight(n.shared_down, c.hidden, e.shared), bias(n.shared_down, c.hidden))
  end
  if n.shared_gate_up then                                          -- rows of the gate, then those of up
    local both = weight(n.shared_gate_up, 2 * e.shared, c.hidden)
    gate, up = nn.rows(both, 0, e.shared), nn.rows(both, e.shared, e.shared)
  else
    gate, up = weight(n.shared_gate, e.shared, c.hidden), weight(n.shared_up, e.shared, c.hidden)
  end
  local down = weight(n.shared_down, c.hidden, e.shared)
  if not n.shared_router then
    local y = nn.glu(nn.linear(x, gate, bias(n.shared_gate, e.shared)), nn.linear(x, up, bias(n.shared_up, e.shared)),
                     c.activation)
    return nn.linear(y, down, bias(n.shared_down, c.hidden))
  end
  local logit = nn.linear(x, nn.weight(name .. n.shared_router .. ".weight", { 1, c.hidden }))
  return nn.experts(x, nn.route(logit, { k = 1, score = "sigmoid" }),
                    { gate = gate, up = up, down = down, kind = c.activation })
end

return function(c, x, name)
  local y = chosen(c, x, name)
  if not c.experts.shared then return y end
  y = y + shared(c, x, name)
  return c.experts.average and 0.5 * y or y
end
