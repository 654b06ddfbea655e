-- RobertaForSequenceClassification.lua - RoBERTa with a classifier of two linears over the first token.
local hf = require "lib.hf"
local roberta = require "hf/RobertaModel"

return function(config)
  return hf.classifier(config, roberta(config, { pooling = "head", labels = hf.labels(config) }))
end
