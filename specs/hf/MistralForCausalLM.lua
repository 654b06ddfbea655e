-- MistralForCausalLM.lua - a LLaMA whose tokens see `sliding_window` keys, which is a field that
-- the reader of LLaMA's config.json knows. Its default is 4096 where the field is missing; null,
-- which Lua shows as missing too, is written by every version since 0.2, so missing means all.
return require "hf/LlamaForCausalLM"
