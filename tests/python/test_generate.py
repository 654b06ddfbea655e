"""test_generate.py - decoders and translators from Python: the texts of `ftxc run`, streams, cancelling, errors."""
import asyncio
import contextlib
import io
import os
import random
import resource
import signal
import tempfile
import threading
import unittest

import numpy

import ftxc
import models

PROMPTS = ["Once upon a time", "The king", "A fox", "In the old days there was a"]
OPTIONS = {  # settings and their options of `ftxc run`
    "max_new": ("--max-new", [1, 5, 12]), "temperature": ("--temperature", [0, 0.7, 1.3]),
    "top_k": ("--top-k", [0, 1, 5, 40]), "top_p": ("--top-p", [0.5, 0.95, 1]), "min_p": ("--min-p", [0, 0.1]),
    "typical_p": ("--typical-p", [0.9, 1]), "repetition_penalty": ("--repetition-penalty", [1, 1.2]),
    "presence_penalty": ("--presence-penalty", [0, 0.5]), "frequency_penalty": ("--frequency-penalty", [0, 0.3]),
    "no_repeat_ngram": ("--no-repeat-ngram", [0, 2]), "min_new": ("--min-new", [0, 1]), "samples": ("--samples", [1, 3]),
    "stop": ("--stop", ["the", ","]), "bad_words": ("--bad-words", ["and", "old man"]), "no_bos": ("--no-bos", [True]),
    "ignore_eos": ("--ignore-eos", [True]),
}
CASES = int(os.environ.get("FTX_PYTHON_CASES", 12))
CALLS = int(os.environ.get("FTX_PYTHON_CALLS", 300))


def same_text(case, mine, theirs):
    case.assertEqual(mine.text, theirs["text"])
    case.assertEqual(mine.ids, theirs["ids"])
    case.assertEqual(mine.finish, theirs["finish"])
    numpy.testing.assert_allclose(mine.logprobs, theirs["logprobs"], rtol=1e-5, atol=1e-6)


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = models.model("fable")
        cls.path = models.path("fable")

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_progress(self):
        """The bar comes to sys.stderr, whatever that is."""
        with contextlib.redirect_stderr(io.StringIO()) as shown, tempfile.TemporaryDirectory() as room:
            out = ftxc.compile("specs/fable.lua", os.path.join(room, "a.ftx"), target="cpu", progress=True)
            self.assertTrue(os.path.exists(out))
        self.assertRegex(shown.getvalue(), r"100%")

    def test_info(self):
        end = self.model.tokenize("<|end_of_text|>", special=False)
        self.assertEqual(self.model.info.end_ids, end)
        self.assertNotIn("0x", repr(self.model.info))
        with self.assertRaisesRegex(AttributeError, "no colour"):
            self.model.info.colour

    def test_kv_bytes(self):
        info = self.model.info
        least = 16 * info.sequences  # a page has 16 tokens
        with self.assertRaisesRegex(ValueError, "one page of 16 tokens for each of"):
            ftxc.Model(self.path, device="cpu", kv_bytes=least * info.kv_token_bytes - 1)
        with ftxc.Model(self.path, device="cpu", kv_bytes=least * info.kv_token_bytes) as small:
            self.assertEqual(small.info.kv_tokens, least)
            self.assertLess(least, info.kv_tokens)
            self.assertEqual(small.generate("The king", max_new=9, seed=3).text,
                             self.model.generate("The king", max_new=9, seed=3).text)

    def test_gpu_layers(self):
        with self.assertRaisesRegex(ValueError, "gpu_layers: expected a number of layers, found -1"):
            ftxc.Model(self.path, device="cpu", gpu_layers=-1)
        with self.assertRaisesRegex(ValueError, "two ways to say one thing"):
            ftxc.Model(self.path, device="cpu", gpu_layers=0, gpu_memory=1 << 20)
        with self.assertRaisesRegex(ValueError, "gpu_layers.*: for a GPU"):
            ftxc.Model(self.path, device="cpu", gpu_layers=0)

    def test_numbers_out_of_range(self):
        for name, value in (("kv_bytes", -1), ("kv_bytes", 1 << 64), ("swap_bytes", -1), ("gpu_memory", -1),
                            ("gpu_memory", 1 << 64), ("random_weights", -1), ("threads", 1 << 32), ("gpu_layers", 1 << 64)):
            with self.assertRaisesRegex(ValueError, f"^{name}: expected .*, found {value}$"):
                ftxc.Model(self.path, device="cpu", **{name: value})

    def test_as_ftxc_run(self):
        draw = random.Random(5)
        for _ in range(CASES):
            names = draw.sample(sorted(OPTIONS), 6)
            settings = {name: draw.choice(OPTIONS[name][1]) for name in names}
            settings.setdefault("max_new", 12)
            settings["seed"] = draw.randrange(2**64)
            if settings.get("temperature") == 0:
                settings.pop("samples", None)  # they would all be the same: refused
            arguments = ["--seed", settings["seed"]]
            for name in settings.keys() - {"seed"}:
                value = settings[name]
                arguments += [OPTIONS[name][0]] + ([] if value is True else [value])
            prompt = draw.choice(PROMPTS)
            with self.subTest(prompt=prompt, **settings):
                theirs = models.ftxc_json("run", self.path, prompt, *arguments, "--threads", 1)[0]
                mine = self.model.generate(prompt, logprobs=True, **settings)
                if settings.get("samples", 1) > 1:
                    for one, other in zip(mine, theirs["samples"]):
                        same_text(self, one, other)
                    self.assertEqual(len(mine), len(theirs["samples"]))
                else:
                    same_text(self, mine, theirs)
                    self.assertEqual(mine.prompt_tokens, theirs["prompt_tokens"])

    def test_names_of_transformers(self):
        ours = self.model.generate("The king", max_new=8, temperature=0, no_repeat_ngram=2, stop=["and"])
        theirs = self.model.generate("The king", max_new_tokens=8, do_sample=False, no_repeat_ngram_size=2,
                                     stop_strings=["and"], num_return_sequences=1)
        self.assertEqual(ours.ids, theirs.ids)
        for wrong, message in (({"max_new": 1, "max_new_tokens": 2}, "given twice"), ({"max_nwe": 1}, "did you mean max_new"),
                               ({"use_cache": True}, "use_cache is no setting"),
                               ({"do_sample": False, "temperature": 1}, "exclude each other"),
                               ({"samples": 2, "num_return_sequences": 2}, "mean the same")):
            with self.assertRaisesRegex(TypeError, message):
                self.model.generate("a", **wrong)

    def test_many_prompts(self):
        """More than run at once and wait at once; each as alone."""
        prompts = [PROMPTS[i % 4] for i in range(100)]
        texts = self.model.generate(prompts, max_new=3, seed=9)
        alone = {p: self.model.generate(p, max_new=3, seed=9).ids for p in PROMPTS}
        self.assertEqual([t.ids for t in texts], [alone[p] for p in prompts])
        self.assertEqual(self.model.generate([], max_new=3), [])

    def test_ids_and_lists(self):
        ids = self.model.tokenize("The king")
        text = self.model.generate("The king", max_new=4, seed=2)
        for prompt in (ids, tuple(ids), [numpy.int64(i) for i in ids]):
            self.assertEqual(self.model.generate(prompt, max_new=4, seed=2).ids, text.ids)
        self.assertEqual([t.ids for t in self.model.generate([ids, "The king"], max_new=4, seed=2)], [text.ids] * 2)
        self.assertEqual(self.model.detokenize(ids), "The king")
        self.assertEqual(self.model.tokenize("The king", special=False), ids[1:])
        self.assertNotEqual(self.model.tokenize("<|end_of_text|>", literal=True), self.model.tokenize("<|end_of_text|>"))
        forced = self.model.generate("The king", max_new=3, temperature=0, bias={5: 1000}, logits=True)
        self.assertEqual(forced.ids, [5, 5, 5])
        self.assertEqual(forced.logits.shape, (self.model.info.vocab,))
        banned = self.model.generate("The king", max_new=4, temperature=0, bad_ids=[[i] for i in text.ids])
        self.assertFalse(set(banned.ids) & set(text.ids))

    def test_seed(self):
        first = self.model.generate("The king", max_new=8)
        self.assertEqual(self.model.generate("The king", max_new=8, seed=first.seed).ids, first.ids)
        self.assertNotEqual(self.model.generate("The king", max_new=8).seed, first.seed)

    def test_refusals(self):
        for prompt, settings, kind, message in (
                ("a", {"top_k": 1000}, ftxc.InvalidError, "top_k: expected 0 to 64"),
                ("a", {"top_p": 2}, ValueError, "top_p"), ("a", {"top_k": "x"}, TypeError, "top_k: expected int"),
                ("a", {"top_k": 1.5}, TypeError, "top_k"), ("a", {"logprobs": 1}, TypeError, "True or False"),
                ("a", {"seed": 2**64}, ValueError, "seed"), ("a", {"seed": -1}, ValueError, "seed"),
                ("a", {"cache_salt": 2**64}, ValueError, "cache_salt"),
                ("a", {"truncate": "middle"}, TypeError, "none, longest"), ("a", {"stop": [3]}, TypeError, "list of str"),
                ("a", {"bias": 3}, TypeError, "bias: expected a dict"), ([99999], {}, ftxc.InvalidError, "99999"),
                ("word " * 2000, {}, ftxc.Error, "2001 tokens|too long|context"),
                ([{"role": "user", "content": "hi"}], {}, ftxc.InvalidError, "chat template")):
            with self.subTest(settings=settings), self.assertRaisesRegex(kind, message):
                self.model.generate(prompt, **settings)
        self.assertEqual(len(self.model.generate("a", max_new=2, ignore_eos=True).ids), 2)  # and goes on
        with self.assertRaisesRegex(ftxc.Error, "fable.lua") as caught:
            ftxc.Model("specs/fable.lua")
        self.assertEqual(caught.exception.status, ftxc.Status.FTX_EFORMAT)
        with self.assertRaisesRegex(ValueError, "cuda:N"):
            ftxc.Model(self.path, device="gpu")
        with self.assertRaisesRegex(ftxc.CompileError, "no_field"):
            ftxc.compile("specs/fable.lua", "none.ftx", target="cpu", progress=False, no_field=1)
        with contextlib.redirect_stderr(io.StringIO()) as shown, self.assertRaisesRegex(ftxc.CompileError, "^ftxc: .*no_field"):
            ftxc.compile("specs/fable.lua", "none.ftx", target="cpu", progress=True, no_field=1)
        self.assertIn("no_field", shown.getvalue())
        with self.assertRaisesRegex(TypeError, "use generate"):
            self.model.encode("a")

    def test_stream(self):
        text = self.model.generate("Once upon a time", max_new=20, seed=4)
        with self.model.stream("Once upon a time", max_new=20, seed=4, logprobs=True) as stream:
            pieces = list(stream)
        self.assertEqual("".join(map(str, pieces)), text.text)
        self.assertEqual((stream.ids, stream.prompt_tokens, pieces[-1].finish), (text.ids, text.prompt_tokens, text.finish))
        self.assertTrue(all(p.logprob <= 0 for p in pieces))
        self.assertEqual(list(stream), [])

        async def closed():
            async with self.model.stream("Once", max_new=900, ignore_eos=True) as pieces:
                async for _ in pieces:
                    break
            return [p async for p in pieces]

        self.assertEqual(asyncio.run(closed()), [])

    def test_closing_a_stream_cancels(self):
        for _ in range(40):  # more than can run and wait, so all places are free again
            for piece in self.model.stream("Once", max_new=900, ignore_eos=True):
                break
            stream = self.model.stream("Once", max_new=900, ignore_eos=True)
            stream.close()
            self.assertEqual(list(stream), [])
        self.assertEqual(len(self.model.generate("Once", max_new=2, ignore_eos=True).ids), 2)

    def test_async_streams(self):
        wanted = {seed: self.model.generate("The king", max_new=6, seed=seed).text for seed in range(8)}

        async def one(seed):
            return seed, "".join([str(p) async for p in self.model.stream("The king", max_new=6, seed=seed)])

        async def many():
            return await asyncio.gather(*[one(i % 8) for i in range(64)])

        for seed, text in asyncio.run(many()):
            self.assertEqual(text, wanted[seed])

    def test_threads(self):
        wanted = self.model.generate("The king", max_new=6, seed=1).ids
        got = []
        threads = [threading.Thread(target=lambda: got.append(self.model.generate("The king", max_new=6, seed=1).ids))
                   for _ in range(12)]
        for t in threads:
            t.start()
        scores = self.model.score("The king was old")  # waits for its turn
        for t in threads:
            t.join()
        self.assertEqual(got, [wanted] * 12)
        self.assertEqual(len(scores), len(self.model.tokenize("The king was old")) - 1)

    def test_ctrl_c(self):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            self.model.generate(["Once"] * 8, max_new=1000, ignore_eos=True)
        self.assertEqual(len(self.model.generate("Once", max_new=2, ignore_eos=True).ids), 2)

    def test_fork(self):
        child = os.fork()
        if not child:
            try:
                self.model.generate("a")
            except RuntimeError as error:
                os._exit(0 if "open it in the child" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_fork_beside_a_stream(self):
        """A child closes a stream although the engine's thread held its lock when the process forked."""
        stream, held, done = self.model.stream("Once", max_new=4), threading.Event(), threading.Event()

        def hold():
            with stream._pieces.ready:
                held.set()
                done.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if not child:
            signal.alarm(10)
            stream.close()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        done.set()
        holder.join()
        self.assertEqual(status, 0)
        self.assertGreater(len(list(stream)), 0)

    def test_sink_that_fails(self):
        """What goes wrong on the engine's thread reaches all that wait, and those that come later."""
        with models.model("llama") as model:
            stream = model.stream([1, 2, 3], max_new=1000, ignore_eos=True)

            def sink(_):
                raise MemoryError("no memory for an event")

            model._worker.submit(model._request([1, 2], {"max_new": 4}), sink)
            with self.assertRaisesRegex(MemoryError, "no memory for an event"):
                list(stream)
            with self.assertRaisesRegex(MemoryError, "no memory for an event"):
                model.generate([1])

    def test_closed(self):
        model = models.model("llama")
        stream = model.stream([1, 2, 3], max_new=1000, ignore_eos=True)
        model.close()
        model.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            list(stream)
        for use in (lambda: model.generate([1]), lambda: model.tokenize("a"), lambda: model.score([1, 2])):
            with self.assertRaisesRegex(RuntimeError, "closed"):
                use()

    def test_score(self):
        text = "Once upon a time there was a king who had three sons . " * 40
        theirs = models.ftxc_json("score", self.path, "-", "--stride", 100, "--threads", 1, stdin=text)[0]
        mine = self.model.score(text, stride=100)
        self.assertEqual(len(mine), len(theirs["ids"]) - 1)
        numpy.testing.assert_allclose(mine, theirs["logprobs"], atol=2e-5)
        with self.assertRaisesRegex(ValueError, "stride"):
            self.model.score(text, stride=5000)

    def test_no_leak(self):
        model = models.model("llama")
        for _ in range(100):
            model.generate([1, 2, 3], max_new=2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(CALLS):
            model.generate([1, 2, 3], max_new=2)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 1024)  # KiB
        model.close()


class Translate(unittest.TestCase):
    def test_beams(self):
        with models.model("bart") as model:
            theirs = models.ftxc_json("run", models.path("bart"), "abab", "--beams", 3, "--n-best", 3, "--max-new", 6,
                                      "--threads", 1)[0]
            for settings in ({"beams": 3, "n_best": 3}, {"num_beams": 3, "num_return_sequences": 3}):
                mine = model.generate("abab", max_new=6, logprobs=True, **settings)
                for one, other in zip(mine, theirs["hypotheses"]):
                    self.assertEqual((one.text, one.ids), (other["text"], other["ids"]))
                    self.assertAlmostEqual(one.score, other["score"], 4)
                    self.assertEqual(len(one.logprobs), len(one.ids))
                self.assertEqual(len(mine), 3)
            (piece,) = model.stream("abab", beams=3, max_new=6)
            self.assertEqual((piece.text, piece.finish), (mine[0].text, mine[0].finish))
            prefix = model.generate("abab", beams=1, temperature=0, prefix=mine[0].ids[:2], max_new=6)
            self.assertEqual(model.info.kind, "seq2seq")
            self.assertTrue(prefix.ids)


if __name__ == "__main__":
    unittest.main()
