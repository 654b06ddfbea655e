-- BertForSequenceClassification.lua - BERT with a classifier over the pooler's vector.
local hf = require "lib.hf"
local bert = require "hf/BertModel"

return function(config)
  return hf.classifier(config, bert(config, { pooling = "pooler", labels = hf.labels(config) }))
end
