"""test_torch.py - ftxc.torch.Encoder where a BertModel stood: tensors in, the same tensors out."""
import unittest

import numpy

import models

try:
    import torch
except ImportError:
    torch = None
    print("skipped: torch is not installed: test_torch.py", flush=True)


@unittest.skipUnless(torch, "torch is not installed")
class Torch(unittest.TestCase):
    def test_encoder(self):
        from ftxc.torch import Encoder

        module = Encoder(models.path("bert"), device="cpu", threads=1).eval()
        ids = torch.tensor([[2, 5, 6, 3], [2, 5, 3, 0]])
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
        out = module(ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
        hidden, pooled = module.model.forward(ids=ids.numpy(), lengths=[4, 3], types=numpy.zeros((2, 4), int))
        self.assertTrue(torch.equal(out.last_hidden_state, torch.from_numpy(hidden)))
        self.assertTrue(torch.equal(out.pooler_output, torch.from_numpy(pooled)))
        with self.assertRaisesRegex(ValueError, "attention_mask"):
            module(ids, attention_mask=mask.flip(1))
        with self.assertRaisesRegex(TypeError, "no encoder"):
            Encoder(models.path("llama"), device="cpu")
        self.bert_stands_for(module)
        vectors = module.model.encode(["a", "ab"], to="torch")
        self.assertTrue(torch.equal(vectors, torch.from_numpy(module.model.encode(["a", "ab"]))))

    def bert_stands_for(self, module):
        """transformers' BertModel of the same checkpoint gives the same tensors, up to the order of sums."""
        try:
            from transformers import BertModel
        except ImportError:
            print("skipped: transformers is not installed: BertModel beside ftxc.torch.Encoder", flush=True)
            return
        bert = BertModel.from_pretrained("tests/models/tiny-bert", dtype=torch.float32).eval()
        draw = torch.Generator().manual_seed(1)
        ids = torch.randint(4, bert.config.vocab_size, (6, 20), generator=draw)
        mask = (torch.arange(20) < torch.tensor([20, 1, 7, 13, 20, 2])[:, None]).long()
        with torch.no_grad():
            theirs = bert(ids, attention_mask=mask)
        mine = module(ids, attention_mask=mask)
        far = ((mine.last_hidden_state - theirs.last_hidden_state) * mask[..., None]).abs().max()
        self.assertLess(far.item(), 1e-4)


if __name__ == "__main__":
    unittest.main()
