"""test_encode.py - encoders from Python: the vectors of `ftxc run`, arrays in every shape, in place."""
import unittest

import numpy

import models

TEXTS = ["a", "ab abb", "ab", "abb ab a ab"]


class Encode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = models.model("bert")
        cls.theirs = models.ftxc_json("run", models.path("bert"), *TEXTS, "--threads", 1)[:len(TEXTS)]
        cls.ids = [cls.model.tokenize(t) for t in TEXTS]

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_poolings(self):
        for pooling, field in ((None, "pooled"), ("first", "first"), ("cls", "first"), ("mean", "mean")):
            with self.subTest(pooling=pooling):
                wanted = [t[field] for t in self.theirs]
                numpy.testing.assert_allclose(self.model.encode(TEXTS, pooling=pooling), wanted, atol=2e-6)
                numpy.testing.assert_allclose(self.model.encode(TEXTS[1], pooling=pooling), wanted[1], atol=2e-6)
        tokens = self.model.encode(TEXTS, pooling="tokens")
        self.assertEqual([len(t) for t in tokens], [len(i) for i in self.ids])
        numpy.testing.assert_array_equal(self.model.encode(TEXTS, pooling="last"), [t[-1] for t in tokens])
        numpy.testing.assert_array_equal(self.model.encode(TEXTS, pooling="max"), [t.max(0) for t in tokens])
        self.assertEqual(self.model.encode([]).shape, (0, self.model.info.pooled))
        self.assertEqual(self.model.encode([], pooling="mean").shape, (0, self.model.info.hidden))

    def test_normalized(self):
        plain, unit = self.model.encode(TEXTS), self.model.encode(TEXTS, normalize_embeddings=True)
        numpy.testing.assert_allclose(numpy.linalg.norm(unit, axis=1), 1, rtol=1e-6)
        numpy.testing.assert_allclose(unit, plain / numpy.linalg.norm(plain, axis=1, keepdims=True), rtol=1e-6)
        self.assertIsInstance(self.model.encode("a", to="list"), list)

    def test_names_of_sentence_transformers(self):
        vectors = self.model.encode(TEXTS, batch_size=2, show_progress_bar=False, convert_to_numpy=True)
        numpy.testing.assert_array_equal(vectors, self.model.encode(TEXTS))
        for wrong, message in (({"show_progress_bar": True}, "there is none"), ({"precision": "int8"}, "precision"),
                               ({"to": "list", "convert_to_tensor": True}, "exclude each other")):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, message):
                self.model.encode(TEXTS, **wrong)

    def test_labels_of_tokens(self):
        with models.model("tokens", random_weights=3) as model:
            theirs = models.ftxc_json("run", models.path("tokens"), *TEXTS, "--threads", 1, "--random-weights", 3)[:len(TEXTS)]
            mine = model.label_tokens(TEXTS)
            self.assertEqual(model.info.labels, ["O", "B-PER", "I-PER"])
            for text, wanted in zip(mine, theirs):
                self.assertEqual([t for t, _ in text], [t["token"] for t in wanted["labels"]])
                for (_, scores), want in zip(text, wanted["labels"]):
                    self.assertEqual(list(scores), list(want["labels"]))
                    numpy.testing.assert_allclose(list(scores.values()), list(want["labels"].values()), atol=1e-6)
            self.assertEqual(model.label_tokens(TEXTS[1]), mine[1])
            self.assertEqual([t for t, _ in model.label_tokens("a", pairs="b")], [" [CLS]", " a", " [SEP]", " b", " [SEP]"])
            self.assertEqual(model.encode("a b", pooling="tokens").shape, (4, 3))
            with self.assertRaisesRegex(TypeError, "without a vector of a text"):
                model.encode("a")
        with self.assertRaisesRegex(TypeError, "no labels of tokens"):
            self.model.label_tokens("a")

    def test_pairs_and_limits(self):
        pair = self.model.encode(["a"], pairs=["ab"], pooling="tokens")[0]
        self.assertEqual(len(pair), len(self.ids[0]) + len(self.ids[2]) - 1)
        long = "ab " * 200
        self.assertEqual(len(self.model.encode([long], pooling="tokens", max_tokens=7)[0]), 7)
        with self.assertRaisesRegex(RuntimeError, "tokens"):
            self.model.encode([long] * 2, truncate="none", max_tokens=7)
        with self.assertRaisesRegex(ValueError, "pairs"):
            self.model.encode(["a"], pairs=[])
        with self.assertRaisesRegex(ValueError, "pooling: expected mean"):
            self.model.encode(["a"], pooling="middle")

    def packed(self):
        return numpy.concatenate(self.ids).astype(numpy.int32), [len(i) for i in self.ids]

    def padded(self):
        out = numpy.full((len(self.ids), 9), 1, numpy.int64)  # what is behind the length is not read
        for row, ids in zip(out, self.ids):
            row[:len(ids)] = ids
        return out, [len(i) for i in self.ids]

    def test_forward(self):
        flat, lengths = self.packed()
        packed, pooled = self.model.forward(ids=flat, lengths=lengths)
        numpy.testing.assert_array_equal(packed, numpy.concatenate(self.model.encode(TEXTS, pooling="tokens")))
        numpy.testing.assert_array_equal(pooled, self.model.encode(TEXTS))
        rows, lengths = self.padded()
        padded, _ = self.model.forward(ids=rows, lengths=lengths)
        self.assertEqual(padded.shape, rows.shape + (self.model.info.hidden,))
        start = 0
        for row, n in zip(padded, lengths):
            numpy.testing.assert_array_equal(row[:n], packed[start:start + n])
            self.assertFalse(row[n:].any())
            start += n
        whole, _ = self.model.forward(ids=[self.ids[1], self.ids[1]])  # no lengths: all of each row
        numpy.testing.assert_array_equal(whole[0], whole[1])

    def test_in_place(self):
        rows, lengths = self.padded()
        out = numpy.ones(rows.shape + (self.model.info.hidden,), numpy.float32)
        back, _ = self.model.forward(ids=rows, lengths=lengths, out=out)
        self.assertIs(back, out)
        numpy.testing.assert_array_equal(out, self.model.forward(ids=rows, lengths=lengths)[0])
        for wrong in (out.astype(numpy.float64), out[:, ::2], out[:1], out.transpose(1, 0, 2)):
            with self.assertRaisesRegex((ValueError, TypeError), "out"):
                self.model.forward(ids=rows, lengths=lengths, out=wrong)

    def test_dlpack(self):
        """What has __dlpack__ alone is read and written in place."""

        class Tensor:
            def __init__(self, values):
                self.values = values

            def __dlpack__(self, **kw):
                return self.values.__dlpack__(**kw)

            def __dlpack_device__(self):
                return self.values.__dlpack_device__()

            def data_ptr(self):
                return self.values.ctypes.data

        rows, lengths = self.padded()
        out = Tensor(numpy.zeros(rows.shape + (self.model.info.hidden,), numpy.float32))
        self.model.forward(ids=Tensor(rows.astype(numpy.int32)), lengths=lengths, out=out)
        numpy.testing.assert_array_equal(out.values, self.model.forward(ids=rows, lengths=lengths)[0])

    def test_hidden_states_in(self):
        if not self.model.info.input:
            with self.assertRaisesRegex((ValueError, TypeError, RuntimeError), "hidden"):
                self.model.forward(hidden=numpy.zeros((1, 2, 4), numpy.float32))
            return
        draw = numpy.random.default_rng(3)
        states = draw.standard_normal((3, 6, self.model.info.input)).astype(numpy.float32)
        padded, _ = self.model.forward(hidden=states, lengths=[6, 2, 4])
        packed, _ = self.model.forward(hidden=numpy.concatenate([states[0], states[1, :2], states[2, :4]]), lengths=[6, 2, 4])
        numpy.testing.assert_array_equal(packed, numpy.concatenate([padded[0], padded[1, :2], padded[2, :4]]))

    def test_refusals(self):
        flat, lengths = self.packed()
        for wrong, message in (({}, "either ids or hidden"), ({"ids": flat}, "lengths"),
                               ({"ids": flat, "lengths": [1]}, "sum of"), ({"ids": flat * 1.0, "lengths": lengths}, "ids: expected"),
                               ({"ids": self.padded()[0], "lengths": [99] * 4}, "at most 9"),
                               ({"ids": [[1]], "types": [1]}, "types"), ({"ids": [[[1]]]}, "expected .B, S."),
                               ({"ids": [[10**6]]}, "1000000")):
            with self.subTest(wrong=list(wrong)), self.assertRaisesRegex((ValueError, TypeError, RuntimeError), message):
                self.model.forward(**wrong)


if __name__ == "__main__":
    unittest.main()
