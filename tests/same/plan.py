# plan.py - the plans of an artifact without their names, and the text of each kernel.
#
# Reads format 6 and later ones that kept the structs of runtime/artifact/ftx_format.h named below. The artifact was
# written with recorder.so in place of NVRTC, so the code of a kernel is its text.
import struct

FACTS, STRINGS, WEIGHT_INDEX, WEIGHTS, TOKENIZER, PLAN, KERNELS, CONSTS = 1, 2, 5, 6, 7, 8, 9, 10
PROGRAMS, LAUNCHES, OPERANDS, EXPRS, BUFFERS, CUBIN, SOURCE, TABLES, BAD_WORDS = 11, 12, 13, 14, 15, 16, 18, 19, 20
KERNEL_CPU, KERNEL_CUDA = 1, 2
MARK = b'FTXSAME'


class Kernel:
    """One instance: `facts` may be compared, `family` and `entry` are names, `text` and `flags` are for NVRTC."""

    def __init__(self, plan, words, artifact, cubin):
        (self.kind, family, entry, flags, first, count, operands, block, smem, *rest) = words
        grid, moves, matmul, at, size = rest[0:6], rest[6:8], rest[8], rest[9], rest[10]
        expr = lambda at, n: plan.exprs[at:at + n]
        consts = plan.consts[first:first + count]
        self.family, self.entry = artifact.string(family), artifact.string(entry)
        self.facts = {
            'kind': self.kind, 'flags': flags, 'operands': operands, 'block': block, 'shared memory': smem,
            'grid': [expr(grid[i], grid[i + 1]) for i in (0, 2, 4)], 'bytes moved': expr(*moves), 'matmul': matmul,
            # the CPU's kernels take their constants by place; in CUDA texts they have names
            'constants': consts if self.kind != KERNEL_CUDA else tuple(sorted(consts))}
        self.text = self.flags = None
        image = cubin[at:at + size]
        if image[64:64 + len(MARK)] == MARK:
            flags, text = image[72:].split(b'\0')[:2]
            self.flags, self.text = flags.decode(), text.decode()


class Plan:
    """One target of an artifact. `parts`: what may be compared, by name."""

    def __init__(self, artifact, target):
        def rows(kind, form):
            b = artifact.section(kind, target)
            if len(b) % struct.calcsize(form):
                raise SystemExit('same: tests/same/plan.py does not know this format: section %d has %d bytes' %
                                 (kind, len(b)))
            return list(struct.iter_unpack(form, b))
        self.consts = tuple(x[0] for x in rows(CONSTS, '<q'))
        self.exprs = tuple(x[0] for x in rows(EXPRS, '<q'))
        cubin = artifact.section(CUBIN, target)
        self.kernels = [Kernel(self, w, artifact, cubin) for w in rows(KERNELS, '<20I')]
        self.parts = {
            'spaces and named blocks': rows(PLAN, '<4I8QQ64Q'),
            'programs': rows(PROGRAMS, '<4I2Q'),
            'launches': [(kernel, first) for kernel, first, label, _ in rows(LAUNCHES, '<4I')],
            'operands': rows(OPERANDS, '<IIQ4I'),
            'buffers': [row[1:] for row in rows(BUFFERS, '<6I2Q')]}


class Artifact:
    def __init__(self, path):
        with open(path, 'rb') as f:
            self.bytes = f.read()
        magic, self.format, count, size, at = struct.unpack_from('<8sIIQQ', self.bytes)
        if magic != b'FTX1\r\n\x1a\n' or size != len(self.bytes):
            raise SystemExit('same: %s is no artifact' % path)
        self.sections = {}
        for i in range(count):
            kind, target, _, _, offset, n, checksum, _ = struct.unpack_from('<4I4Q', self.bytes, at + 48 * i)
            self.sections[kind, target] = (offset, n, checksum)
        self.plans = {t: Plan(self, t) for kind, t in sorted(self.sections) if kind == PLAN}
        weights = [row[1:4] + row[4:] for row in struct.iter_unpack('<4I6Q', self.section(WEIGHT_INDEX, 0))]
        self.shared = {'weights\' places': weights}
        for name, kind in (('weights', WEIGHTS), ('tokenizer', TOKENIZER), ('tables', TABLES), ('bad words', BAD_WORDS)):
            self.shared[name] = self.sections.get((kind, 0), (0, 0, 0))[1:]
        del self.bytes  # all that is needed is taken

    def section(self, kind, target):
        at, n, _ = self.sections.get((kind, target), (0, 0, 0))
        return self.bytes[at:at + n]

    def string(self, at):
        first = self.sections[STRINGS, 0][0] + at
        return self.bytes[first:self.bytes.index(b'\0', first)].decode()


def target_name(target):
    if target == 0:
        return 'cpu'
    return ('compute_%d' if target % 10 == 2 else 'sm_%d') % (target // 10) + ('a' if target % 10 == 1 else '')


def compare_kernels(a, b):
    """The names of facts that differ."""
    return [name for name in a.facts if a.facts[name] != b.facts[name]]
