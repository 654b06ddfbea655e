-- longformer.lua - what config.json and checkpoints of Longformer and LED's encoder have in common: windows by layer, and
-- projections of global tokens, which are not computed.

-- attention: the tensors' name in front of "query". Returns the tokens on either side that a layer sees, and the unused tensors.
return function(config, layers, attention)
  local given, windows, unused = config:value("attention_window"), {}, {}
  for i = 1, layers do
    local window = given or 512
    if type(given) == "table" then window = #given == layers and given[i] end
    if math.type(window) ~= "integer" or window < 2 or window % 2 == 1 then
      config:refuse("attention_window", "an even number of 2 or more, or a list with one for each layer of the encoder")
    end
    windows[i] = window // 2
  end
  for _, part in ipairs { "query", "key", "value" } do
    for _, kind in ipairs { "weight", "bias" } do
      table.insert(unused, attention .. part .. "_global." .. kind)
    end
  end
  config:only("attention_mode", "longformer", "longformer")
  return windows, unused
end
