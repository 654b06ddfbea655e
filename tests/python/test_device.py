"""test_device.py - encoders with arrays on a GPU: what is given to the library, and what is refused. There is no GPU
here: numpy's memory says that it is one's, and the library is told the truth."""
import ctypes
import sys
import types
import unittest
from unittest import mock

import numpy

import models
from ftxc import device, encoder

FLOAT = (2, 32)


class Capsule:
    """DLManagedTensor of numpy's memory as a GPU's."""

    destructors = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __init__(self, values, kind, ordinal):
        shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        strides = (ctypes.c_int64 * values.ndim)(*[s // values.itemsize for s in values.strides])
        self.tensor = device._Tensor(values.ctypes.data - 64, device.CUDA, ordinal, values.ndim, *kind, 1, shape, strides,
                                     64)
        self.kept = values, shape, strides

    def make(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


class Tensor:
    """A torch tensor, as far as the package looks at it."""

    def __init__(self, values, kind=FLOAT):
        self.values, self.kind, self.streams, self.requires_grad, self.capsules = values, kind, [], False, []
        self.is_cuda, self.shape, self.device = True, values.shape, types.SimpleNamespace(index=0)

    def __dlpack_device__(self):
        return device.CUDA, 0

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        self.capsules.append(Capsule(self.values, self.kind, 0))
        return self.capsules[-1].make()

    def new_empty(self, shape, dtype):
        return Tensor(numpy.full(shape, 9, numpy.float32))

    def to(self, dtype):
        return self if dtype == "float32" else Tensor(self.values.astype(numpy.float16), (2, 16))

    def __getitem__(self, at):
        return Tensor(self.values[at])

    def mean(self, axis):
        return Tensor(self.values.mean(axis))

    def amax(self, axis):
        return Tensor(self.values.max(axis))

    def clone(self):
        return Tensor(self.values.copy())

    def where(self, condition, other):
        return Tensor(numpy.where(condition, self.values, other.values))

    def __ne__(self, number):
        return self.values != number

    def __truediv__(self, other):
        return Tensor(self.values / other.values)


class Interface:
    """What has __cuda_array_interface__ alone."""

    def __init__(self, values, **facts):
        self.values = values
        self.__cuda_array_interface__ = {"data": (values.ctypes.data, False), "shape": values.shape, "version": 3,
                                         "typestr": values.dtype.str, "strides": None, **facts}


def torch():
    module = types.ModuleType("torch")
    module.float32 = "float32"
    module.float16 = "float16"
    module.device = lambda kind, index: f"{kind}:{index}"
    module.zeros = lambda shape, dtype, device: Tensor(numpy.zeros(shape, dtype))
    module.stack = lambda rows: Tensor(numpy.stack([r.values for r in rows]))
    module.ones_like = lambda t: Tensor(numpy.ones_like(t.values))
    module.linalg = types.SimpleNamespace(
        vector_norm=lambda t, dim, keepdim: Tensor(numpy.linalg.norm(t.values, axis=dim, keepdims=keepdim)))
    return module


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = models.model("bert")

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def setUp(self):
        self.encoding, self.jobs = encoder.Encoding(self.model), []
        real = self.encoding.run

        def run(job):  # as the library on a GPU would do it
            self.assertTrue(job.on_device)
            self.jobs.append((job.stream, *(ctypes.cast(getattr(job, f), ctypes.c_void_p).value
                                            for f in ("input", "hidden", "pooled"))))
            job.on_device, job.stream = False, None
            real(job)

        self.encoding.run = run
        patch = mock.patch.dict(sys.modules, torch=torch())
        patch.start()
        self.addCleanup(patch.stop)
        draw = numpy.random.default_rng(5)
        self.states = draw.standard_normal((3, 6, self.model.info.input)).astype(numpy.float32)

    def test_forward(self):
        """Hidden states and results stay where they are; the producer's work goes before."""
        wanted, wanted_pooled = self.model.forward(hidden=self.states, lengths=[6, 2, 4])
        given, out = Tensor(self.states), Tensor(numpy.ones_like(wanted))
        hidden, pooled = self.encoding.forward(hidden=given, lengths=[6, 2, 4], out=out)
        self.assertIs(hidden, out)
        numpy.testing.assert_array_equal(out.values, wanted)
        numpy.testing.assert_array_equal(pooled.values, wanted_pooled)
        self.assertEqual(self.jobs, [(1, self.states.ctypes.data, out.values.ctypes.data, pooled.values.ctypes.data)])
        self.assertEqual((given.streams, out.streams), ([1], [1]))
        hidden, _ = self.encoding.forward(hidden=Tensor(self.states), lengths=[6, 2, 4])
        numpy.testing.assert_array_equal(hidden.values, wanted)
        packed, _ = self.encoding.forward(hidden=Tensor(self.states[0]), lengths=[2, 4])
        numpy.testing.assert_array_equal(packed.values, self.model.forward(hidden=self.states[0], lengths=[2, 4])[0])

    def test_ids(self):
        ids = [[5, 6, 7], [8, 9, 10]]
        wanted, _ = self.model.forward(ids=ids)
        out = Tensor(numpy.ones_like(wanted))
        hidden, _ = self.encoding.forward(ids=ids, out=out)
        numpy.testing.assert_array_equal(hidden.values, wanted)
        self.assertEqual(self.jobs[0][1:3], (None, out.values.ctypes.data))

    def test_interface(self):
        """Without pooled vectors __cuda_array_interface__ is enough; several streams mean all work."""
        self.encoding.info = types.SimpleNamespace(**{**vars(self.model.info), "pooled": 0})
        wanted, _ = self.model.forward(hidden=self.states)
        for streams, expected in (((5, 5), 5), ((5, 6), None), ((None, None), None), ((None, 5), None)):
            out = Interface(numpy.ones_like(wanted), stream=streams[1])
            self.encoding.forward(hidden=Interface(self.states, stream=streams[0]), out=out)
            numpy.testing.assert_array_equal(out.values, wanted)
            self.assertEqual(self.jobs[-1][0], expected)

    def test_encode(self):
        self.encoding.info = types.SimpleNamespace(**{**vars(self.model.info), "ordinal": 0})
        texts = ["a", "ab abb", "ab"]
        for pooling in (None, "mean", "first", "last", "max"):
            got = self.encoding.encode(texts, pooling, to="cuda")
            numpy.testing.assert_allclose(got.values, self.model.encode(texts, pooling=pooling), atol=1e-6)
        tokens = self.encoding.encode(texts, "tokens", to="cuda")
        for ours, theirs in zip(tokens, self.model.encode(texts, pooling="tokens")):
            numpy.testing.assert_array_equal(ours.values, theirs)
        numpy.testing.assert_array_equal(self.encoding.encode("ab", to="cuda").values, self.model.encode("ab"))
        unit = self.encoding.encode(texts, "mean", True, "cuda")
        numpy.testing.assert_allclose(numpy.linalg.norm(unit.values, axis=1), 1, rtol=1e-6)
        self.assertEqual(self.encoding.encode([], to="cuda").values.shape, (0, self.model.info.pooled))

    def test_refusals(self):
        shape = (*self.states.shape[:2], self.model.info.hidden)
        states, good = Tensor(self.states), Tensor(numpy.zeros(shape, numpy.float32))
        host = numpy.zeros(shape, numpy.float32)
        for wrong, message in (({"hidden": self.states, "out": good}, "out: hidden is in memory of the host"),
                               ({"hidden": states, "out": Tensor(good.values[:1])}, "out: expected a C-ordered"),
                               ({"hidden": states, "out": Tensor(host.transpose(1, 0, 2))}, "out: expected C order"),
                               ({"hidden": Tensor(self.states[:, :, ::2])}, "hidden: expected C order"),
                               ({"hidden": Tensor(self.states[..., :2].copy())}, "hidden: expected .* columns"),
                               ({"hidden": Tensor(self.states.view(numpy.int32), (0, 32))}, "hidden: expected float32"),
                               ({"hidden": Interface(self.states)}, "expected torch tensors"),
                               ({"hidden": Interface(self.states.astype(float))}, "hidden: expected float32, .*<f8"),
                               ({"hidden": Interface(self.states.astype(numpy.float16))}, "found float16"),
                               ({"ids": Tensor(numpy.ones((2, 3), numpy.int32))}, "ids: expected memory of the CPU")):
            with self.subTest(message=message), self.assertRaisesRegex((ValueError, TypeError), message):
                self.encoding.forward(**wrong)
        with self.assertRaisesRegex(ValueError, "the model runs on the CPU"):
            self.model.encode(["a"], to="cuda")
        with self.assertRaisesRegex(ValueError, "on_device: the model runs on the CPU"):  # the library's own words
            self.model.forward(hidden=states, out=good)


if __name__ == "__main__":
    unittest.main()
