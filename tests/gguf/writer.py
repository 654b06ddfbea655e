"""writer.py - writes GGUF files and safetensors, and blocks of quantised types from random codes with the values that they mean.

Written from the description of the format (ggml's docs/gguf.md) and of its blocks; nothing but Python's library is used."""
import array, json, random, struct

KINDS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
         "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
# number in the file, elements and bytes of a block
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17)}
NUMBERS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of IQ4_NL and IQ4_XS


def text(s):
    data = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(data)) + data


def value(v):
    """A key's value: kind and bytes. Numbers are (kind, number), lists (kind, list); "str" is a text's kind."""
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    kind, data = v
    if isinstance(data, list) and kind == "str":
        return struct.pack("<IIQ", 9, 8, len(data)) + b"".join(map(text, data))
    number, letter = KINDS[kind]
    if isinstance(data, list):
        return struct.pack("<IIQ", 9, number, len(data)) + struct.pack("<%d%s" % (len(data), letter), *data)
    return struct.pack("<I" + letter, number, data)


def write_gguf(path, keys, tensors, version=3):
    """keys: {name: value}; tensors: {name: (shape with the slowest size first, type, bytes)}."""
    alignment = keys.get("general.alignment", 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(text(name) + value(v) for name, v in keys.items())
    offset = 0
    for name, (shape, kind, data) in tensors.items():
        head += text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape[::-1], TYPES[kind][0], offset)
        offset += -(-len(data) // alignment) * alignment
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % alignment))
        for _, _, data in tensors.values():
            f.write(data + bytes(-len(data) % alignment))


def write_safetensors(path, tensors):
    """tensors: {name: (shape, "F32" | "F16" | "BF16", bytes)}."""
    header, at = {}, 0
    for name, (shape, kind, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, _, data in tensors.values():
            f.write(data)


def floats(values):
    return array.array("f", values).tobytes()


def rounded(values, kind):
    """Numbers as bytes of a type, and as they are then."""
    if kind == "F32":
        a = array.array("f", values)
        return a.tobytes(), a.tolist()
    if kind == "F16":
        data = struct.pack("<%de" % len(values), *values)
        return data, list(struct.unpack("<%de" % len(values), data))
    cut = [struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in values]
    return array.array("H", cut).tobytes(), [struct.unpack("<f", struct.pack("<I", c << 16))[0] for c in cut]


def half(rng, low, high):
    x = rng.uniform(low, high)
    data = struct.pack("<e", x)
    return data, struct.unpack("<e", data)[0]


def nibbles(codes):
    """Of each 32 bytes low nibbles first, then high ones."""
    return bytes(codes[i] | codes[i + len(codes) // 2] << 4 for i in range(len(codes) // 2))


def six_bits(scales, minima):
    out = bytearray(12)
    for i in range(4):
        out[i] = scales[i] | scales[i + 4] >> 4 << 6
        out[i + 4] = minima[i] | minima[i + 4] >> 4 << 6
        out[i + 8] = scales[i + 4] & 15 | (minima[i + 4] & 15) << 4
    return bytes(out)


def twos(codes):
    """The lower two bits of 256 codes: four of each byte, which lie 32 apart."""
    return bytes(sum((codes[h + i + 32 * j] & 3) << 2 * j for j in range(4)) for h in (0, 128) for i in range(32))


def block(rng, kind, size):
    """A random block: its bytes, and its values as the definition has them, still in doubles. size: of its values."""
    if kind in ("Q5_0", "Q5_1"):
        q = [rng.randint(0, 31) for _ in range(32)]
        data, d = half(rng, -size / 16, size / 16) if kind == "Q5_0" else half(rng, size / 32, size / 16)
        more, m = half(rng, -size, 0) if kind == "Q5_1" else (b"", -16 * d)
        fifth = sum((x >> 4) << i for i, x in enumerate(q)).to_bytes(4, "little")
        return data + more + fifth + nibbles([x & 15 for x in q]), [d * x + m for x in q]
    if kind in ("Q8_0", "Q4_0", "Q4_1"):
        data, d = half(rng, size / 200, size / 100)
        if kind == "Q8_0":
            q = [rng.randint(-128, 127) for _ in range(32)]
            return data + struct.pack("32b", *q), [d * x for x in q]
        q = [rng.randint(0, 15) for _ in range(32)]
        if kind == "Q4_0":
            data, d = half(rng, -size / 8, size / 8)
            return data + nibbles(q), [d * (x - 8) for x in q]
        more, m = half(rng, -size, 0)
        data, d = half(rng, size / 16, size / 8)
        return data + more + nibbles(q), [d * x + m for x in q]
    if kind == "Q6_K":
        q, sc = [rng.randint(0, 63) for _ in range(256)], [rng.randint(-128, 127) for _ in range(16)]
        data, d = half(rng, size / 4000, size / 2000)
        low = b"".join(nibbles([x & 15 for x in q[i:i + 128]]) for i in (0, 128))
        high = bytes(sum((q[h + i + 32 * j] >> 4) << 2 * j for j in range(4)) for h in (0, 128) for i in range(32))
        return low + high + struct.pack("16b", *sc) + data, [d * sc[i // 16] * (q[i] - 32) for i in range(256)]
    if kind == "IQ4_NL":
        q = [rng.randint(0, 15) for _ in range(32)]
        data, d = half(rng, -size / 100, size / 100)
        return data + nibbles(q), [d * NUMBERS[x] for x in q]
    if kind == "IQ4_XS":
        q, sc = [rng.randint(0, 15) for _ in range(256)], [rng.randint(0, 63) for _ in range(8)]
        data, d = half(rng, size / 4000, size / 2000)
        upper = sum((x >> 4) << 2 * i for i, x in enumerate(sc))
        low = bytes(sc[2 * i] & 15 | (sc[2 * i + 1] & 15) << 4 for i in range(4))
        return (data + struct.pack("<H", upper) + low + b"".join(nibbles(q[i:i + 32]) for i in range(0, 256, 32)),
                [d * (sc[i // 32] - 32) * NUMBERS[q[i]] for i in range(256)])
    if kind == "Q3_K":
        q, sc = [rng.randint(0, 7) for _ in range(256)], [rng.randint(0, 63) for _ in range(16)]
        data, d = half(rng, size / 128, size / 64)
        third = bytes(sum((q[i + 32 * j] >> 2) << j for j in range(8)) for i in range(32))
        low = bytes(sc[i] & 15 | (sc[i + 8] & 15) << 4 for i in range(8))
        high = bytes(sum((sc[i + 4 * j] >> 4) << 2 * j for j in range(4)) for i in range(4))
        return third + twos(q) + low + high + data, [d * (sc[i // 16] - 32) * (q[i] - 4) for i in range(256)]
    if kind == "Q2_K":
        q, sc, mn = ([rng.randint(0, most) for _ in range(n)] for most, n in ((3, 256), (15, 16), (15, 16)))
        (data, d), (more, least) = half(rng, 0, size / 20), half(rng, 0, size / 15)
        return (bytes(a | b << 4 for a, b in zip(sc, mn)) + twos(q) + data + more,
                [d * sc[i // 16] * q[i] - least * mn[i // 16] for i in range(256)])
    most = 31 if kind == "Q5_K" else 15
    q = [rng.randint(0, most) for _ in range(256)]
    sc, mn = [rng.randint(0, 63) for _ in range(8)], [rng.randint(0, 63) for _ in range(8)]
    (data, d), (more, least) = half(rng, 0, size / 30 / most), half(rng, 0, size / 60)
    fifth = bytes(sum((q[i + 32 * j] >> 4) << j for j in range(8)) for i in range(32)) if kind == "Q5_K" else b""
    low = b"".join(nibbles([x & 15 for x in q[i:i + 64]]) for i in range(0, 256, 64))
    return (data + more + six_bits(sc, mn) + fifth + low,
            [d * sc[i // 32] * q[i] - least * mn[i // 32] for i in range(256)])


def matrix(rng, kind, elements, size):
    """Random bytes of a type, and their values as fp32 holds them."""
    if kind in ("F32", "F16", "BF16"):
        return rounded([rng.uniform(-size, size) for _ in range(elements)], kind)
    data, values = [], []
    for _ in range(elements // TYPES[kind][1]):
        one, v = block(rng, kind, size)
        data.append(one)
        values += v
    return b"".join(data), array.array("f", values).tolist()
