# text.py - CUDA texts as tokens: are two kernels the same up to comments, blanks and names?
#
# Includes are expanded where they stand first, so headers may be split, joined and renamed. What is left are tokens:
# identifiers, numbers, strings, signs, and the ends of preprocessor lines. The messages of static_assert are dropped.
import hashlib
import os
import re

TOKEN = re.compile(
    r'(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)|(?P<join>\\\n)|(?P<newline>\n)|(?P<blank>[ \t\r\f]+)'
    r'|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|(?P<number>\.?[0-9](?:[eEpP][+-]|\'?[\w.])*)'
    r'|(?P<name>[A-Za-z_]\w*)|(?P<sign><<=|>>=|\.\.\.|->|::|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||##|.)',
    re.DOTALL)

# A name that a rename may not touch: it means something to the compiler.
RESERVED = set('''alignas alignof and asm auto bool break case char class const constexpr const_cast continue decltype
default delete do double dynamic_cast else enum explicit extern false float for friend goto if inline int long mutable
namespace new noexcept not nullptr operator or private protected public register reinterpret_cast return short signed
sizeof static static_assert static_cast struct switch template this throw true try typedef typeid typename union
unsigned using virtual void volatile while define undef include ifdef ifndef elif endif pragma once unroll error line
defined nounroll threadIdx blockIdx blockDim gridDim warpSize'''.split())


def lex(text):
    """(kind, word) of each token that counts."""
    out, directive, fresh, depth = [], False, True, 0
    asserting = None  # the depth of parentheses at which a static_assert began
    for m in TOKEN.finditer(text):
        kind, word = m.lastgroup, m.group()
        if kind == 'newline':
            if directive:
                out.append(('end', '\n'))
            directive, fresh = False, True
            continue
        if kind in ('comment', 'join', 'blank'):
            continue
        if word == '#' and fresh:
            directive = True
        fresh = False
        if word == 'static_assert':
            asserting = depth
        depth += (word == '(') - (word == ')')
        if asserting is not None:
            if depth == asserting and word == ')':
                asserting = None
            elif kind == 'string':
                if out and out[-1][1] == ',':
                    out.pop()
                continue
        out.append((kind, word))
    return out


class Segment:
    """Tokens between two includes. `key` is equal where the tokens are."""

    def __init__(self, tokens):
        self.tokens, self.key = tokens, hashlib.sha256(repr(tokens).encode()).digest()


def split(text):
    """A text as segments and names of includes, in their order. Lines for the compiler's own reports are left out."""
    tokens, out, run, i = lex(text), [], [], 0
    while i < len(tokens):
        word, name = (tokens[i + 1][1], tokens[i + 2][1]) if i + 2 < len(tokens) else ('', '')
        if tokens[i] == ('sign', '#') and (word in ('include', 'line') or (word, name) == ('pragma', 'once')):
            if word == 'include':
                out += [Segment(run)] if run else []
                out.append(name.strip('"'))
                run = []
            while i < len(tokens) and tokens[i][0] != 'end':
                i += 1
        else:
            run.append(tokens[i])
        i += 1
    return out + ([Segment(run)] if run else [])


class Tree:
    """The kernels of one commit."""

    def __init__(self, root):
        self.root = os.path.join(root, 'kernels')
        self.files, self.included = {}, {}

    def file(self, name):
        """(text, parts) of a header."""
        if name not in self.files:
            with open(os.path.join(self.root, name)) as f:
                read = f.read()
            self.files[name] = (read, split(read))
        return self.files[name]

    def headers(self, parts, seen=None):
        """The headers that a text includes, and those that they include: name -> text."""
        seen = {} if seen is None else seen
        for name in parts:
            if isinstance(name, str) and name not in seen:
                seen[name] = self.file(name)[0]
                self.headers(self.file(name)[1], seen)
        return seen

    def expand(self, parts, seen=None):
        """The segments of a text, each header's where it stands first."""
        seen, out = set() if seen is None else seen, []
        for part in parts:
            if isinstance(part, Segment):
                out.append(part)
            elif part not in seen:
                seen.add(part)
                out += self.expand(self.file(part)[1], seen)
        return out

    def whole(self, parts):
        """As expand, for a kernel; many have the same includes, which stand before the rest."""
        first = next((i for i, part in enumerate(parts) if isinstance(part, Segment)), len(parts))
        if any(isinstance(part, str) for part in parts[first:]):
            return self.expand(parts)
        key = tuple(parts[:first])
        if key not in self.included:
            self.included[key] = self.expand(key)
        return self.included[key] + parts[first:]


class Names(dict):
    """The name of one list of tokens -> the name of the other, one to one."""

    def __init__(self):
        self.back, self.pasted = {}, False

    def pair(self, a, b):
        return self.setdefault(a, b) == b and self.back.setdefault(b, a) == a


def names_of(a, b):
    """How the names of two lists of tokens stand for each other; None: more than names differs."""
    names = Names()
    if len(a) != len(b):
        return None
    for (kind_a, word_a), (kind_b, word_b) in zip(a, b):
        if kind_a != kind_b or (word_a != word_b and kind_a != 'name'):
            return None
        if kind_a == 'name' and not names.pair(word_a, word_b):
            return None
        names.pasted = names.pasted or word_a == '##'
    return names


known = {}  # keys of two segments -> Names


def names_of_segments(a, b):
    if (a.key, b.key) not in known:
        known[a.key, b.key] = names_of(a.tokens, b.tokens)
    return known[a.key, b.key]


def renames(a, b):
    """The names that differ between two lists of segments, as a tuple of pairs; None: more than names differs.

    Each name of one must stand for one name of the other, both ways. Words of the language and of CUDA may not
    differ. A paste (##) makes names out of pieces, so where there is one no name may differ."""
    if [s.key for s in a] == [s.key for s in b]:
        return ()
    if len(a) == len(b):
        every = [names_of_segments(x, y) for x, y in zip(a, b)]
    else:
        every = [names_of([t for s in a for t in s.tokens], [t for s in b for t in s.tokens])]
    all_names = Names()
    for names in every:
        if names is None or not all(all_names.pair(x, y) for x, y in names.items()):
            return None
    pairs = tuple(sorted((x, y) for x, y in all_names.items() if x != y))
    if pairs and any(names.pasted for names in every):
        return None
    if any(w in RESERVED or w.startswith('__') for pair in pairs for w in pair):
        return None
    return pairs
