#!/usr/bin/env python3
"""seq2seqs.py - as make.py, for encoder-decoders: greedy tokens, and beams with generation_config.json.

    /tmp/families/bin/python tests/models/families/seq2seqs.py [NAME...]      # from the top folder

`prompts` are sources. `logits` are those after the decoder's start token and a forced first token; `greedy` are the tokens
behind them, a forced last one included. `beams`: what generate makes with the generation config alone."""
import copy, functools, json, pathlib, re, shutil, sys, tempfile
import torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file

from make import HERE, TOKENS, config_of, packed, tensor, without

SOURCES = [[9, 2], [3, 61, 24, 90, 11, 45, 8, 77, 30, 12, 52, 19, 66, 33, 5, 71, 14, 88, 40, 6, 97, 28, 55, 17, 83, 2]]
MORE = 12  # new tokens of a search
OTHER = dict(forced_bos_token_id=71, forced_eos_token_id=5)  # of the searches `other`

COMMON = dict(vocab_size=101, dtype="float32")
T5 = dict(COMMON, d_model=48, d_kv=24, d_ff=88, num_layers=2, num_heads=3, decoder_start_token_id=0)
T5_GENERATION = dict(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
BART = dict(COMMON, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
            encoder_ffn_dim=88, decoder_ffn_dim=88, max_position_embeddings=72)
UNEVEN = dict(BART, decoder_layers=1, encoder_layers=3, encoder_attention_heads=2, encoder_ffn_dim=56)
BART_GENERATION = dict(decoder_start_token_id=2, pad_token_id=1, eos_token_id=2, bos_token_id=0)
LED = {k: v for k, v in BART.items() if k != "max_position_embeddings"} | dict(max_encoder_position_embeddings=72,
                                                                              max_decoder_position_embeddings=64)
FSMT = {k: v for k, v in UNEVEN.items() if k != "vocab_size"} | dict(langs=["en", "de"])
GEMMA = dict(vocab_size=101, hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=24, max_position_embeddings=72)
GEMMA_TIES = without("encoder.tie_word_embeddings", "decoder.tie_word_embeddings", "encoder.final_logit_softcapping", "vocab_size")
GEMMA_IDLE = ["classifier_dropout_rate", "dropout_rate"]
SEARCH = ["early_stopping", "langs", "length_penalty", "max_length"]
SWITCH = ["add_router_probs", "decoder_sparse_step", "encoder_sparse_step", "expert_capacity", "router_ignore_padding_tokens",
          "router_z_loss_coef", "router_jitter_noise"]
HEAD = [("lm_head.weight", (101, 48))]

# name: class, settings, generation config, changes of config.json, fields that others turn off, tensors beside the class's
CASES = {
    "t5": ("T5ForConditionalGeneration",
           dict(T5, relative_attention_num_buckets=10, relative_attention_max_distance=12, layer_norm_epsilon=1e-3),
           dict(T5_GENERATION, num_beams=4, num_return_sequences=3, length_penalty=0.5), {}),
    "t5-old": ("T5ForConditionalGeneration", dict(T5, num_heads=2, d_kv=16),
               dict(T5_GENERATION, num_beams=2, early_stopping=True),
               {"architectures": ["T5WithLMHeadModel"], "n_positions": 512, "output_past": True,
                **without("relative_attention_num_buckets", "relative_attention_max_distance", "layer_norm_epsilon",
                          "num_decoder_layers", "feed_forward_proj", "tie_word_embeddings", "dense_act_fn",
                          "is_gated_act", "scale_decoder_outputs")}),
    "flan-t5": ("T5ForConditionalGeneration",
                dict(T5, num_heads=4, d_kv=16, num_layers=3, num_decoder_layers=1, feed_forward_proj="gated-gelu",
                     tie_word_embeddings=False), dict(T5_GENERATION, num_beams=3),
                {"tie_word_embeddings": False, **without("scale_decoder_outputs")}, [], HEAD),
    "flan-t5-silu": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-silu", num_decoder_layers=1),
                     dict(T5_GENERATION), without("architectures"), [], HEAD),
    "mt5": ("MT5ForConditionalGeneration", dict(T5, relative_attention_num_buckets=12),
            dict(T5_GENERATION, num_beams=3, num_return_sequences=2), {}, [], HEAD),
    "mt5-old": ("MT5ForConditionalGeneration", dict(T5, num_heads=6, d_kv=16, d_ff=1024, feed_forward_proj="relu"),
                dict(T5_GENERATION), without("num_heads", "d_ff", "tie_word_embeddings")),
    "umt5": ("UMT5ForConditionalGeneration", dict(T5, relative_attention_num_buckets=8, relative_attention_max_distance=9),
             dict(T5_GENERATION, num_beams=2), {}),
    "switch": ("SwitchTransformersForConditionalGeneration",
               dict(T5, num_experts=5, num_layers=4, num_sparse_encoder_layers=2, num_sparse_decoder_layers=3, num_decoder_layers=3,
                    layer_norm_epsilon=1e-3, router_bias=True, relative_attention_num_buckets=8),
               dict(T5_GENERATION, num_beams=3, num_return_sequences=2), {}, SWITCH, (),
               [[9, 2], [96, 27, 27, 96, 91, 53, 86, 30, 86, 95, 30, 1]]),  # the second far from where another expert is chosen
    "switch-plain": ("SwitchTransformersForConditionalGeneration",
                     dict(T5, num_experts=8, num_heads=12, d_kv=16, num_layers=4, num_decoder_layers=3,
                          dense_act_fn="gelu_new"), dict(T5_GENERATION),
                     without("num_experts", "num_heads", "num_sparse_encoder_layers", "num_sparse_decoder_layers"), SWITCH),
    "m2m-100": ("M2M100ForConditionalGeneration", dict(UNEVEN),
                dict(BART_GENERATION, num_beams=4, num_return_sequences=2, forced_bos_token_id=57, length_penalty=2.0), {}),
    "m2m-100-plain": ("M2M100ForConditionalGeneration",
                      dict(BART, scale_embedding=False, activation_function="gelu", pad_token_id=4),
                      dict(BART_GENERATION, pad_token_id=4), without("tie_word_embeddings")),
    "mbart": ("MBartForConditionalGeneration", dict(UNEVEN, scale_embedding=True),
              dict(BART_GENERATION, num_beams=3, num_return_sequences=3, forced_bos_token_id=44, forced_eos_token_id=2), {}),
    "mbart-old": ("MBartForConditionalGeneration", dict(BART, activation_function="relu"), dict(BART_GENERATION),
                  {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": True,
                   "static_position_embeddings": False, "add_bias_logits": False, "classif_dropout": 0.0,
                   "num_hidden_layers": 2, **without("architectures", "scale_embedding", "tie_word_embeddings")}),
    "blenderbot": ("BlenderbotForConditionalGeneration", dict(UNEVEN, scale_embedding=True),
                   dict(BART_GENERATION, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, num_beams=3), {}, ["encoder_no_repeat_ngram_size"]),
    "blenderbot-small": ("BlenderbotSmallForConditionalGeneration", dict(UNEVEN, activation_function="relu"),
                         dict(BART_GENERATION, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, num_beams=2), {}),
    "plbart": ("PLBartForConditionalGeneration", dict(UNEVEN), dict(BART_GENERATION, num_beams=2), without("scale_embedding")),
    "mvp": ("MvpForConditionalGeneration", dict(BART, decoder_layers=1, activation_function="relu"), dict(BART_GENERATION, num_beams=2), {}, ["prompt_length", "prompt_mid_dim"]),
    "pegasus": ("PegasusForConditionalGeneration", dict(UNEVEN, scale_embedding=True, activation_function="relu"),
                dict(BART_GENERATION, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, num_beams=4,
                     length_penalty=0.6, forced_eos_token_id=1), {}),
    "pegasus-old": ("PegasusForConditionalGeneration", dict(BART),
                    dict(BART_GENERATION, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1),
                    {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False,
                     "static_position_embeddings": True, "extra_pos_embeddings": 1,
                     "force_bos_token_to_be_generated": False,
                     **without("scale_embedding", "activation_function", "tie_word_embeddings")}),
    "led": ("LEDForConditionalGeneration",
            dict(LED, encoder_layers=3, decoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=56, attention_window=[8, 4, 8]),
            dict(BART_GENERATION, num_beams=3, forced_bos_token_id=44), {}),
    "led-plain": ("LEDForConditionalGeneration", dict(LED, max_encoder_position_embeddings=512, activation_function="relu", attention_window=8),
                  dict(BART_GENERATION), without("tie_word_embeddings")),
    "bigbird-pegasus": ("BigBirdPegasusForConditionalGeneration", dict(UNEVEN, use_bias=True, block_size=4, num_random_blocks=2),
                        dict(BART_GENERATION, num_beams=3), without("scale_embedding", "activation_function")),
    "bigbird-pegasus-plain": ("BigBirdPegasusForConditionalGeneration",
                              dict(BART, scale_embedding=False, attention_type="original_full", activation_function="relu"),
                              dict(BART_GENERATION), without("use_bias"), ["block_size", "num_random_blocks"]),
    "fsmt": ("FSMTForConditionalGeneration", dict(FSMT, src_vocab_size=101, tgt_vocab_size=90, activation_function="gelu"),
             dict(BART_GENERATION, num_beams=3), {}, SEARCH),
    "fsmt-plain": ("FSMTForConditionalGeneration", dict(FSMT, src_vocab_size=101, tgt_vocab_size=101, scale_embedding=False),
                   dict(BART_GENERATION), without("activation_function"), SEARCH),
    "t5gemma": ("T5GemmaForConditionalGeneration",
                dict(encoder=dict(GEMMA, hidden_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, vocab_size=101,
                                  intermediate_size=56, sliding_window=3, attn_logit_softcapping=None, query_pre_attn_scalar=30),
                     decoder=dict(GEMMA, sliding_window=5, attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
                                  query_pre_attn_scalar=40, rms_norm_eps=1e-3), dtype="float32", vocab_size=101),
                dict(T5_GENERATION, decoder_start_token_id=2, num_beams=3), GEMMA_TIES, GEMMA_IDLE),
    "t5gemma-plain": ("T5GemmaForConditionalGeneration",
                      dict(encoder=dict(GEMMA, attn_logit_softcapping=2.0),
                           decoder=dict(GEMMA, attention_bias=True, final_logit_softcapping=None, attn_logit_softcapping=None),
                           dtype="float32", vocab_size=101, tie_word_embeddings=False),
                      dict(T5_GENERATION, decoder_start_token_id=2), GEMMA_TIES, GEMMA_IDLE),
    "bart": ("BartForConditionalGeneration", dict(UNEVEN, scale_embedding=True, activation_function="relu"),
             dict(BART_GENERATION, num_beams=2, forced_bos_token_id=0), {}),
    "marian": ("MarianMTModel", dict(UNEVEN, scale_embedding=True, activation_function="silu", pad_token_id=100,
                                   decoder_start_token_id=100),
               dict(BART_GENERATION, decoder_start_token_id=100, pad_token_id=100, eos_token_id=0, num_beams=3), {}),
    "marian-apart": ("MarianMTModel",
                     dict(BART, decoder_vocab_size=90, share_encoder_decoder_embeddings=False, pad_token_id=80,
                          decoder_start_token_id=80),
                     dict(BART_GENERATION, decoder_start_token_id=80, pad_token_id=80, eos_token_id=0), {}),
}


def computed(name):
    """Tables of sines, which some classes save."""
    return name.endswith("embed_positions.weight") or name.endswith("embed_positions.weights")


def share_biases(model):
    """The biases by distance of a side's first layer are those of all its layers, as in T5 and in the model that was published;
    Switch Transformers of this version of transformers has them in the first alone."""
    for side in (model.encoder, model.decoder):
        first = side.block[0].layer[0].SelfAttention
        for block in side.block[1:]:
            own = block.layer[0].SelfAttention
            own.has_relative_attention_bias, own.relative_attention_bias = True, first.relative_attention_bias


def made(name, settings, changes, generation, extra):
    """The model as loaded from a folder, its config.json, and the shapes of its tensors."""
    room, of = pathlib.Path(tempfile.mkdtemp()), getattr(transformers, name)
    torch.manual_seed(0)
    new = of(config_of(re.sub("ForCond.*|MTModel", "", name))(**settings))
    fixed = name.startswith("FSMT") or not any(computed(n) and p.requires_grad for n, p in new.named_parameters())
    new.save_pretrained(room)
    path = room / "model.safetensors"
    with safe_open(path, "pt") as f:
        tensors = {n: tensor(n, f.get_tensor(n)) for n in f.keys() if not (fixed and computed(n))}
    tensors.update((n, tensor(n, torch.empty(shape))) for n, shape in extra)
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((room / "config.json").read_text())
    for key, value in changes.items():
        *path, last = key.split(".")
        inside = functools.reduce(dict.__getitem__, path, config)
        inside.pop(last, None)
        if value is not None:
            inside[last] = value
    (room / "config.json").write_text(json.dumps(config))
    (room / "generation_config.json").write_text(json.dumps(generation))
    model, loaded = of.from_pretrained(room, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    missing = [k for k in loaded["missing_keys"] if not computed(k)]
    assert not any((missing, loaded["unexpected_keys"], loaded["mismatched_keys"])), loaded
    if name.startswith("Switch"):
        share_biases(model)
    shutil.rmtree(room)
    return model.eval(), config, {n: list(t.shape) for n, t in sorted(tensors.items())}


def greedy(model, source, generation):
    first = [generation["decoder_start_token_id"]]
    if "forced_bos_token_id" in generation:
        first.append(generation["forced_bos_token_id"])
    ids, margins, found = list(first), [], None
    for _ in range(TOKENS):
        logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        found = logits if found is None else found
        best = logits.topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float((best.values[0] - best.values[1]) / logits.abs().max()))
    if "forced_eos_token_id" in generation:
        ids[-1], margins[-1] = generation["forced_eos_token_id"], 1.0
    assert model.config.model_type != "m2m_100" or generation["pad_token_id"] not in ids, "a pad has no position"
    return {"ids": source, "logits": found.tolist(), "greedy": ids[len(first):],
            "margins": [float(f"{m:.3g}") for m in margins]}


def beams(model, source, eos, **more):
    out = model.generate(torch.tensor([source]), output_scores=True, return_dict_in_generate=True, max_new_tokens=MORE,
                         do_sample=False, **more)
    found = []
    for ids, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        ids = ids[1:]
        found.append({"ids": ids[:ids.index(eos) + 1] if eos in ids else ids, "score": float(f"{score:.7g}")})
    return found


def away(model, prompt, start):
    """How far the logits of the first token are from those of fp32, as a part of the largest of those."""
    want = torch.tensor(prompt["logits"])
    got = model(torch.tensor([prompt["ids"]]), decoder_input_ids=torch.tensor([start]), use_cache=False).logits[0, -1].float()
    return float(f"{float((got - want).abs().max() / want.abs().max()):.3g}")


def case(name, settings, generation, changes, idle=(), extra=(), sources=SOURCES):
    model, config, tensors = made(name, settings, changes, generation, extra)
    with torch.no_grad():
        prompts = [greedy(model, s, generation) for s in sources]
        if name.startswith("Switch"):  # of two experts that are nearly as good the other may be chosen in 16 bits
            for half, dtype in {"bf16": torch.bfloat16, "fp16": torch.float16}.items():
                rounded = copy.deepcopy(model).to(dtype)
                for p in prompts:
                    p[half] = away(rounded, p, [generation["decoder_start_token_id"]])
        if "num_beams" in generation:
            for p in prompts:
                p["beams"] = beams(model, p["ids"], generation["eos_token_id"])
                if "forced_bos_token_id" in generation:
                    p["other"] = beams(model, p["ids"], generation["eos_token_id"], **OTHER)
    return {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}", "config": config,
            "generation": generation, "idle": list(idle), "tensors": tensors, "prompts": prompts}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, it in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            out = case(*it)
            (HERE / f"{name}.json").write_text(packed(out))
            print(name, len(out["tensors"]), "tensors, least margin", min(min(p["margins"]) for p in out["prompts"]),
                  [[len(b["ids"]) for b in p.get("beams", [])] for p in out["prompts"]])
