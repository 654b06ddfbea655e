-- DistilBertForSequenceClassification.lua - DistilBERT with a classifier of two linears over the first
-- token.
local hf = require "lib.hf"
local distilbert = require "hf/DistilBertModel"

return function(config)
  return hf.classifier(config, distilbert(config, { pooling = "head", labels = hf.labels(config) }))
end
