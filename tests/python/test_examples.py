"""test_examples.py - python/examples with the packages that they are for, where those are installed."""
import asyncio
import sys
import unittest

import models

sys.path.insert(0, "python/examples")
try:
    import langchain_core
except ImportError:
    langchain_core = None
    print("skipped: langchain-core is not installed: test_examples.py", flush=True)


@unittest.skipUnless(langchain_core, "langchain-core is not installed")
class Langchain(unittest.TestCase):
    def test_llm(self):
        from langchain_ftx import FtxLLM

        llm = FtxLLM(path=models.path("fable"), device="cpu", settings={"max_new": 8, "seed": 3})
        wanted = llm._model.generate("The king", max_new=8, seed=3).text
        self.assertEqual(llm.invoke("The king"), wanted)
        self.assertEqual("".join(llm.stream("The king")), wanted)
        self.assertEqual(llm.batch(["The king"] * 3), [wanted] * 3)
        self.assertNotIn("the", llm.invoke("Once upon", stop=["the"]))

        async def text():
            return "".join([t async for t in llm.astream("The king")])

        self.assertEqual(asyncio.run(text()), wanted)

    def test_embeddings(self):
        from langchain_ftx import FtxEmbeddings

        vectors = FtxEmbeddings(models.path("bert"), device="cpu")
        self.assertEqual(vectors.embed_documents(["a", "ab"])[1], vectors.embed_query("ab"))
        self.assertAlmostEqual(sum(x * x for x in vectors.embed_query("ab")), 1, 5)


if __name__ == "__main__":
    unittest.main()
