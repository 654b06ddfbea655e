"""mpt.py - MPT with what MosaicML's own code computes and transformers' class does not read, for make.py: learned positions, norms
of queries and keys, biases, other norms and widths, fewer heads of keys, scaled logits. Where the config has none of these the
class is that of transformers."""
import torch
import transformers
from transformers.models.mpt import modeling_mpt

NORMS = {"low_precision_layernorm": torch.nn.LayerNorm, "layernorm": torch.nn.LayerNorm,
         "low_precision_rmsnorm": torch.nn.RMSNorm, "rmsnorm": torch.nn.RMSNorm}


class MPTConfig(transformers.PreTrainedConfig):
    model_type = "mpt"
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}

    def __init__(self, tie_word_embeddings=True, **settings):
        super().__init__(tie_word_embeddings=tie_word_embeddings, **settings)


class Attention(torch.nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        at = c.attn_config
        self.heads, self.size = c.n_heads, c.d_model // c.n_heads
        self.kv_heads = {"multihead_attention": c.n_heads, "multiquery_attention": 1,
                         "grouped_query_attention": at.get("kv_n_heads")}[at["attn_type"]]
        self.clip, self.scale = at.get("clip_qkv"), at.get("softmax_scale") or self.size ** -0.5
        kv = self.kv_heads * self.size
        self.Wqkv = torch.nn.Linear(c.d_model, c.d_model + 2 * kv)
        self.out_proj = torch.nn.Linear(c.d_model, c.d_model)
        if at.get("qk_ln"):
            self.q_ln, self.k_ln = norm(c.d_model), norm(kv)

    def forward(self, x, bias):
        n = x.shape[1]
        qkv = self.Wqkv(x)
        if self.clip:
            qkv = qkv.clamp(-self.clip, self.clip)
        q, k, v = qkv.split([self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size], -1)
        if hasattr(self, "q_ln"):
            q, k = self.q_ln(q), self.k_ln(k)
        q = q.view(1, n, self.heads, self.size)
        k, v = (t.view(1, n, self.kv_heads, self.size).repeat_interleave(self.heads // self.kv_heads, 2) for t in (k, v))
        scores = torch.einsum("bihe,bjhe->bhij", q, k) * self.scale + bias
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.out_proj(torch.einsum("bhij,bjhe->bihe", (scores + mask).softmax(-1), v).reshape(1, n, -1))


class Block(torch.nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        inner = int(c.expansion_ratio * c.d_model)
        self.norm_1, self.norm_2, self.attn, self.ffn = norm(c.d_model), norm(c.d_model), Attention(c, norm), torch.nn.Module()
        self.ffn.up_proj, self.ffn.down_proj = torch.nn.Linear(c.d_model, inner), torch.nn.Linear(inner, c.d_model)

    def forward(self, h, bias):
        h = h + self.attn(self.norm_1(h), bias)
        return h + self.ffn.down_proj(torch.nn.functional.gelu(self.ffn.up_proj(self.norm_2(h))))


class MPTForCausalLM(transformers.PreTrainedModel):
    config_class, base_model_prefix, _tied_weights_keys = MPTConfig, "transformer", {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, c):
        super().__init__(c)
        norm = lambda width: NORMS[c.norm_type](width, eps=c.layer_norm_epsilon)
        self.transformer = torch.nn.Module()
        self.transformer.wte = torch.nn.Embedding(c.vocab_size, c.d_model)
        if not c.attn_config["alibi"] and c.learned_pos_emb:
            self.transformer.wpe = torch.nn.Embedding(c.max_seq_len, c.d_model)
        self.transformer.blocks = torch.nn.ModuleList([Block(c, norm) for _ in range(c.n_layers)])
        self.transformer.norm_f = norm(c.d_model)
        self.lm_head = torch.nn.Linear(c.d_model, c.vocab_size, bias=False)
        if c.no_bias:
            for module in self.modules():
                if getattr(module, "bias", None) is not None:
                    module.bias = None
        self.post_init()

    def get_input_embeddings(self):
        return self.transformer.wte

    def get_output_embeddings(self):
        return self.lm_head

    def _init_weights(self, module):
        """None: the numbers are drawn."""

    def forward(self, ids, use_cache=False):
        c, n = self.config, ids.shape[1]
        h, bias = self.transformer.wte(ids), torch.zeros(())
        if hasattr(self.transformer, "wpe"):
            h = h + self.transformer.wpe(torch.arange(n))
        if c.attn_config["alibi"]:
            bias = modeling_mpt.build_mpt_alibi_tensor(c.n_heads, n, c.attn_config.get("alibi_bias_max", 8))
        for block in self.transformer.blocks:
            h = block(h, bias)
        scale = c.d_model ** -0.5 if c.logit_scale == "inv_sqrt_d_model" else c.logit_scale or 1
        logits = self.lm_head(self.transformer.norm_f(h)) * scale
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


transformers.MPTConfig, transformers.MPTForCausalLM = MPTConfig, MPTForCausalLM
