# plan.py - the plans of an artifact without their names, and the text of each kernel.
#
# Reads format 6 and later ones that kept, up to 12, the structs of runtime/artifact/ftx_format.h named below. Since format 8, KV
# pages have a space of their own; such plans are brought into the form of format 7 (`join_pages`), so that both can be
# compared. The artifact was written with recorder.so in place of NVRTC, so the code of a kernel is its text.
import struct

FACTS, STRINGS, WEIGHT_INDEX, WEIGHTS, TOKENIZER, PLAN, KERNELS, CONSTS = 1, 2, 5, 6, 7, 8, 9, 10
PROGRAMS, LAUNCHES, OPERANDS, EXPRS, BUFFERS, CUBIN, SOURCE, TABLES, BAD_WORDS = 11, 12, 13, 14, 15, 16, 18, 19, 20
KERNEL_CPU, KERNEL_CUDA = 1, 2
STATE, PAGES = 2, 6  # spaces
NAMED_K, NAMED_V, NAMED_LOGITS, NAMED_OUT = 10, 11, 12, 14  # places in named.def
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
            # in a CUDA kernel constants are part of the text, which is compared by itself
            'constants': consts if self.kind != KERNEL_CUDA else None}
        self.text = self.flags = None
        image = cubin[at:at + size]
        if image[64:64 + len(MARK)] == MARK:
            flags, text = image[72:].split(b'\0')[:2]
            self.flags, self.text = flags.decode(), text.decode()


def join_pages(head, operands, buffers, pages):
    """KV pages as they were before format 8: all `pages` of $k, then of $v, in STATE in front of $logits."""
    up = lambda n: (n + 255) // 256 * 256
    space, named, size = list(head[4:12]), list(head[13:45]), list(head[45:77])
    at, second = named[NAMED_LOGITS], named[NAMED_V]
    size[NAMED_K] *= pages
    size[NAMED_V] *= pages
    more = up(size[NAMED_K]) + up(size[NAMED_V])
    for i in range(NAMED_LOGITS, 25):
        named[i] += more if i != NAMED_OUT else 0
    named[NAMED_K], named[NAMED_V] = at, at + up(size[NAMED_K])
    space[STATE], space[PAGES] = space[STATE] + more, 0

    def place(where, offset):
        if where == PAGES and offset < second:
            return STATE, at + offset * pages
        if where == PAGES:
            return STATE, named[NAMED_V] + (offset - second) * pages
        return where, offset + (more if where == STATE and offset >= at else 0)
    operands = [place(o[0], o[2])[:1] + (o[1], place(o[0], o[2])[1]) + o[3:] for o in operands]
    buffers = [b[:1] + place(b[1], b[6])[:1] + b[2:6] + place(b[1], b[6])[1:] + b[7:] for b in buffers]
    return head[:4] + tuple(space) + head[12:13] + tuple(named) + tuple(size), operands, buffers


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
        head = rows(PLAN, '<4I8QQ64Q' if artifact.format < 11 else '<4I8QQ64QQ' if artifact.format == 11 else '<6I8QQ64QQ')[0]
        if artifact.format >= 12:  # names of the target and of the GPU
            head = head[:3] + (0,) + head[6:]
        exchange, head = head[77:] or (0,), head[:77]
        operands, buffers = rows(OPERANDS, '<IIQ4I'), rows(BUFFERS, '<6I2Q')
        if artifact.format >= 8:
            head, operands, buffers = join_pages(head, operands, buffers, artifact.facts[9])
        self.parts = {
            'exchange': exchange,
            'spaces and named blocks': head[:3] + head[4:],  # head[3]: the type of KV pages, until format 7
            'programs': rows(PROGRAMS, '<4I2Q'),
            'launches': [(kernel, first) for kernel, first, label, _ in rows(LAUNCHES, '<4I')],
            'operands': operands,
            'buffers': [row[1:] for row in buffers]}


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
        self.facts = struct.unpack_from('<10I', self.bytes, self.sections[FACTS, 0][0])
        self.plans = {t: Plan(self, t) for kind, t in sorted(self.sections) if kind == PLAN}
        # From format 10 on a row ends with the form of packed codes, their groups and zeros.
        row_form = '<4I6Q' if self.format < 10 else '<4I6Q4I'
        rows = struct.iter_unpack(row_form, self.section(WEIGHT_INDEX, 0))
        weights = [row[1:10] + (self.packed(row) if any(row[10:]) else ()) for row in rows]
        self.shared = {'weights\' places': weights}
        for name, kind in (('weights', WEIGHTS), ('tokenizer', TOKENIZER), ('tables', TABLES), ('bad words', BAD_WORDS)):
            self.shared[name] = self.sections.get((kind, 0), (0, 0, 0))[1:]
        del self.bytes  # all that is needed is taken

    def packed(self, row):
        return (self.string(row[10]), *row[11:13])

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
