"""baichuan.py - Baichuan and Baichuan 2 as their own code computes them, for make.py: one matrix for queries, keys and values, RoPE
(7B) or ALiBi (13B), and of Baichuan 2 (z_loss_weight) a head whose rows are divided by their lengths."""
import torch
import transformers


class BaichuanConfig(transformers.PreTrainedConfig):
    model_type = "baichuan"

    def __init__(self, tie_word_embeddings=False, rms_norm_eps=1e-6, **settings):
        super().__init__(tie_word_embeddings=tie_word_embeddings, rms_norm_eps=rms_norm_eps, **settings)


def slopes(heads):
    """of Press et al. 2021; for heads that are no power of two further ones between them"""
    power = 2 ** (heads.bit_length() - 1)
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return torch.tensor(first + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)])


class Attention(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.size = c.num_attention_heads, c.hidden_size // c.num_attention_heads
        self.W_pack = torch.nn.Linear(c.hidden_size, 3 * c.hidden_size, bias=False)
        self.o_proj = torch.nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def forward(self, x, rotary):
        n = x.shape[1]
        q, k, v = (t.view(1, n, self.heads, self.size).transpose(1, 2) for t in self.W_pack(x).chunk(3, -1))
        mask = torch.full((n, n), float("-inf")).triu(1)
        if rotary:
            angles = torch.outer(torch.arange(n).float(), 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size))
            cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
            q, k = (t * cos + torch.cat((-t[..., self.size // 2:], t[..., :self.size // 2]), -1) * sin for t in (q, k))
        else:
            mask = mask + slopes(self.heads)[:, None, None] * torch.arange(n).float()
        weights = (q @ k.transpose(2, 3) * self.size ** -0.5 + mask).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(1, n, -1))


class Layer(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), torch.nn.Module()
        self.act = transformers.activations.ACT2FN[c.hidden_act]
        for name, inputs, outputs in (("gate_proj", c.hidden_size, c.intermediate_size),
                                      ("up_proj", c.hidden_size, c.intermediate_size),
                                      ("down_proj", c.intermediate_size, c.hidden_size)):
            setattr(self.mlp, name, torch.nn.Linear(inputs, outputs, bias=False))
        self.input_layernorm = torch.nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.post_attention_layernorm = torch.nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)

    def forward(self, h, rotary):
        h = h + self.self_attn(self.input_layernorm(h), rotary)
        x = self.post_attention_layernorm(h)
        return h + self.mlp.down_proj(self.act(self.mlp.gate_proj(x)) * self.mlp.up_proj(x))


class BaichuanForCausalLM(transformers.PreTrainedModel):
    config_class, base_model_prefix, _tied_weights_keys = BaichuanConfig, "model", {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, c):
        super().__init__(c)
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(c.vocab_size, c.hidden_size)
        self.model.layers = torch.nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)])
        self.model.norm = torch.nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.lm_head = torch.nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def _init_weights(self, module):
        """None: the numbers are drawn."""

    def forward(self, ids, use_cache=False):
        h = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            h = layer(h, hasattr(self.config, "max_position_embeddings"))
        head = self.lm_head.weight
        if hasattr(self.config, "z_loss_weight"):
            head = torch.nn.functional.normalize(head)
        return transformers.modeling_outputs.CausalLMOutput(logits=self.model.norm(h) @ head.T)


transformers.BaichuanConfig, transformers.BaichuanForCausalLM = BaichuanConfig, BaichuanForCausalLM
