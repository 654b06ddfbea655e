"""drawn.py - numbers that a name decides, for the weights of models and adapters that the tests make (in C: lora/adapters.h)."""
import numpy


def numbers(name, n):
    """n numbers from -1 to 1, of 24 bits each."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & (1 << 64) - 1
    with numpy.errstate(over="ignore"):
        x = (numpy.arange(1, n + 1, dtype=numpy.uint64)) * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(key)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = x ^ (x >> numpy.uint64(31))
    return ((x >> numpy.uint64(40)).astype(numpy.float32) - numpy.float32(2**23)) * numpy.float32(2**-23)
