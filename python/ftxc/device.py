"""device.py - arrays in the memory of a GPU, by DLPack or __cuda_array_interface__: their address, without a copy."""
import ctypes

CUDA = 2  # DLDeviceType kDLCUDA
LEGACY_STREAM = 1  # CU_STREAM_LEGACY, the default stream
TYPES = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16"}  # DLDataType: code, bits


class _Tensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def is_on_gpu(values):
    if hasattr(values, "__dlpack_device__"):
        return values.__dlpack_device__()[0] == CUDA
    return hasattr(values, "__cuda_array_interface__")


class GpuArray:
    """A C-ordered array on a GPU. `owner` keeps it alive; `stream`: its memory is ready for what follows this CUstream,
    None for what follows all work of the GPU."""

    def __init__(self, values, name):
        read = self._by_dlpack if hasattr(values, "__dlpack__") else self._by_interface
        strides = read(values, name)
        expected = 1
        for size, stride in zip(self.shape[::-1], (strides or ())[::-1]):
            if size > 1 and stride != expected:
                raise ValueError(f"{name}: expected C order; copy it there first (tensor.contiguous())")
            expected *= size

    def _by_dlpack(self, values, name):
        if getattr(values, "requires_grad", False):
            values = values.detach()
        self.owner = values.__dlpack__(stream=LEGACY_STREAM)  # the producer lets that stream wait for its work
        t = _Tensor.from_address(_pointer_of(self.owner, b"dltensor"))
        self.stream, self.pointer, self.ordinal = LEGACY_STREAM, (t.data or 0) + t.byte_offset, t.device_id
        self.shape = tuple(t.shape[:t.ndim])
        self.type = TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
        self._known(name, f"DLPack type {t.code} of {t.bits} bits")
        return t.strides[:t.ndim] if t.strides else None

    def _by_interface(self, values, name):
        facts = values.__cuda_array_interface__
        self.owner, self.stream = values, facts.get("stream")
        self.pointer, self.ordinal, self.shape = facts["data"][0], None, tuple(facts["shape"])
        self.type = {"<f4": "float32", "<f2": "float16"}.get(facts["typestr"])
        self._known(name, facts["typestr"])
        strides, size = facts.get("strides"), int(facts["typestr"][2:])
        return [s // size for s in strides] if strides else None

    def _known(self, name, found):
        if self.type is None:
            raise TypeError(f"{name}: expected {', '.join(TYPES.values())}, found {found}")


def torch_of(ordinal):
    """torch, and its device for a model's GPU."""
    import torch

    if ordinal < 0:
        raise ValueError("to: the model runs on the CPU; expected numpy, torch or list")
    return torch, torch.device("cuda", ordinal)
