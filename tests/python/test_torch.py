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
        from ftxc.torch import Encoder, FtxEncoder

        module = Encoder(models.path("bert"), device="cpu", threads=1).eval()
        ids = torch.tensor([[2, 5, 6, 3], [2, 5, 3, 0]])
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
        out = module(ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
        hidden, pooled = module.model.forward(ids=ids.numpy(), lengths=[4, 3], types=numpy.zeros((2, 4), int))
        self.assertTrue(torch.equal(out.last_hidden_state, torch.from_numpy(hidden)))
        self.assertTrue(torch.equal(out.pooler_output, torch.from_numpy(pooled)))
        with self.assertRaisesRegex(ValueError, "attention_mask"):
            module(ids, attention_mask=mask.flip(1))
        self.takes_the_place(module, ids, mask, out)
        with self.assertRaisesRegex(TypeError, "no encoder"):
            FtxEncoder(models.path("llama"), device="cpu")
        self.bert_stands_for(module)
        vectors = module.model.encode(["a", "ab"], to="torch")
        self.assertTrue(torch.equal(vectors, torch.from_numpy(module.model.encode(["a", "ab"]))))
        self.assertTrue(torch.equal(vectors, module.model.encode(["a", "ab"], convert_to_tensor=True)))
        rows = module.model.encode(["a", "ab"], convert_to_numpy=False)
        self.assertTrue(isinstance(rows, list) and torch.equal(rows[1], vectors[1]))

    def test_in_place(self):
        """Tensors of the CPU are read and written where they are; other types are refused by name."""
        with models.model("bert") as model:
            states = torch.rand((2, 5, model.info.input), generator=torch.Generator().manual_seed(2))
            out = torch.ones((2, 5, model.info.hidden))
            back, _ = model.forward(hidden=states.requires_grad_(), lengths=torch.tensor([5, 3]), out=out)
            self.assertIs(back, out)
            wanted, _ = model.forward(hidden=states.detach().numpy(), lengths=[5, 3])
            self.assertTrue(torch.equal(out, torch.from_numpy(wanted)))
            with self.assertRaisesRegex(TypeError, "hidden: expected float32"):
                model.forward(hidden=states.detach().bfloat16())

    def takes_the_place(self, module, ids, mask, out):
        """What code around a BertModel does with its arguments and outputs."""
        self.assertTrue(torch.equal(out[0], out["last_hidden_state"]) and out[1] is out.pooler_output)
        self.assertEqual((list(out.keys()), len(out.to_tuple())), (["last_hidden_state", "pooler_output"], 2))
        hidden, pooled = module(ids, mask, return_dict=False, output_attentions=None, output_hidden_states=False)
        self.assertTrue(torch.equal(hidden, module(ids, mask)[0]) and torch.equal(pooled, module(ids, mask)[1]))
        self.assertEqual((module.device, module.dtype), (torch.device("cpu"), torch.float32))
        with self.assertRaises(KeyError):
            out["logits"]
        for wrong, kind, message in (({"output_attentions": True}, TypeError, "output_attentions: a compiled encoder takes"),
                                     ({"inputs_embeds": hidden}, TypeError, "inputs_embeds"),
                                     ({"attention_mask": mask[:1]}, ValueError, "attention_mask: expected the shape"),
                                     ({"token_type_ids": ids[:, :2]}, ValueError, "token_type_ids: expected the shape")):
            with self.subTest(wrong=list(wrong)), self.assertRaisesRegex(kind, message):
                module(ids, **wrong)
        with self.assertRaisesRegex(ValueError, r"input_ids: expected \[B, S\]"):
            module(ids[0])

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
