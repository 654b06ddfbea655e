# text.py - CUDA texts as tokens: are two kernels the same up to comments and blanks?
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
        self.files = {}

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
