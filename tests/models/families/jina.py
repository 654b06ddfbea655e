"""jina.py - JinaBERT v2 as its own code computes it, for make.py: BERT with slopes of ALiBi to both sides in place of positions, a gated
feed-forward, and of the variant for code (qk_norm) norms of queries and keys and a second norm behind attention."""
import torch
import transformers

from baichuan import slopes


class JinaBertConfig(transformers.BertConfig):
    def __init__(self, feed_forward_type="original", position_embedding_type="absolute", emb_pooler=None, qk_norm=False, **settings):
        super().__init__(**settings)
        self.feed_forward_type, self.position_embedding_type = feed_forward_type, position_embedding_type
        self.emb_pooler, self.qk_norm = emb_pooler, qk_norm


def norm(c):
    return torch.nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)


def linear(inputs, outputs, bias=True):
    return torch.nn.Linear(inputs, outputs, bias=bias)


def modules(**parts):
    made = torch.nn.Module()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


class Layer(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        D, F = c.hidden_size, c.intermediate_size
        self.c, self.gated = c, c.feed_forward_type.endswith("glu")
        own = modules(query=linear(D, D), key=linear(D, D), value=linear(D, D))
        if c.qk_norm:
            own.layer_norm_q, own.layer_norm_k = norm(c), norm(c)
            self.layer_norm_1, self.layer_norm_2 = norm(c), norm(c)
            self.mlp = modules(up_gated_layer=linear(D, 2 * F, False), down_layer=linear(F, D))
        elif self.gated:
            self.mlp = modules(gated_layers=linear(D, 2 * F, False), wo=linear(F, D), layernorm=norm(c))
        else:
            self.intermediate, self.output = modules(dense=linear(D, F)), modules(dense=linear(F, D), LayerNorm=norm(c))
        self.attention = modules(self=own, output=modules(dense=linear(D, D), LayerNorm=norm(c)))

    def forward(self, h):
        c, own, n = self.c, self.attention.self, h.shape[1]
        q, k, v = own.query(h), own.key(h), own.value(h)
        if c.qk_norm:
            q, k = own.layer_norm_q(q), own.layer_norm_k(k)
        q, k, v = (t.view(1, n, c.num_attention_heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        if c.position_embedding_type == "alibi":
            at = torch.arange(n).float()
            scores = scores - slopes(c.num_attention_heads)[:, None, None] * (at[:, None] - at).abs()
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(1, n, -1)
        y = self.attention.output.LayerNorm(self.attention.output.dense(y) + h)
        act = {"geglu": torch.nn.GELU(), "reglu": torch.nn.ReLU()}.get(c.feed_forward_type, transformers.activations.ACT2FN[c.hidden_act])
        if c.qk_norm:
            y = self.layer_norm_1(h + y)
            up, gate = self.mlp.up_gated_layer(y).chunk(2, -1)
            return self.layer_norm_2(y + self.mlp.down_layer(up * act(gate)))
        if self.gated:
            gate, up = self.mlp.gated_layers(y).chunk(2, -1)
            return self.mlp.layernorm(self.mlp.wo(act(gate) * up) + y)
        return self.output.LayerNorm(self.output.dense(act(self.intermediate.dense(y))) + y)


class JinaBertModel(transformers.PreTrainedModel):
    config_class, base_model_prefix = JinaBertConfig, "bert"

    def __init__(self, c):
        super().__init__(c)
        table = torch.nn.Embedding
        self.embeddings = modules(word_embeddings=table(c.vocab_size, c.hidden_size), LayerNorm=norm(c),
                                  token_type_embeddings=table(c.type_vocab_size, c.hidden_size))
        if c.position_embedding_type == "absolute":
            self.embeddings.position_embeddings = table(c.max_position_embeddings, c.hidden_size)
        self.encoder = modules(layer=torch.nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)]))
        self.pooler = modules(dense=linear(c.hidden_size, c.hidden_size))
        self.post_init()

    def _init_weights(self, module):
        """None: the numbers are drawn."""

    def forward(self, ids):
        e = self.embeddings
        h = e.word_embeddings(ids) + e.token_type_embeddings.weight[0]
        if hasattr(e, "position_embeddings"):
            h = h + e.position_embeddings.weight[:ids.shape[1]]
        h = e.LayerNorm(h)
        for layer in self.encoder.layer:
            h = layer(h)
        pooled = h.mean(1) if self.config.emb_pooler else self.pooler.dense(h[:, 0]).tanh()
        return transformers.modeling_outputs.BaseModelOutputWithPooling(last_hidden_state=h, pooler_output=pooled)


class JinaBertForSequenceClassification(transformers.PreTrainedModel):
    config_class, base_model_prefix = JinaBertConfig, "bert"

    def __init__(self, c):
        super().__init__(c)
        self.bert, self.classifier = JinaBertModel(c), linear(c.hidden_size, c.num_labels)
        self.post_init()

    def _init_weights(self, module):
        """None: the numbers are drawn."""

    def forward(self, ids):
        return transformers.modeling_outputs.SequenceClassifierOutput(logits=self.classifier(self.bert(ids).pooler_output))


for made in (JinaBertConfig, JinaBertModel, JinaBertForSequenceClassification):
    setattr(transformers, made.__name__, made)
