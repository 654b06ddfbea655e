"""langchain_ftx.py - a compiled model as LangChain's LLM and Embeddings.

    from langchain_ftx import FtxEmbeddings, FtxLLM

    llm = FtxLLM(path="fable.ftx", settings={"max_new": 60, "seed": 7})
    print(llm.invoke("Once upon a time"))
    for text in llm.stream("Once upon a time"):
        print(text, end="")

Needs langchain-core. Many calls of one object run together in one engine."""
from langchain_core.embeddings import Embeddings
from langchain_core.language_models.llms import LLM
from langchain_core.outputs import GenerationChunk
from pydantic import PrivateAttr

import ftxc


class FtxLLM(LLM):
    """`settings` are those of ftxc.Model.generate; keywords of a call come before them."""

    path: str
    device: str = "auto"
    settings: dict = {}
    _model: ftxc.Model = PrivateAttr()

    def __init__(self, **fields):
        super().__init__(**fields)
        self._model = ftxc.Model(self.path, device=self.device)

    @property
    def _llm_type(self):
        return "ftxc"

    @property
    def _identifying_params(self):
        return {"path": self.path, **self.settings}

    def _settings(self, stop, keywords):
        return {**self.settings, **({"stop": stop} if stop else {}), **keywords}

    def _call(self, prompt, stop=None, run_manager=None, **keywords):
        return self._model.generate(prompt, **self._settings(stop, keywords)).text

    def _stream(self, prompt, stop=None, run_manager=None, **keywords):
        with self._model.stream(prompt, **self._settings(stop, keywords)) as pieces:
            for piece in pieces:
                yield GenerationChunk(text=piece.text)

    async def _astream(self, prompt, stop=None, run_manager=None, **keywords):
        async for piece in self._model.stream(prompt, **self._settings(stop, keywords)):
            yield GenerationChunk(text=piece.text)


class FtxEmbeddings(Embeddings):
    """Vectors of an encoder, of length 1."""

    def __init__(self, path, device="auto"):
        self._model = ftxc.Model(path, device=device)

    def embed_documents(self, texts):
        return self._model.encode(texts, normalize_embeddings=True, to="list")

    def embed_query(self, text):
        return self.embed_documents([text])[0]
