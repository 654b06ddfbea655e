# scopes.py - tokens of CUDA functions with a number for each local name.
#
# A name is local where it is declared in the same function, as a parameter, a variable, a type or an enumerator. Blocks
# are followed, so a name that hides another has a number of its own. What cannot be read for certain raises Unclear.
import hashlib
import re

WORDS = set('''alignas alignof asm auto bool break case char class const constexpr const_cast continue decltype default
delete do double else enum explicit extern false float for friend goto if inline int long mutable namespace new noexcept
nullptr operator private protected public register reinterpret_cast return short signed sizeof static static_assert
static_cast struct switch template this throw true try typedef typename union unsigned using virtual void volatile
while'''.split())
BASIC = set('void bool char short int long float double unsigned signed auto'.split())
SPECIFIERS = set('''const constexpr static volatile extern inline register mutable typename explicit __restrict__ __shared__
__device__ __host__ __global__ __constant__ __forceinline__ __noinline__ __grid_constant__'''.split())
CLOSE = {'(': ')', '[': ']', '{': '}'}
NUMBER = '0N'  # begins what stands for a number, which is none of C++
BEFORE_LAMBDA = set('= ( , return { && || ? : ;'.split())


class Unclear(Exception):
    pass


class Form:
    """One definition. `key`: its tokens, with a number for each local name and a mark for each other name. `refs`: those
    others in order: ('u', name) as it stands, ('m', name) after . or ->, ('q', name) after ::"""

    def __init__(self, words, refs, stored=False, declares=None, begins=None, value=None):
        self.words, self.refs = tuple(words), tuple(refs)
        self.numbers = tuple(w for w in words if w.startswith(NUMBER))  # places of numbers of a kernel (match.py)
        self.key = hashlib.sha256('\0'.join(NUMBER if w.startswith(NUMBER) else w for w in words).encode()).digest()
        self.stored = stored      # it has a variable with a place in memory
        self.declares = declares  # of a declaration without a body: what the definition begins with
        self.begins = begins      # of a definition
        self.value = value        # of an enumerator, where it is a plain number


class Writer:
    """What is read so far of one form, and the names that are known where it stands."""

    def __init__(self, scopes=()):
        self.words, self.refs, self.scopes = [], [], [dict(s) for s in scopes]
        self.count = sum(map(len, self.scopes))
        self.stored = self.in_function = False

    def declare(self, name):
        self.scopes[-1][name] = '$%d' % self.count
        self.count += 1
        self.words.append(self.scopes[-1][name])

    def so_far(self):
        return tuple(self.words), tuple(self.refs)

    def form(self, **more):
        return Form(self.words, self.refs, self.stored, **more)


class Tokens:
    """A list of tokens, and how types, expressions and statements are read from it into a Writer."""

    def __init__(self, tokens):
        self.kinds, self.w = ['end'], ['']
        for kind, word in tokens:
            if kind == 'string' and self.kinds[-1] == 'string' and self.w[-1][0] == word[0] == '"':
                if re.search(r'\\(x[0-9a-fA-F]*|[0-7]{1,3})"$', self.w[-1]):
                    raise Unclear('strings that cannot be joined')
                self.w[-1] = self.w[-1][:-1] + word[1:]
                continue
            self.kinds.append(kind)
            self.w.append(word)
        self.end = len(self.w)
        self.kinds += ['end'] * 4
        self.w += [''] * 4
        self.closes = {}
        stack = []
        for i, word in enumerate(self.w):
            if self.kinds[i] != 'sign':
                continue
            if word in CLOSE:
                stack.append(i)
            elif word in ')]}':
                if not stack or CLOSE[self.w[stack[-1]]] != word:
                    raise Unclear('brackets')
                self.closes[stack.pop()] = i
        if stack:
            raise Unclear('brackets')

    # --- looking ahead ---

    def is_name(self, i):
        return self.kinds[i] == 'name' and self.w[i] not in WORDS

    def angle(self, i):
        """The > that closes the < at i, or None where it is a comparison."""
        depth = 0
        while True:
            w = self.w[i]
            if w in CLOSE and self.kinds[i] == 'sign':
                i = self.closes[i]
            elif w == '<':
                depth += 1
            elif w == '>':
                depth -= 1
                if not depth:
                    return i
            elif w == '>>':
                depth -= 2
                if depth <= 0:
                    return i if not depth else None
            elif self.kinds[i] == 'end' or w in (';', ')', ']', '}', '=', '&&', '||', '?'):
                return None
            i += 1

    def type_end(self, i):
        """Behind the type that begins at i, or None where none does."""
        core = False
        while True:
            w = self.w[i]
            if w in SPECIFIERS:
                i += 1
            elif w in ('alignas', '__align__', '__launch_bounds__', '__cluster_dims__'):
                i = self.closes[i + 1] + 1
            elif w in BASIC:
                core, i = True, i + 1
            elif w == 'decltype' and not core:
                core, i = True, self.closes[i + 1] + 1
            elif self.is_name(i) and not core and not self.w[i].startswith('__'):
                core, i = True, i + 1
                while True:
                    if self.w[i] == '<':
                        close = self.angle(i)
                        if close is None:
                            return None
                        i = close + 1
                    if self.w[i] != '::':
                        break
                    i += 2 if self.w[i + 1] == 'template' else 1
                    if not self.is_name(i):
                        return None
                    i += 1
            else:
                return i if core else None

    def declarator(self, i):
        """(place of the name, place behind it) of a declarator at i, or None."""
        while self.w[i] in ('*', '&', '&&', 'const', '__restrict__', '...', 'volatile'):
            i += 1
        if self.w[i] == '(' and self.w[i + 1] in ('&', '*') and self.is_name(i + 2) and self.w[i + 3] == ')':
            return (i + 2, i + 4) if self.w[i + 4] == '[' else None
        return (i, i + 1) if self.is_name(i) else None

    # --- expressions ---

    def emit(self, o, i, stop=None):
        """Writes the token at i, or those up to `stop`."""
        if stop is not None:
            while i < stop:
                self.emit(o, i)
                i += 1
            return
        word = self.w[i]
        o.stored |= word in ('__shared__', '__constant__') or (word == 'static' and o.in_function)
        if not self.is_name(i):
            if word in ('goto', 'try', 'throw', 'virtual', 'friend', 'namespace', 'new', 'delete'):
                raise Unclear(word)
            o.words.append(word)
            return
        before = self.w[i - 1]
        if before == 'template':
            before = self.w[i - 2]
        kind = 'u'
        if before in ('.', '->'):
            kind = 'm'
        elif before == '::':
            at = i - 3 if self.w[i - 1] == 'template' else i - 2
            if not (self.is_name(at) or self.w[at] in ('>', '>>', ')')):
                raise Unclear('a name of the outermost scope')
            kind = 'q'
        if kind == 'u':
            for scope in reversed(o.scopes):
                if word in scope:
                    o.words.append(scope[word])
                    return
        o.words.append('@' + kind)
        o.refs.append((kind, word))

    def expression(self, o, i, stops):
        """Writes tokens up to one of `stops` outside of brackets; its place."""
        while True:
            w = self.w[i]
            if w in stops and self.kinds[i] == 'sign':
                return i
            if self.kinds[i] == 'end' or (self.kinds[i] == 'sign' and w in ')]}'):
                raise Unclear('an expression that does not end')
            if w == '[' and self.w[i - 1] in BEFORE_LAMBDA:
                i = self.closure(o, i)
            elif w in CLOSE and self.kinds[i] == 'sign':
                self.emit(o, i)
                i = self.expression(o, i + 1, CLOSE[w])
                self.emit(o, i)
                i += 1
            elif w == '<' and self.is_name(i - 1) and self.angle(i) is not None:
                close = self.angle(i)
                while i <= close:
                    if self.w[i] == '[' and self.w[i - 1] in BEFORE_LAMBDA:
                        raise Unclear('a closure among arguments of a template')
                    self.emit(o, i)
                    i += 1
            elif w in ('struct', 'union', 'class', 'enum'):
                raise Unclear('a type in an expression')
            else:
                self.emit(o, i)
                i += 1

    def closure(self, o, i):
        close = self.closes[i]
        if any(self.w[j] == '=' and self.w[j + 1] not in (',', ']') for j in range(i, close)):
            raise Unclear('a capture with a value')
        self.emit(o, i, close + 1)
        o.scopes.append({})
        i = close + 1
        if self.w[i] == '(':
            i = self.parameters(o, i)
        while self.w[i] != '{':
            if self.kinds[i] == 'end':
                raise Unclear('a closure without a body')
            self.emit(o, i)
            i += 1
        i = self.block(o, i)
        o.scopes.pop()
        return i

    # --- declarations of local names ---

    def declare(self, o, i, d):
        """Writes what stands from i to the end of the declarator d; the place behind it."""
        self.emit(o, i, d[0])
        o.declare(self.w[d[0]])
        self.emit(o, d[0] + 1, d[1])
        return d[1]

    def parameters(self, o, i):
        """A list of parameters in ( ); the place behind it."""
        self.emit(o, i)
        i += 1
        while self.w[i] != ')':
            t = self.type_end(i)
            if t is None:
                raise Unclear('a parameter')
            d = self.declarator(t)
            if d and self.w[d[1]] in (',', ')', '=', '['):
                i = self.declare(o, i, d)
            i = self.expression(o, i, (',', ')'))
            if self.w[i] == ',':
                self.emit(o, i)
                i += 1
        self.emit(o, i)
        return i + 1

    def template(self, o, i):
        """template <...>; the place behind it. Its names are declared in the scope at hand."""
        if self.w[i + 1] != '<':
            raise Unclear('an explicit instance')
        self.emit(o, i, i + 2)
        i += 2
        while self.w[i] != '>':
            if self.w[i] in ('class', 'typename'):
                self.emit(o, i)
                i += 1
                if self.w[i] == '...':
                    self.emit(o, i)
                    i += 1
                if self.is_name(i) and self.w[i + 1] in (',', '>', '='):
                    o.declare(self.w[i])
                    i += 1
                elif self.w[i] not in (',', '>', '='):
                    raise Unclear('a parameter of a template')
            else:
                t = self.type_end(i)
                if t is None:
                    raise Unclear('a parameter of a template')
                d = self.declarator(t)
                if d:
                    i = self.declare(o, i, d)
                else:
                    self.emit(o, i, t)
                    i = t
            if self.w[i] == '=':
                i = self.expression(o, i, (',', '>'))
            if self.w[i] == ',':
                self.emit(o, i)
                i += 1
            elif self.w[i] != '>':
                raise Unclear('a list of a template')
        self.emit(o, i)
        return i + 1

    def declaration(self, o, i, stops):
        """Variables declared at i, up to one of `stops`; its place, or None where an expression stands."""
        t = self.type_end(i)
        d = t and self.declarator(t)
        if t and self.w[t] == '[' and any(self.w[j] == 'auto' for j in range(i, t)):
            raise Unclear('names of parts')
        if not d or self.w[d[1]] not in ('=', ';', ',', '[', '(', '{') + stops:
            return None
        if d[0] - 2 >= t and self.w[d[0] - 2] == '(' and t == i + 1 and self.is_name(i):
            raise Unclear('a call or a declaration')
        if t == d[0] and self.w[d[0] - 1] in ('const', 'static', 'constexpr', 'volatile'):
            raise Unclear('a declaration')
        if any(self.w[j] == 'extern' for j in range(i, t)) and not any(self.w[j] == '__shared__' for j in range(i, t)):
            raise Unclear('extern')
        self.emit(o, i, t)
        i = t
        while True:
            i = self.expression(o, self.declare(o, i, d), stops + (',',))
            if self.w[i] != ',':
                return i
            self.emit(o, i)
            i += 1
            d = self.declarator(i)
            if not d or self.w[d[1]] not in ('=', ';', ',', '[', '(', '{'):
                raise Unclear('a declarator')

    def skip(self, o, i):
        self.emit(o, i)
        return i + 1

    # --- statements ---

    def block(self, o, i):
        o.scopes.append({})
        self.emit(o, i)
        i += 1
        while self.w[i] != '}':
            i = self.statement(o, i)
        self.emit(o, i)
        o.scopes.pop()
        return i + 1

    def directive(self, o, i):
        while self.kinds[i] != 'end':
            if self.w[i - 1] == '#' or self.w[i - 2] == '#':
                o.words.append(self.w[i])
            else:
                self.emit(o, i)
            i += 1
        if i >= self.end:
            raise Unclear('a line of the preprocessor')
        o.words.append('\n')
        return i + 1

    def statement(self, o, i):
        w = self.w[i]
        if self.kinds[i] == 'end':
            raise Unclear('a block that does not end')
        if w == '{':
            return self.block(o, i)
        if w == '#':
            if self.w[i + 1] != 'pragma':
                raise Unclear('a line of the preprocessor')
            return self.directive(o, i)
        if w in ('if', 'while', 'switch', 'for'):
            o.scopes.append({})
            i = self.skip(o, i)
            if self.w[i] == 'constexpr':
                i = self.skip(o, i)
            i = self.skip(o, i)
            at = self.declaration(o, i, (';', ')'))
            i = self.expression(o, i, (';', ')')) if at is None else at
            if w == 'for' and self.w[i] == ')':
                raise Unclear('a loop over a range')
            while self.w[i] != ')':
                i = self.expression(o, self.skip(o, i), (';', ')'))
            i = self.statement(o, self.skip(o, i))
            if w == 'if' and self.w[i] == 'else':
                i = self.statement(o, self.skip(o, i))
            o.scopes.pop()
            return i
        if w == 'do':
            o.scopes.append({})
            i = self.statement(o, self.skip(o, i))
            o.scopes.pop()
            return self.skip(o, self.expression(o, i, (';',)))
        if w in ('case', 'default'):
            return self.skip(o, self.expression(o, i, (':',)))
        if w == 'static_assert':
            return self.closes[i + 1] + 2
        if w in ('using', 'typedef'):
            name, first, stop, behind = self.alias(i)
            o.words.append('using')
            self.emit(o, first, stop)
            self.expression(o, behind, (';',))
            o.declare(name)
            return self.closing(stop) + 1
        if w == 'enum':
            names, close = self.enumerators(i)
            o.words.append('enum')
            if self.is_name(i + 1):
                o.declare(self.w[i + 1])
            for j, first, stop in names:
                o.declare(self.w[j])
                self.emit(o, first, stop)
                o.words.append(',')
            if self.w[close + 1] != ';':
                raise Unclear('an enum')
            return close + 2
        if w in ('struct', 'union', 'class', 'template'):
            raise Unclear('a type in a function')
        if self.is_name(i) and self.w[i + 1] == ':':
            raise Unclear('a label')
        at = self.declaration(o, i, (';',)) if w not in ('return', 'asm', 'break', 'continue') else None
        i = self.expression(o, i, (';',)) if at is None else at
        return self.skip(o, i)

    def closing(self, i):
        """The ; that ends what stands at i."""
        while self.w[i] != ';':
            if self.kinds[i] == 'end':
                raise Unclear('a line without ;')
            i = self.closes[i] + 1 if self.w[i] in CLOSE and self.kinds[i] == 'sign' else i + 1
        return i

    def alias(self, i):
        """(name, begin and end of the type, place of what follows the name) of a using or typedef at i."""
        if self.w[i] == 'using':
            if not self.is_name(i + 1) or self.w[i + 2] != '=':
                raise Unclear('using')
            stop = self.closing(i)
            return self.w[i + 1], i + 3, stop, stop
        t = self.type_end(i + 1)
        d = t and self.declarator(t)
        if not d or self.w[d[1]] not in (';', '['):
            raise Unclear('typedef')
        return self.w[d[0]], i + 1, d[0], d[1]

    def enumerators(self, i):
        """([(place of the name, begin and end of its value)], the closing brace) of the enum at i."""
        i += 1 + self.is_name(i + 1)
        if self.w[i] != '{':
            raise Unclear('an enum')
        close, out = self.closes[i], []
        i += 1
        while i < close:
            name = first = stop = i
            if not self.is_name(i):
                raise Unclear('an enumerator')
            if self.w[i + 1] == '=':
                first = stop = i + 2
                while self.w[stop] not in (',', '}'):
                    if self.w[stop] == '<' or (self.kinds[stop] == 'number' and not re.match(r'(0x)?\d{1,8}$', self.w[stop])):
                        raise Unclear('the value of an enumerator')
                    stop = self.closes[stop] + 1 if self.w[stop] == '(' else stop + 1
            else:
                first = stop = i + 1
            out.append((name, first, stop))
            i = stop + 1 if self.w[stop] == ',' else stop
            if self.w[stop] not in (',', '}'):
                raise Unclear('an enumerator')
        return out, close
