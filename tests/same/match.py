# match.py - are two CUDA texts the same up to names, comments, borders of files and the order of definitions?
#
# Both texts go through the preprocessor and are read as definitions (define.py). Beginning with the kernel, the
# definitions that are used are laid side by side: their forms must be equal, and each name in one stands for the name
# at that place in the other, whose definitions are compared in turn. What nothing uses does not count.
import os
import re
import subprocess

import define
from define import Struct
import text
from scopes import Form, NUMBER, Unclear

KNOWN = {'__CUDA_ARCH__', '__cplusplus', 'defined'}  # names in conditions that mean here what they mean to NVRTC
VECTOR = {'x': 0, 'y': 1, 'z': 2, 'w': 3}            # fields of threadIdx and other types of CUDA
STRINGS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')


class Different(Exception):
    pass


# --- from a text to its definitions ---

pieces = {}  # text of one or more definitions -> name -> [Form or Struct], or why it cannot be read
balance = {}  # line -> brackets that it opens


def read_piece(source):
    if source not in pieces:
        try:
            pieces[source] = define.read_definitions(source)
        except Unclear as e:
            pieces[source] = '%s: %s' % (e, source.strip()[:200])
    if isinstance(pieces[source], str):
        raise Unclear(pieces[source])
    return pieces[source]


def cut(source):
    """The text in pieces that are whole definitions."""
    part, depth = [], 0
    for line in source.split('\n'):
        if line not in balance:
            bare = STRINGS.sub('', line)
            balance[line] = sum(map(bare.count, '{([')) - sum(map(bare.count, '})]'))
        depth += balance[line]
        part.append(line)
        if depth == 0 and line.endswith((';', '}')):
            yield '\n'.join(part)
            part = []
    if ''.join(part).strip():
        yield '\n'.join(part)


class Definitions:
    """name -> [Form or Struct], of headers or of a kernel's text behind its includes."""

    def __init__(self, source):
        self.names, self.order = {}, {}
        for part in cut(source):
            for name, made in read_piece(part).items():
                self.names.setdefault(name, []).extend(made)
                for form in made:
                    self.order.setdefault(id(form), len(self.order))


class Headers:
    def __init__(self, tree, names, flags):
        self.tree, self.flags = tree, flags
        self.includes = ''.join('#include "%s"\n' % name for name in names)
        for name, source in tree.headers(names).items():
            defined = set(re.findall(r'^\s*#\s*define\s+(\w+)', source, re.M))
            for condition in re.findall(r'^\s*#\s*(?:el)?if(?:n?def)?\b(.*)', source, re.M):
                unknown = set(re.findall(r'[A-Za-z_]\w*', re.sub(r'//.*|/\*.*', '', condition))) - KNOWN - defined
                if unknown:
                    raise Unclear('%s asks for %s' % (name, ' '.join(sorted(unknown))))
        lines, self.macros = [], set()
        for line in self.preprocess('', '-dD').split('\n'):
            m = re.match(r'\s*#\s*(define|undef)\s+(\w+)', line)
            if not m:
                lines.append(line)
            elif m.group(1) == 'define':
                self.macros.add(m.group(2))
            else:
                self.macros.discard(m.group(2))
        self.macros -= {'__CUDA_ARCH__'}
        self.check_pragmas(lines)
        self.own = Definitions('\n'.join(lines))
        self.lines = {}  # lines with macros -> what they become

    def preprocess(self, source, *more):
        words = ['gcc', '-E', '-P', '-x', 'c++', '-std=c++17', '-undef', '-nostdinc', '-Wundef', '-Werror', '-I', self.tree.root,
                 *self.flags, *more, '-']
        done = subprocess.run(words, input=self.includes + source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Unclear('the preprocessor says: ' + done.stderr[:500])
        return done.stdout

    def expand(self, body):
        """The text of a kernel without macros; each of its lines stands for itself."""
        lines = body.split('\n')
        used = [i for i, line in enumerate(lines) if self.macros & set(re.findall(r'\w+', line))]
        if any(lines[i].count('(') != lines[i].count(')') for i in used):
            lines, used = ['\n'.join(lines)], [0]
        asked = tuple(lines[i] for i in used)
        if asked not in self.lines:
            mark = 'SAME_MARK'
            out = self.preprocess(''.join('%s\n%s\n' % (mark, line) for line in asked)).split(mark)[1:] if asked else []
            self.lines[asked] = out
        for i, line in zip(used, self.lines[asked]):
            lines[i] = line
        self.check_pragmas('\n'.join(lines).split('\n'))
        return '\n'.join(lines)

    def check_pragmas(self, lines):
        for line in lines:  # gcc leaves macros in them as they are
            if line.lstrip().startswith('#') and self.macros & set(re.findall(r'\w+', line)):
                raise Unclear('a macro in a pragma')


def without_declarations(made):
    """Definitions of a name without those declarations that only announce one of them."""
    begun = {m.begins for m in made if m.begins}
    return [m for m in made if isinstance(m, Struct) or m.declares is None or m.declares not in begun]


class Unit:
    """A kernel's text as the compiler sees it: its headers' definitions, then its own."""

    def __init__(self, headers, body):
        self.headers, self.body = headers, body
        self.lists = {}

    def of(self, name):
        if name not in self.lists:
            made = self.headers.names.get(name, []) + self.body.names.get(name, [])
            self.lists[name] = without_declarations(made) if len(made) > 1 else made
        return self.lists[name]

    def place(self, form):
        at = self.headers.order.get(id(form))
        return at if at is not None else len(self.headers.order) + self.body.order[id(form)]


class Body:
    """A kernel's own text: names of its includes; the rest without comments and with marks for numbers; the numbers.
    Most kernels of a template differ in numbers alone, so that their definitions are read and compared once."""

    def __init__(self, source):
        self.includes = tuple(re.findall(r'^\s*#\s*include\s+"(.*)"', source, re.M))
        bare = re.sub(r'^\s*#\s*(include|line)\b.*$', '', source, flags=re.M)
        self.unclear = re.search(r'^(?!\s*#|\s*//|\s*$)[^\0]*#\s*include', source, re.M) or re.search(r'^\s*#(?!\s*pragma unroll)', bare, re.M) or '\\\n' in bare or NUMBER in bare
        words, self.numbers = [], []
        for m in text.TOKEN.finditer(bare):
            if m.lastgroup == 'number':
                words.append(NUMBER + str(len(self.numbers)))
                self.numbers.append(m.group())
            else:
                words.append(' ' if m.lastgroup in ('comment', 'blank') else m.group())
        self.text = re.sub(r'\s*\n\s*', '\n', ''.join(words))


class Source:
    """Kernels of one tree as units."""

    def __init__(self, tree):
        self.tree, self.headers, self.bodies, self.units = tree, {}, {}, {}

    def body(self, source):
        if source not in self.bodies:
            self.bodies[source] = Body(source)
        return self.bodies[source]

    def unit(self, body, flags):
        key = body.includes, body.text, flags
        if key not in self.units:
            self.units[key] = self.read(body, flags)
        return self.units[key]

    def read(self, body, flags):
        arch = re.match(r'--gpu-architecture=(?:sm|compute)_(\d+)a? --std=c\+\+17 --minimal$', flags)
        if not arch:
            raise Unclear('flags ' + flags)
        if body.unclear:
            raise Unclear('lines of the preprocessor in a kernel')
        key = body.includes, arch.group(1)
        if key not in self.headers:
            try:
                self.headers[key] = Headers(self.tree, body.includes, ['-D__CUDA_ARCH__=%s0' % arch.group(1)])
            except Unclear as e:
                self.headers[key] = str(e)
        headers = self.headers[key]
        if isinstance(headers, str):
            raise Unclear(headers)
        return Unit(headers.own, Definitions(headers.expand(body.text)))


# --- two units side by side ---

def indices(unit, form, owners):
    """The words and refs of a form with [NAME] as [number], where NAME is an enumerator."""
    words, refs, left = [], [], iter(form.refs)
    for i, word in enumerate(form.words):
        if word.startswith('@'):
            ref = next(left)
            made = unit.of(ref[1])
            if (word == '@u' and form.words[i - 1] == '[' and form.words[i + 1] == ']' and len(made) == 1 and not owners
                    and isinstance(made[0], Form) and made[0].value is not None):
                word = str(made[0].value)
            else:
                refs.append(ref)
        words.append(word)
    return words, refs


class Match:
    def __init__(self, a, b):
        self.a, self.b = a, b
        self.names, self.back = {}, {}  # name of a definition -> the other's
        self.structs, self.members = {}, {}  # pairs -> what was found
        self.forms, self.todo, self.stored = set(), [], []
        self.plain_seen = set()  # of definitions that stand in no struct
        self.numbers = set()     # pairs of marks of numbers that must be equal

    def run(self, entry):
        self.name(entry, entry)
        while self.todo:
            refs_a, refs_b, owners = self.todo.pop()
            for (kind, x), (_, y) in set(zip(refs_a, refs_b)):
                if kind == 'u':
                    if owners or (x, y) not in self.plain_seen:
                        self.plain(x, y, owners)
                    if not owners:
                        self.plain_seen.add((x, y))
                else:
                    self.member(x, y)
        for x, y in self.members:
            self.check_member(x, y)
        # arrays in shared memory lie in the order of their functions
        places = [b for _, b in sorted(self.stored)]
        if places != sorted(places):
            raise Different('the order of variables in memory')

    def form(self, f, g, owners):
        if (f, g) in self.forms:
            return
        self.forms.add((f, g))
        self.numbers.update(zip(f.numbers, g.numbers))
        if f.stored:
            outer = owners[-1] if owners else (f, g)
            self.stored.append((self.a.place(outer[0]), self.b.place(outer[1])))
        if f.key != g.key:
            words_a, refs_a = indices(self.a, f, owners)
            words_b, refs_b = indices(self.b, g, owners)
            if words_a != words_b:
                raise Different('a definition')
            self.todo.append((refs_a, refs_b, owners))
        else:
            self.todo.append((f.refs, g.refs, owners))

    def name(self, x, y):
        """The definitions called x in one text are those called y in the other."""
        if self.names.get(x) == y:
            return
        if x in self.names or y in self.back:
            raise Different('%s is not %s alone' % (x, y))
        self.names[x], self.back[y] = y, x
        made_a, made_b = self.a.of(x), self.b.of(y)
        if len(made_a) != len(made_b):
            raise Different('%s has %d definitions, %s %d' % (x, len(made_a), y, len(made_b)))
        for f, g in zip(made_a, made_b):
            if isinstance(f, Struct) != isinstance(g, Struct):
                raise Different(x)
            try:
                self.struct(f, g, ()) if isinstance(f, Struct) else self.form(f, g, ())
            except Different as e:
                raise Different('%s, %s: %s' % (x, y, e)) if str(e) == 'a definition' else e

    def struct(self, s, t, outer):
        if (s, t) in self.structs:
            return
        if s.kind != t.kind or len(s.nested) != len(t.nested) or len(s.fields) != len(t.fields) or len(s.bases) != len(t.bases):
            raise Different('a definition')
        owners = ((s, t),) + outer
        self.structs[s, t] = owners
        self.form(s.head, t.head, owners)
        for p, q in zip(s.nested, t.nested):
            self.struct(p, q, owners)
        for name in set(s.members) | set(t.members):
            if name.startswith(define.SPECIAL):
                self.same_members(s, t, name, name)
        for x, y in list(self.members):
            self.pair_in(s, t, x, y)

    def plain(self, x, y, owners):
        """A name that stands alone: a member of a struct around it, a definition, or CUDA's own."""
        for s, t in owners:
            if s.has(x) or t.has(y):
                self.same_members(s, t, x, y)
                return
            if self.in_bases(self.a, s, x) or self.in_bases(self.b, t, y):
                raise Different('%s, %s may be members of a base' % (x, y))
        if self.a.of(x) or self.b.of(y):
            self.name(x, y)
        elif x != y:
            raise Different('%s, %s' % (x, y))

    def in_bases(self, unit, s, name):
        for base in s.bases:
            made = unit.of(base)
            if not made or any(not isinstance(m, Struct) or m is s or m.has(name) or self.in_bases(unit, m, name)
                               for m in made):
                return True
        return False

    def member(self, x, y):
        """x behind a value or type here is y there, whatever the type is."""
        if (x, y) not in self.members:
            self.members[x, y] = True
            for s, t in list(self.structs):
                self.pair_in(s, t, x, y)

    def pair_in(self, s, t, x, y):
        """Compares x of s with y of t, if both are there."""
        if x in s.members and y in t.members:
            self.same_members(s, t, x, y)

    def same_members(self, s, t, x, y):
        if not self.alike(s, t, x, y):
            raise Different('members %s, %s' % (x, y))
        for f, g in zip(*self.of_members(s, t, x, y)):
            self.form(f, g, self.structs[s, t])

    @staticmethod
    def of_members(s, t, x, y):
        return without_declarations(s.members.get(x, [])), without_declarations(t.members.get(y, []))

    def alike(self, s, t, x, y):
        if x in s.members or y in t.members:
            made_a, made_b = self.of_members(s, t, x, y)
            return [f.key for f in made_a] == [g.key for g in made_b]
        if x in s.fields or y in t.fields:
            return x in s.fields and y in t.fields and s.fields[x] == t.fields[y]
        return s.named.get(x, -1) == t.named.get(y, -1)

    def check_member(self, x, y):
        """The value's type has y there, and so is one of those that have y, or here one of those that have x: is what
        they call so the same in all of them? (One side is enough, since both texts compile.)"""
        has_x = [pair for pair in self.structs if pair[0].has(x)]
        has_y = [pair for pair in self.structs if pair[1].has(y)]
        good = lambda pairs: all(s.has(x) and t.has(y) and self.alike(s, t, x, y) for s, t in pairs)
        if x != y and not (has_x and has_y):
            raise Different('members %s, %s' % (x, y))
        vector_x, vector_y = VECTOR.get(x), VECTOR.get(y)
        if not (vector_x is None or vector_x == vector_y) or not good(has_x):
            if not (vector_y is None or vector_x == vector_y) or not good(has_y):
                raise Different('members %s, %s of several structs' % (x, y))


class Matcher:
    """Kernels of two sources side by side."""

    def __init__(self, a, b):
        self.a, self.b, self.known = a, b, {}

    def compare(self, source_a, source_b, flags):
        """None: the two kernels are the same; else why not."""
        body_a, body_b = self.a.body(source_a), self.b.body(source_b)
        key = body_a.includes, body_a.text, body_b.includes, body_b.text, flags
        if key not in self.known:
            try:
                found = Match(self.a.unit(body_a, flags), self.b.unit(body_b, flags))
                found.run('KERNEL')
                self.known[key] = [[int(mark[len(NUMBER):]) for mark in pair] for pair in found.numbers]
            except Different as e:
                self.known[key] = str(e)
            except Unclear as e:
                self.known[key] = 'cannot be read: %s' % e
        known = self.known[key]
        if isinstance(known, str):
            return known
        return None if all(body_a.numbers[i] == body_b.numbers[j] for i, j in known) else 'a number'
