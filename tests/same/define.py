# define.py - a CUDA text as definitions in which local names are numbers and other names are listed.
#
#   Form     one function, variable, alias or enumerator (scopes.py)
#   Struct   head (template, bases, types of its fields in order), and forms of all other members by name
#
# What cannot be read for certain raises Unclear: then the kernel is compiled.
import text
from scopes import Form, Tokens, Unclear, Writer

SPECIAL = 'operator', '~', '(constructor)'  # members that are used without their name


class Struct:
    def __init__(self, kind):
        self.kind, self.head, self.begins = kind, None, None
        self.fields = {}   # name -> its place among the fields
        self.members = {}  # name -> [Form]
        self.nested = []   # structs in it, in order
        self.named = {}    # name of a nested struct -> its place in `nested`
        self.bases = []    # names between : and {

    def has(self, name):
        return name in self.fields or name in self.members or name in self.named


class Reader(Tokens):
    """Reads the definitions of a list of tokens."""

    def read(self):
        """name -> [Form or Struct] of all definitions."""
        names = {}
        add = lambda name, made: names.setdefault(name, []).append(made)
        i = 1
        while i < self.end:
            i = self.definition(i, (), add, None)
        return names

    def definition(self, i, scopes, add, owner):
        """One definition at i; the place behind it. `owner`: the struct it is a member of, and its name."""
        if self.w[i] == ';':
            return i + 1
        if self.w[i] == 'static_assert':
            return self.closes[i + 1] + 2
        if self.w[i] in ('public', 'private', 'protected') and self.w[i + 1] == ':':
            return i + 2
        if self.w[i] == '#':
            raise Unclear('a line of the preprocessor')
        o = Writer(scopes)
        o.scopes.append({})
        if self.w[i] == 'template':
            i = self.template(o, i)
            if self.w[i] == 'template':
                raise Unclear('a template of a template')
        w = self.w[i]
        if w == 'typedef' and self.w[i + 1] in ('struct', 'union', 'enum'):
            return self.typedef_of(i, o, add)
        if w in ('using', 'typedef'):
            name, first, stop, behind = self.alias(i)
            o.words.append('using')
            self.emit(o, first, stop)
            self.expression(o, behind, (';',))
            add(name, o.form())
            return self.closing(stop) + 1
        if w == 'enum':
            close = self.enum(i, o, add, self.w[i + 1] if self.is_name(i + 1) else None)
            if self.w[close + 1] != ';':
                raise Unclear('an enum')
            return close + 2
        if w in ('struct', 'union', 'class'):
            return self.struct(i, o, add, owner)
        return self.function_or_variable(i, o, add, owner)

    def typedef_of(self, i, o, add):
        at = i + 2 + self.is_name(i + 2)
        if self.w[at] != '{':
            raise Unclear('typedef')
        close = self.closes[at]
        if not self.is_name(close + 1) or self.w[close + 2] != ';':
            raise Unclear('typedef')
        name, tag = self.w[close + 1], self.w[i + 2] if self.is_name(i + 2) else None
        if self.w[i + 1] == 'enum':
            self.enum(i + 1, o, add, name)
        else:
            add(name, self.body(self.w[i + 1], at, o))
        if tag and tag != name:
            add(tag, Form(['using', '@u'], [('u', name)]))
        return close + 3

    def enum(self, i, o, add, name):
        """An enum's type and its enumerators, each a form: its own value, or one more than the last."""
        made, close = self.enumerators(i)
        if name:
            add(name, Form(['enum'], []))
        last, step, value = None, 0, -1
        for j, first, stop in made:
            one = Writer(o.scopes)
            one.words.append('enumerator')
            if name:
                one.words.append('@u')
                one.refs.append(('u', name))
            if first < stop:
                self.emit(one, first, stop)
                last, step = self.w[j], 0
                value = int(self.w[first], 0) if stop == first + 1 and self.kinds[first] == 'number' else None
            else:
                value = None if value is None else value + 1
                one.words += ['@u' if last else '-1', '+%d' % (step + 1)]
                one.refs += [('u', last)] if last else []
                step += 1
            add(self.w[j], one.form(value=value))
        return close

    def struct(self, i, o, add, owner):
        kind = self.w[i]
        o.words.append(kind)
        i += 1
        while self.w[i] in ('alignas', '__align__'):
            close = self.closes[i + 1]
            self.emit(o, i, close + 1)
            i = close + 1
        name = self.w[i] if self.is_name(i) else None
        i += 1 if name else 0
        if self.w[i] == '<':
            close = self.angle(i)
            if close is None:
                raise Unclear('a special struct')
            self.emit(o, i, close + 1)
            i = close + 1
        if self.w[i] == ';':
            add(name, o.form(declares=o.so_far()))
            return i + 1
        begins, bases = o.so_far(), []
        while self.w[i] != '{':
            if self.kinds[i] == 'end' or self.w[i] in ('(', '*', '&', '='):
                raise Unclear('a struct')
            bases += [self.w[i]] if self.is_name(i) else []
            self.emit(o, i)
            i += 1
        close = self.closes[i]
        made = self.body(kind, i, o)
        made.begins, made.bases = begins, bases
        if owner is None:
            if not name or self.w[close + 1] != ';':
                raise Unclear('a struct without a name')
            add(name, made)
            return close + 2
        parent, head = owner
        place = len(parent.nested)
        parent.nested.append(made)
        head.words.append('nested%d' % place)
        if name:
            parent.named[name] = place
        i = close + 1
        if self.w[i] == ';' and not name:  # its fields are the parent's
            if made.members or made.nested and any(not s.fields for s in made.nested):
                raise Unclear('members of a struct without a name')
            for field, at in made.fields.items():
                parent.fields[field] = (place, at)
            return i + 1
        return self.fields(i, parent, head) if self.w[i] != ';' else i + 1

    def body(self, kind, i, o):
        """The struct whose { is at i; o has its head so far."""
        made, close = Struct(kind), self.closes[i]
        o.words.append('{')
        scopes = [dict(s) for s in o.scopes]

        def add(member, form):
            if isinstance(form, Struct):
                raise Unclear('a struct in a struct')
            made.members.setdefault(member, []).append(form)
        i += 1
        while i < close:
            i = self.definition(i, scopes, add, (made, o))
            if i > close + 1:
                raise Unclear('a struct')
        made.head = o.form()
        return made

    def fields(self, i, parent, head):
        """Declarators at i of fields whose type stands in `head` already."""
        while True:
            d = self.declarator(i)
            if not d or self.w[d[1]] not in (';', ',', '[', '=', '{', ':'):
                raise Unclear('a field')
            self.emit(head, i, d[0])
            if self.w[d[0]] in parent.fields:
                raise Unclear('a field')
            parent.fields[self.w[d[0]]] = len(parent.fields)
            self.emit(head, d[0] + 1, d[1])
            i = self.skip(head, self.expression(head, d[1], (',', ';')))
            if self.w[i - 1] == ';':
                return i

    def function_or_variable(self, i, o, add, owner):
        first, j, name = i, i, None
        while True:  # which is it, and what is it called
            w = self.w[j]
            if self.kinds[j] == 'end' or w in (';', '=', '{', ',', '}', ')'):
                break
            if w == 'operator':
                at = j + 1
                at += 2 if self.w[at] == '(' else 0
                while self.w[at] != '(':
                    at += 1
                name, stop, j = 'operator' + ' '.join(self.w[j + 1:at]), j, at
                break
            if w == '<' and self.is_name(j - 1):
                close = self.angle(j)
                if close is None:
                    raise Unclear('a definition')
                if self.w[close + 1] == '(':
                    name, stop, special, j = self.w[j - 1], j - 1, j, close + 1
                    break
                j = close
            elif w == '(':
                before = self.w[j - 1]
                if before in ('alignas', 'decltype', 'noexcept') or before.startswith('__'):
                    j = self.closes[j]
                elif self.is_name(j - 1):
                    name, stop = self.w[j - 1], j - 1
                    break
                else:
                    raise Unclear('a definition')
            elif w == '[' or w == ':':
                break
            j += 1
        if name is None:
            return self.variables(first, o, add, owner)
        if self.w[stop - 1] == '~':
            name = '~'
        elif owner and stop == first or (owner and self.w[stop - 1] in ('explicit', '__forceinline__', '__device__', 'constexpr')):
            name = '(constructor)'
        self.emit(o, first, stop)
        o.words.append('function')
        o.in_function = True
        if name.startswith('operator'):
            o.words.append(name)
        elif stop + 1 < j:
            self.emit(o, stop + 1, j)  # a special instance
        j = self.parameters(o, j)
        while self.w[j] not in ('{', ';', ':'):
            if self.kinds[j] == 'end' or self.w[j] == '[':
                raise Unclear('a function')
            stop = self.closes[j] + 1 if self.w[j] == '(' else j + 1
            self.emit(o, j, stop)
            j = stop
        head = o.so_far()
        while self.w[j] in (':', ','):  # members and what they begin with
            self.emit(o, j)
            if not self.is_name(j + 1) or self.w[j + 2] != '(':
                raise Unclear('a constructor')
            o.words.append('@u')
            o.refs.append(('u', self.w[j + 1]))
            self.emit(o, j + 2)
            j = self.expression(o, j + 3, (')',))
            self.emit(o, j)
            j += 1
        if self.w[j] not in ('{', ';'):
            raise Unclear('a constructor')
        if self.w[j] == ';':
            add(name, o.form(declares=head))
            return j + 1
        j = self.block(o, j)
        add(name, o.form(begins=head))
        return j

    def variables(self, i, o, add, owner):
        t = self.type_end(i)
        if t is None:
            raise Unclear('a definition')
        static = any(self.w[j] in ('static', 'constexpr') for j in range(i, t))
        if owner and not static:
            parent, head = owner
            head.words.append('field')
            self.emit(head, i, t)
            return self.fields(t, parent, head)
        at = t
        while True:
            d = self.declarator(at)
            if not d:
                raise Unclear('a variable')
            one = Writer(o.scopes)
            one.words, one.refs = list(o.words), list(o.refs)
            self.emit(one, i, t)
            self.emit(one, at, d[0])
            one.words.append('variable')
            self.emit(one, d[0] + 1, d[1])
            one.stored |= self.w[d[1]] == '[' or ('u', '__device__') in one.refs
            at = self.expression(one, d[1], (',', ';'))
            add(self.w[d[0]], one.form())
            at += 1
            if self.w[at - 1] == ';':
                return at


def read_definitions(source):
    return Reader(text.lex(source)).read()
