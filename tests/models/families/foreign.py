"""foreign.py - families whose published checkpoints bring their code with them, and that a class of transformers computes, too,
under other names: for make.py the tensors' names and config.json as those files have them."""
import re
import torch

INTERNLM2 = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "self_attn.o_proj": "attention.wo",
             "self_attn.wqkv": "attention.wqkv", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}


def renamed(tensors, names):
    def one(name):
        for old, new in names.items():
            name = re.sub(rf"(^|\.){re.escape(old)}(?=\.)", lambda m: m[1] + new, name)
        return name
    return {one(n): t for n, t in tensors.items()}


class InternLM2:
    """Llama with one matrix for each layer's q, k and v: for each head of keys its queries, its key, its value."""

    def __init__(self, config):
        self.config, self.size = config, config["hidden_size"] // config["num_attention_heads"]

    def join(self, tensors):
        made = {n: t for n, t in tensors.items() if not re.search(r"[qkv]_proj", n)}
        for name, q in tensors.items():
            if ".q_proj." in name:
                k, v = (tensors[name.replace("q_proj", part)] for part in ("k_proj", "v_proj"))
                groups = self.config["num_key_value_heads"]
                parts = [t.reshape(groups, -1, *t.shape[1:]) for t in (q, k, v)]
                made[name.replace("q_proj", "wqkv")] = torch.cat(parts, 1).flatten(0, 1)
        return renamed(made, INTERNLM2)

    def split(self, tensors):
        made, groups = {}, self.config["num_key_value_heads"]
        for name, t in renamed(tensors, {new: old for old, new in INTERNLM2.items()}).items():
            if ".wqkv." not in name:
                made[name] = t
                continue
            t = t.reshape(groups, -1, *t.shape[1:])
            for part, rows in zip("qkv", t.split([t.shape[1] - 2 * self.size, self.size, self.size], 1)):
                made[name.replace("wqkv", part + "_proj")] = rows.flatten(0, 1).contiguous()
        return made

    def file(self):
        c = self.config
        kept = ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
                "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "bos_token_id",
                "eos_token_id", "pad_token_id"]
        return {**{k: c[k] for k in kept}, "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2",
                "torch_dtype": "float32", "bias": c["attention_bias"], "attn_implementation": "eager",
                "rope_theta": c["rope_parameters"]["rope_theta"], "rope_scaling": None}


class MiniCPM:
    """Granite with its multipliers under other names."""

    def __init__(self, config):
        self.config = config

    def join(self, tensors):
        return tensors

    split = join

    def file(self):
        c = {k: v for k, v in self.config.items() if not re.search("multiplier|logits_scaling|rope_parameters", k)}
        return {**c, "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "rope_scaling": None,
                "rope_theta": self.config["rope_parameters"]["rope_theta"], "scale_emb": self.config["embedding_multiplier"],
                "scale_depth": self.config["residual_multiplier"] * c["num_hidden_layers"] ** 0.5,
                "dim_model_base": round(c["hidden_size"] / self.config["logits_scaling"])}


class Transposed:
    """Experts with their inputs first, as they are published; transformers writes them the other way and reads both."""

    def __init__(self, config):
        self.config = config

    def join(self, tensors):
        return {n: t.transpose(1, 2).contiguous() if ".experts." in n else t for n, t in tensors.items()}

    def split(self, tensors):
        return tensors

    def file(self):
        self.config["text_config"].pop("tie_word_embeddings")
        return {**self.config, "transformers_version": "4.57.1"}


class Phi4MM:
    """Phi-3 whose matrices have adapters beside them."""

    MATRICES = "qkv_proj", "o_proj", "gate_up_proj", "down_proj"

    def __init__(self, config):
        self.config = config

    def join(self, tensors):
        made = renamed(tensors, {m: m + ".base_layer" for m in self.MATRICES})
        for name in list(made):
            if ".base_layer." in name:
                made[name.replace("base_layer", "lora_A.vision")] = torch.empty(4, 48)
                made[name.replace("base_layer", "lora_B.speech")] = torch.empty(48, 4)
        made["model.embed_tokens_extend.image_embed.glb_GN"] = torch.empty(1, 4)
        return made

    def split(self, tensors):
        return {n.replace(".base_layer", ""): t for n, t in tensors.items() if ".lora_" not in n and "_extend" not in n}

    def file(self):
        return {**self.config, "architectures": ["Phi4MMForCausalLM"], "model_type": "phi4mm", "attention_bias": False,
                "lm_head_bias": False, "mlp_bias": False}
