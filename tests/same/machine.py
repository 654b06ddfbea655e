# machine.py - machine code without its names: cubins and PTX from NVRTC, functions of host objects.
import collections
import ctypes
import glob
import hashlib
import os
import re
import struct

SHT_NOBITS, SHT_RELA, SHT_REL, SHT_SYMTAB = 8, 4, 9, 2


# --- ELF ---

class Elf:
    """Sections, symbols and relocations of a file."""

    def __init__(self, data):
        at, = struct.unpack_from('<Q', data, 40)
        size, count, names = struct.unpack_from('<3H', data, 58)
        heads = [struct.unpack_from('<2I4Q2I2Q', data, at + size * i) for i in range(count)]
        text = lambda table, i: data[heads[table][4] + i:data.index(b'\0', heads[table][4] + i)].decode()
        self.sections = []  # (name, type, flags, info, bytes)
        for h in heads:
            body = b'\0' * h[5] if h[1] == SHT_NOBITS else data[h[4]:h[4] + h[5]]
            self.sections.append((text(names, h[0]), h[1], h[2], h[7], body))
        self.symbols = []  # (name, section, value, size, is local)
        for h in heads:
            if h[1] == SHT_SYMTAB:
                for name, info, _, section, value, n in struct.iter_unpack('<IBBHQQ', data[h[4]:h[4] + h[5]]):
                    self.symbols.append((text(h[6], name), section, value, n, info >> 4 == 0))
        self.relocations = {}  # section -> [(offset, type, symbol, addend)]
        for h in heads:
            if h[1] in (SHT_RELA, SHT_REL):
                form = '<QQq' if h[1] == SHT_RELA else '<QQ'
                rows = self.relocations.setdefault(h[7], [])
                for offset, info, *addend in struct.iter_unpack(form, data[h[4]:h[4] + h[5]]):
                    rows.append((offset, info & 0xffffffff, info >> 32, addend[0] if addend else 0))


def digest(*things):
    return hashlib.sha256(repr(things).encode()).hexdigest()[:16]


# --- cubins and PTX ---

def cubin_parts(data, entry):
    """What a kernel is made of: its instructions, what they take, and the constants they read."""
    elf, parts = Elf(data), {}
    for i, (name, kind, flags, info, body) in enumerate(elf.sections):
        if name == '.text.' + entry:
            parts['instructions'] = body
            parts['registers and barriers'] = (info >> 24, flags >> 20)
        elif name == '.nv.shared.' + entry:
            parts['shared memory'] = len(body)
        elif name.startswith('.nv.constant') and name.endswith('.' + entry):
            parts[name[:name.rindex('.')]] = body
        elif name == '.nv.info.' + entry:
            parts['attributes'] = body
        if name in ('.text.' + entry, '.nv.constant2.' + entry, '.nv.constant4.' + entry):
            for offset, form, symbol, addend in elf.relocations.get(i, []):
                _, section, value, size, _ = elf.symbols[symbol]
                target = elf.sections[section]
                held = target[4][value:value + size] if target[0].startswith('.nv.') else b''
                parts.setdefault('relocations', []).append((offset, form, addend, held))
    return parts


def ptx_parts(data, entry):
    """The text without comments and without variables that nothing reads; other names by the order in which they stand."""
    lines = re.sub(r'//[^\n]*', '', data.rstrip(b'\0').decode()).split('\n')
    words = re.findall(r'[A-Za-z_$%][\w$]*', '\n'.join(lines))
    declared = {}
    for line in lines:
        m = re.match(r'\s*(?:\.visible |\.extern |\.weak )?\.(?:global|shared|const)\b.*?([A-Za-z_$][\w$]*)(?:\[\d*\])*( =.*)?;', line)
        if m:
            declared[m.group(1)] = line
    count = collections.Counter(words)
    unread = {line for name, line in declared.items() if count[name] == 1}
    kept = [line for line in lines if line.strip() and line not in unread]
    order = {}
    for word in re.findall(r'[A-Za-z_$%][\w$]*', '\n'.join(kept)):
        if word in declared or word == entry or word.startswith(entry + '_'):
            order.setdefault(word, '$name%d' % len(order))
    return {'text': re.sub(r'[A-Za-z_$%][\w$]*', lambda m: order.get(m.group(), m.group()), '\n'.join(kept))}


def differing_parts(a, b):
    return sorted(name for name in set(a) | set(b) if a.get(name) != b.get(name))


# --- NVRTC ---

class Nvrtc:
    def __init__(self, root):
        named = os.environ.get('FTX_NVRTC')
        places = [named, named and named + '/libnvrtc.so.13'] if named else [
            root + '/.deps/cuda/lib/libnvrtc.so.13', 'libnvrtc.so.13', '/usr/local/cuda/lib64/libnvrtc.so.13']
        for place in places:
            try:
                for part in glob.glob(os.path.dirname(place) + '/libnvrtc-builtins.so*') if '/' in place else []:
                    ctypes.CDLL(part)
                self.lib = ctypes.CDLL(place)
                break
            except OSError:
                continue
        else:
            raise SystemExit('same: there is no NVRTC: run scripts/deps, or name it by FTX_NVRTC')
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = '%d.%d' % (major.value, minor.value)

    def compile(self, text, headers, flags):
        """The code of a text, a cubin or PTX; raises ValueError with the log."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        strings = lambda words: (ctypes.c_char_p * max(1, len(words)))(*[w.encode() for w in words])
        self.lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b'kernel.cu', len(headers),
                                    strings(list(headers.values())), strings(list(headers)))
        failed = self.lib.nvrtcCompileProgram(program, len(flags), strings(flags))
        kind = b'nvrtcGetProgramLog' if failed else b'nvrtcGetPTX' if 'compute_' in flags[0] else b'nvrtcGetCUBIN'
        self.lib[(kind + b'Size').decode()](program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        self.lib[kind.decode()](program, out)
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        if failed:
            raise ValueError(out.raw.decode(errors='replace'))
        return out.raw


# --- objects of the host ---

def object_functions(paths):
    """digest -> name of every function of some objects: its bytes, and what its relocations name."""
    functions, known = [], {}
    for path in paths:
        elf = Elf(open(path, 'rb').read())
        for i, (name, kind, _, _, body) in enumerate(elf.sections):
            if not name.startswith(('.text.', '.rodata', '.data')) or not body:
                continue
            functions.append((elf, i, name))
            known[id(elf), i] = digest(body)
    defined = {}  # global symbol -> place, of all objects
    for elf, i, _ in functions:
        for name, section, value, _, local in elf.symbols:
            if section == i and not local:
                defined[name] = (id(elf), section), value

    def target(elf, symbol):
        name, section, value, _, local = elf.symbols[symbol]
        place, value = (((id(elf), section), value)) if section and local else defined.get(name, (None, 0))
        if place is None:
            return name
        pool = re.match(r'\.rodata\.cst(\d+)$', elf.sections[section][0]) if local else None
        if pool:  # constants of several functions
            return elf.sections[section][4][value:value + int(pool.group(1))]
        return known.get(place), value

    for _ in range(3):  # calls of calls
        known = {(id(elf), i): digest(elf.sections[i][4], [
            (offset, form, addend, target(elf, symbol)) for offset, form, symbol, addend in
            elf.relocations.get(i, [])]) for elf, i, _ in functions}
    out = {}
    for elf, i, name in functions:
        if name.startswith('.text.'):
            out.setdefault(known[id(elf), i], []).append(name[len('.text.'):])
    return out
