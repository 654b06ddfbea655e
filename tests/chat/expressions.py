"""expressions.py - generated expressions, filters and statements: what Jinja2 prints is what we print, and what it refuses
we refuse. FTX_CHAT_CASES and FTX_CHAT_SEED make other or longer runs."""
import os
import random
import sys

import oracle

VARIABLES = {
    "i": 7, "zero": 0, "neg": -3, "big": 2**53 + 1, "f": 2.5, "tiny": 1e-05, "huge": 1.5e16, "yes": True, "no": False, "nil": None,
    "s": "Hello World", "e": "", "u": "Grüße 東京\u00a0🙂ß", "ws": "  \t a b\u2003\n", "csv": "a,b,,c", "lines": "one\ntwo\r\nthree\n\n",
    "quote": "it's \"so\" \\ \x01\u200b", "digits": " 42 ",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, [True]], "empty": [], "pairs": [["a", 1], ["b", 2]],
    "d": {"a": 1, "b": {"c": [1, 2, {"d": "x"}]}, "items": "own", "ü": None}, "ed": {},
    "rows": [{"name": "x", "role": "user", "n": 2}, {"name": "Y", "role": "assistant", "n": 1}, {"role": "user", "n": 3, "name": "a"}, {"role": "tool"}],
}
STRINGS = ["s", "e", "u", "ws", "csv", "lines", "quote", "digits", "'abc'", '"a\\n\\u00e9\\x41"', "'x' 'y'", "' '"]
NUMBERS = ["i", "zero", "neg", "big", "f", "tiny", "huge", "yes", "no", "0", "1", "2", "10", "3.0", "0.1", "1e3"]
LISTS = ["l", "ls", "mixed", "empty", "pairs", "rows", "[1, 2, 3]", "['a', 'b']", "(1, 'two')", "()", "[]", "s.split()", "(range(4)|list)", "(5,)"]
DICTS = ["d", "ed", "{'k': 1, 'z': [1]}", "rows[0]", "d.b", "{1: 'one', true: 2}"]
OTHERS = ["nil", "missing", "missing2", "d.nothing", "rows[9]", "true", "none"]
STRING_FILTERS = ["upper", "lower", "capitalize", "title", "trim", "length", "string", "list", "first", "last", "int", "float", "reverse",
                  "default('?')", "default('?', true)", "d('x', boolean=true)", "replace('a', 'bb')", "replace('', '-')", "replace('l', 'L', 1)", "indent", "indent(2)",
                  "indent(2, true)", "indent(width=3, blank=true)", "indent('> ')", "tojson", "tojson(ensure_ascii=true)", "join('-')", "trim('ab ')", "count", "unique|list"]
LIST_FILTERS = ["length", "first", "last", "list", "join", "join(', ')", "join('|', attribute='name')", "reverse|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
                "sort(attribute='n')", "unique|list", "min", "max", "sum", "sum(start=10)", "tojson", "tojson(indent=2)", "string", "map(attribute='name')|list",
                "map(attribute='role', default='?')|join(',')", "map('upper')|list", "map('string')|list", "map(attribute='b.c')|list", "select|list", "reject|list",
                "select('string')|list", "select('equalto', 1)|list", "reject('none')|list", "select('gt', 1)|list", "selectattr('name')|list", "selectattr('role', 'equalto', 'user')|list",
                "rejectattr('role', 'eq', 'user')|map(attribute='name')|list", "selectattr('name', 'defined')|list", "selectattr('role', 'in', ['tool', 'user'])|list|length",
                "default([])", "map('length')|list", "max(attribute='n')", "min(attribute='n')", "sum(attribute='n')", "tojson(separators=(',', ':'))"]
DICT_FILTERS = ["length", "items|list", "dictsort", "dictsort(by='value')", "dictsort(reverse=true)", "list", "tojson", "tojson(indent=4)", "tojson(sort_keys=true)", "string", "first", "join", "default({})"]
NUMBER_FILTERS = ["abs", "int", "float", "round", "round(1)", "round(2, 'floor')", "round(0, 'ceil')", "string", "tojson", "default(1)", "length", "upper", "trim"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence", "odd", "even", "lower", "upper",
         "divisibleby 2", "divisibleby(3)", "eq 1", "ne 'a'", "equalto('abc')", "in [1, 'a', none]", "in 'abc'", "gt 1", "ge 2", "lt 3", "le 2.5", "lessthan 2", "greaterthan 1", "callable"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('a ')", "lstrip('H')", "rstrip('d\\n')", "split()", "split(',')", "split(',', 1)", "split('l')", "split(none, 1)", "split(maxsplit=1)",
           "rsplit(',', 1)", "rsplit()", "rsplit(none, 1)", "splitlines()", "splitlines(true)", "startswith('a')", "startswith(('H', 'a'))", "endswith('d')", "endswith('')", "replace('a', 'b')",
           "replace('l', '', 1)", "upper()", "lower()", "title()", "capitalize()", "find('o')", "rfind('o')", "find('zz')", "find('')", "count('l')", "count('')", "join(['a', 'b'])", "join(ls)",
           "removeprefix('He')", "removesuffix('ld')", "nothing", "split('')", "isnothing()"]


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *lists):
        return self.rng.choice(self.rng.choice(lists))

    def value(self, deep):
        r = self.rng.random()
        if deep <= 0 or r < 0.25:
            return self.pick(STRINGS, NUMBERS, LISTS, DICTS, OTHERS)
        return self.rng.choice([self.string, self.number, self.list, self.dict, self.logic, self.condition, self.any_operator])(deep - 1)

    def index(self):
        return self.rng.choice(["0", "1", "-1", "-2", "5", "i", "zero", "true", "'a'", "'name'", "s", "nil"])

    def slice(self):
        part = lambda: self.rng.choice(["", "", "0", "1", "2", "-1", "-3", "9", "zero", "none"])
        text = part() + ":" + part()
        return text + (":" + self.rng.choice(["", "1", "2", "-1", "-2", "0"]) if self.rng.random() < 0.4 else "")

    def string(self, deep):
        s = self.rng.choice(STRINGS) if deep <= 0 or self.rng.random() < 0.6 else f"({self.string(deep - 1)})"
        return self.rng.choice([
            lambda: f"{s}|{self.rng.choice(STRING_FILTERS)}", lambda: f"{s}.{self.rng.choice(METHODS)}", lambda: f"{s}[{self.index()}]", lambda: f"{self.rng.choice(STRINGS)}[{self.slice()}]",
            lambda: f"{s} + {self.rng.choice(STRINGS)}", lambda: f"{s} ~ {self.value(deep - 1)}", lambda: f"{s} * {self.rng.choice(['0', '2', 'neg', 'true'])}"])()

    def number(self, deep):
        a = self.rng.choice(NUMBERS) if deep <= 0 or self.rng.random() < 0.5 else f"({self.number(deep - 1)})"
        b = self.rng.choice(NUMBERS)
        return self.rng.choice([lambda: f"{a} {self.rng.choice(['+', '-', '*', '/', '//', '%'])} {b}", lambda: f"-{a}", lambda: f"{a}|{self.rng.choice(NUMBER_FILTERS)}",
                                lambda: f"+{a}", lambda: f"{self.rng.choice(['i', 'neg', '2', 'f'])} ** {self.rng.choice(['0', '2', '3', 'neg'])}"])()

    def list(self, deep):
        l = self.rng.choice(LISTS) if deep <= 0 or self.rng.random() < 0.7 else f"[{self.value(deep - 1)}, {self.value(deep - 1)}]"
        return self.rng.choice([lambda: f"{l}|{self.rng.choice(LIST_FILTERS)}", lambda: f"{l}[{self.index()}]", lambda: f"{self.rng.choice(LISTS)}[{self.slice()}]", lambda: f"{l} + {self.rng.choice(LISTS)}",
                                lambda: f"{l}.{self.rng.choice(['index(1)', 'count(1)', 'append(1)', 'nothing', '0'])}", lambda: f"{l} * 2"])()

    def dict(self, deep):
        d = self.rng.choice(DICTS) if deep <= 0 or self.rng.random() < 0.7 else f"{{'a': {self.value(deep - 1)}, 'b': {self.value(deep - 1)}}}"
        return self.rng.choice([lambda: f"{d}|{self.rng.choice(DICT_FILTERS)}", lambda: f"{d}.{self.rng.choice(['a', 'b', 'b.c', 'k', 'name', 'missing', 'role'])}",
                                lambda: f"{d}[{self.index()}]", lambda: f"{d}.get({self.rng.choice(['1', chr(39) + 'a' + chr(39), 's'])}{self.rng.choice(['', ', 5'])})",
                                lambda: f"{d}.{self.rng.choice(['items()|list', 'keys()|list', 'values()|list', 'update({})', 'get()'])}"])()

    def logic(self, deep):
        a, b = self.value(deep - 1), self.value(deep - 1)
        return self.rng.choice([lambda: f"({a}) {self.rng.choice(['and', 'or'])} ({b})", lambda: f"not ({a})", lambda: f"({a}) {self.rng.choice(['==', '!=', '<', '<=', '>', '>='])} ({b})",
                                lambda: f"({a}) {self.rng.choice(['in', 'not in'])} ({b})", lambda: f"{self.pick(NUMBERS)} < {self.pick(NUMBERS)} <= {self.pick(NUMBERS)} != {self.pick(NUMBERS)}",
                                lambda: f"({a}) is {self.rng.choice(['', 'not '])}{self.rng.choice(TESTS)}"])()

    def condition(self, deep):
        return f"({self.value(deep - 1)} if {self.logic(deep - 1)}" + (f" else {self.value(deep - 1)})" if self.rng.random() < 0.7 else ")")

    def any_operator(self, deep):
        return f"({self.value(deep - 1)}) {self.rng.choice(['+', '-', '*', '~', '//'])} ({self.value(deep - 1)})"

    def space(self):
        return self.rng.choice(["", "", " ", "\n", "  \n  ", "text", "\t"])

    def tag(self, text, kind="%"):
        close = {"%": "%", "{": "}", "#": "#"}[kind]
        return "{" + kind + self.rng.choice(["", "", "-", "+" if kind != "{" else ""]) + f" {text} " + self.rng.choice(["", "", "-", "+" if kind != "{" else ""]) + close + "}"

    def body(self, deep, loop=False):
        out = []
        for _ in range(self.rng.randint(1, 3)):
            out += [self.space(), self.statement(deep, loop), self.space()]
        return "".join(out)

    def statement(self, deep, loop):
        kinds = ["print", "set", "comment", "name", "ns"]
        if deep > 0:
            kinds += ["if", "for", "for", "settext", "filter", "generation", "macro"]
        if loop:
            kinds += ["loop", "leave"]
        kind = self.rng.choice(kinds)
        tag, r = self.tag, self.rng
        if kind == "print":
            return tag(self.value(2), "{")
        if kind == "set":
            return tag(r.choice([f"set v = {self.value(1)}", "set a, b = 1, 'x'", "set w = v", f"set v = {self.value(1)}, 2"]))
        if kind == "comment":
            return tag("a {{ comment }}", "#")
        if kind == "name":
            return tag(r.choice(["v", "w", "a", "ns.x", "m(1)", "m(b=2, a=1)", "m()", "t"]), "{")
        if kind == "ns":
            return tag(r.choice(["set ns = namespace(x=0)", "set ns.x = ns.x + 1", "set ns.x = v"]))
        if kind == "if":
            return tag("if " + self.value(1)) + self.body(deep - 1, loop) + (tag("elif " + self.value(1)) + self.body(deep - 1, loop) if r.random() < 0.3 else "") + \
                (tag("else") + self.body(deep - 1, loop) if r.random() < 0.5 else "") + tag("endif")
        if kind == "for":
            head = r.choice([f"for x in {self.pick(LISTS, LISTS, STRINGS, DICTS, OTHERS)}", f"for x, y in {r.choice(['pairs', 'd.items()', 'd|dictsort', 'd|items', 'rows', 'l'])}",
                             f"for x in {self.pick(LISTS)} if {r.choice(['x', 'x is string', 'x is not none', 'x != 1', 'loop', 'v'])}"])
            return tag(head) + self.body(deep - 1, True) + (tag("else") + self.body(deep - 1) if r.random() < 0.3 else "") + tag("endfor")
        if kind == "settext":
            return tag("set t" + r.choice(["", " | upper", " | trim | title"])) + self.body(deep - 1) + tag("endset")
        if kind == "filter":
            return tag("filter " + r.choice(["upper", "trim", "indent(2)|upper", "replace('a', 'b')"])) + self.body(deep - 1) + tag("endfilter")
        if kind == "generation":
            return tag("generation") + self.body(deep - 1) + tag("endgeneration")
        if kind == "macro":
            return tag("macro m(" + r.choice(["", "a", "a, b=1", "a=v, b=a", "a, b"]) + ")") + self.body(deep - 1) + tag("endmacro")
        if kind == "leave":
            return tag("if " + self.value(0)) + tag(r.choice(["break", "continue"])) + tag("endif")
        return tag(r.choice(["x", "y", "loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.revindex0", "loop.previtem", "loop.nextitem",
                             "loop.cycle('a', 'b')", "loop.depth", "loop.nothing"]), "{")


FIXED = ["{{ ('<a>'|safe) + '<b>&' + s }}{{ '\"x\\'' + ('y'|safe) }}{{ 'a<'|safe ~ '<' }}", "{% if no %}{{ s|from_json }}{% endif %}x", "{% if yes %}{{ s|from_json }}{% endif %}",
         "{{ (s|nothing) if no else 1 }}", "{{ s|nothing }}",
         "{{ lines.splitlines() }}{{ lines.splitlines(true) }}{{ 'a\\rb\\x0bc\\u2028d'.splitlines() }}", "{{ csv.rsplit(',', 1) }}{{ s.rsplit() }}{{ ' a b c '.rsplit(none, 1) }}",
         "{{ 'hello wORLD o\\'neil x1y'.title() }}{{ 'hello wORLD-x'|title }}{{ 'ß'.upper() }}", "{{ -7 % 3 }} {{ 7 % -3 }} {{ -6 % 3 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ -7.5 % 2 }} {{ -7.5 // 2 }}",
         "{{ d['items'] }}{{ d.items()|list }}{{ d['get'] is defined }}{{ {'get': 1}['get'] }}", "{{ rows[:3]|sort(attribute='role')|map(attribute='name')|list }}{{ rows|sort(attribute='role', reverse=true)|map(attribute='n')|list }}",
         "{{ s.startswith(('H', 'x')) }}{{ s.endswith(('d', 'x')) }}{{ s.startswith(()) }}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.nextitem }}{% endfor %}",
         "{{ d.get('a') }}{{ d.get('a', 5) }}{{ d.get('q', 5) }}{{ d.get('q') }}", "{{ s[::-1] }}{{ s[3::-2] }}{{ l[:-5:-1] }}{{ l[5:0:-1] }}",
         "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{% for y in l %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{% else %}-{% endfor %}{% endfor %}{{ x }}",
         "{% for x in [] %}{% else %}{% set q = 1 %}{% for y in l %}{% for z in [] %}{% else %}{% continue %}{% endfor %}{{ y }}{% endfor %}{% endfor %}{{ q }}",
         "{% set v = 1 %}{% macro m() %}{{ v }}{{ w }}{% endmacro %}{% for w in l %}{% set v = 2 %}{{ m() }}{% endfor %}{% set v = 3 %}{{ m() }}", "{% for x in l if loop %}{{ x }}{% else %}none{% endfor %}",
         "{{ [1, 'a', 1.0, true]|unique|list }}{{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ [1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 0.1, -0.0, 1e22] }}{{ (1,) }}{{ () }}",
         "{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ ''.replace('', 'x') }}", "{{ 'abc'[-1] }}{{ 'abc'[-3] }}{{ 'abc'[-4] }}{{ l[-3] }}",
         "{{ {'b': 1, 'a': {}, 'c': []}|tojson(sort_keys=true, indent=1) }}{{ u|tojson(ensure_ascii=true) }}", "{{ 'a\\n\\nb'|indent }}|{{ 'a\\n\\nb'|indent(blank=true) }}",
         "{{ 0|default(1) }}{{ 0|default(1, true) }}{{ none|default(1) }}", "{{ rows|map(attribute='name', default='?')|list }}{{ l|max }}{{ l|min }}{{ mixed|reject('string')|list }}{{ mixed|select('string')|list }}",
         "{{ s.rfind('o') }}{{ s.find('o') }}{{ u.find('東') }}{{ 'aXa'.removesuffix('a') }}{{ 'aXa'.removeprefix('a') }}", "{% for a, b in ['ab', 'cd'] %}{{ a }}{{ b }}{% endfor %}", "{% set a, b = [1, 2, 3] %}", "{% set a, b = [1] %}",
         "  {% if yes %}  \n  x\n  {% endif %}\n  {{ 1 }} {% if yes %}\n{% endif %} \n\n", "{{ 1 }}  {% if yes %}a{% endif %}", "{{ '\\x41\\u00e9\\U0001F642\\q' 'y' }}{{ -2|abs }}{{ (1) }}{{ [1, 2,] }}{{ 3 is not odd }}",
         "{% macro m(a, b=a) %}{% if a %}{{ a }}{% endif %}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=0) }}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% set t | upper %}a{% endset %}{{ t }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 3 < 2 < 5 }}{{ 1 < 2 < 3 < 3 }}",
         "{{ 'b' > 'abc' }}{{ 'é' < 'z' }}{{ [1, 2] < [1, 3] }}", "{% for x in l %}a{% break %}{% else %}b{% endfor %}{% for x in l %}a{% else %}b{% endfor %}",
         # numbers at their ends
         "{% set big = f * 1e308 %}{{ big }}{{ -big }}{{ big - big }}{{ [big, -big, big - big]|tojson }}{{ big|round }}{{ -big|round(2) }}{{ big|float }}{{ (big - big)|int(5) }}{{ 'nan'|int(7) }}", "{{ (f * 1e308)|int }}",
         "{{ 0 ** 0 }}{{ 0 ** 3 }}{{ 1 ** 99 }}{{ (-1) ** 4 }}{{ (-1) ** 7 }}{{ (-1) ** 0 }}{{ 7 ** 3 }}{{ (-2) ** 63 }}", "{{ 0 ** -1 }}", "{{ 0.0 ** -2 }}", "{{ 10.0 ** 400 }}", "{{ 2.0 ** 0.5 }}{{ 0.0 ** 0 }}",
         "{{ '1.5'|float }}{{ ' 2e3 '|float }}{{ '-7'|int }}{{ '7.9'|int }}{{ 'x'|int(3) }}{{ 'x'|float(3.5) }}{{ ''|int }}{{ '0x1'|int }}", "{{ missing|int }}", "{{ missing|float }}", "{{ missing|abs }}",
         # what is the same
         "{{ range == range }}{{ range == dict }}{{ s.strip == s.strip }}{{ s.strip == s.upper }}{{ s.strip == e.strip }}", "{% set a = namespace() %}{% set b = a %}{{ a == b }}{{ a == namespace() }}{{ a in [1, b] }}",
         "{% macro m() %}{% endmacro %}{% set n = m %}{{ m == n }}{{ m != 1 }}", "{{ {[1]: 2} }}", "{{ {{}: 2} }}", "{{ {(1, 'a'): 2}[(1, 'a')] }}", "{{ [1] in d }}", "{{ {(1,): 2}|tojson }}", "{{ {none: 1, true: 2, 1.5: 3, 7: 4}|tojson }}",
         # arguments
         "{{ s|replace('l') }}", "{{ s|map|list }}", "{{ l|map('nothing')|list }}", "{{ l|map(1)|list }}", "{{ l|map('abs', attribute='x')|list }}", "{{ l|select('nothing')|list }}", "{{ l|select('divisibleby')|list }}", "{{ l|select('odd', 1)|list }}",
         "{{ []|select('nothing')|list }}{{ ''|map('nothing')|list }}{{ none|map|list }}{{ []|selectattr|list }}{{ 0|rejectattr|list }}{{ []|select('odd', 1)|list }}",
         "{{ rows|selectattr|list }}", "{{ rows|rejectattr|list }}", "{{ 3 is divisibleby }}", "{{ l|tojson(indent='> ') }}{{ l|tojson(indent=true) }}{{ l|tojson(separators=['; ', '=']) }}", "{{ l|tojson(separators=[1, 2]) }}", "{{ l|tojson(separators=[',']) }}",
         "{{ s.strip(1, 2, 3, 4, 5, 6, 7, 8, 9) }}", "{{ s.upper(1) }}", "{{ s.split(chars='Hd') }}", "{{ csv.split(sep=',', maxsplit=2) }}{{ csv.rsplit(maxsplit=1, sep=',') }}", "{{ s.split('l', sep='l') }}", "{{ s.split(sep=) }}", "{{ s.find(1) }}", "{{ s.join([1]) }}", "{{ s.join(1) }}",
         "{{ l.index() }}", "{{ l.index(9) }}", "{{ d.get() }}", "{{ d.get([1]) }}", "{{ d.keys(1) }}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}", "{% for x in l %}{{ loop.cycle(x, 9) }}{% endfor %}",
         "{{ range() }}", "{{ range(1, 2, 0) }}", "{{ range(1, 2, 3, 4) }}", "{{ range('a') }}", "{{ range(stop=3) }}", "{{ range(-9223372036854775807, 9223372036854775807) }}", "{{ range(5, 0, -2)|list }}{{ range(0, 5, -1)|list }}{{ range(-2)|list }}{{ range(true)|list }}",
         "{{ dict(1) }}", "{{ dict({'a': 1}, b=2) }}{{ dict(a=1) }}{{ dict() }}", "{% set n = namespace({'a': 1}, b=2) %}{{ n.a }}{{ n.b }}", "{{ namespace(1) }}", "{{ namespace() is iterable }}{{ namespace() is mapping }}{{ namespace() is sequence }}{{ namespace(x=0) is defined }}", "{{ raise_exception() }}", "{{ raise_exception('a', 'b') }}", "{{ strftime_now(1) }}",
         "{{ strftime_now('%Y-%m-%d %H:%M') }}{{ strftime_now('') }}",
         "{{ l['a':] }}", "{{ l[:1.5] }}", "{{ l[::'a'] }}", "{{ i[1:2] }}", "{{ missing[1:] }}", "{{ d[1:2] }}", "{{ l[none:none:none] }}{{ l[false:true] }}{{ (1, 2, 3)[::2] }}",
         "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m|default(1)(2) }}", "{{ 1 is eq(1)(2) }}", "{{ 'a'|upper()(1) }}", "{% macro m(a, b) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(c=2) }}", "{{ 3(1) }}", "{{ missing(1) }}",
         "{{ 3|items|list }}", "{{ missing|items|list }}", "{{ missing|dictsort }}", "{{ nil|default(boolean=true) }}[{{ missing|default }}]{{ e|d(true, true) }}", "{{ rows|sort(attribute='n,name') }}", "{{ pairs|sort(attribute='1') }}{{ pairs|sum(attribute=1) }}{{ pairs|map(attribute='0')|join }}",
         # texts and tags
         "{{ '\\101\\7\\0\\x2f\\'\\\"\\a\\b\\f\\v\\\n-' }}", "{{ '\\x4' }}", "{{ '\\u12' }}", "é\u00a0{%- if yes %}\u2003é{%- endif %}x \u00a0{{- 1 -}}\u00a0 y", "a\r\nb{{ 1 }}\r\nc\rd{% if yes %}\r\ne{% endif %}\r\n", "x{#- a -#} y {#+ b +#}\n z {#\n#}\nq",
         "{{ 012 }}", "{{ 1_000 }}{{ 1_0.5e1 }}", "{{ 1__0 }}", "{{ 1a }}", "{{ s ? e }}", "{{ s ! }}", "{{ * }}", "{{ s. }}", "{{ s.'a' }}", "{{ s | 1 }}", "{{ s is }}", "{{ s is 1 }}", "{{ l[1:2:3:4] }}", "{{ l[1 2] }}", "{{ {'a' 1} }}", "{{ {'a': 1, 'b'} }}", "{{ [1 2] }}", "{{ (1 }}",
         "{{ range(1 2) }}", "{{ range(a=1, 2) }}", "{{ 1 if }}", "{{ not }}", "{{ - }}", "{{ 1 + }}", "{{ 1 < }}", "{{ 1 ~ }}", "{{ s and }}", "{{ }}", "{{ 1, }}{{ 1, 2 }}", "{{ 1 2 }}",
         "{% if %}{% endif %}", "{% if yes %}{% else %}{% elif no %}{% endif %}", "{% if yes %}", "{% if yes 1 %}{% endif %}", "{% for 1 in l %}{% endfor %}", "{% for s.x in l %}{% endfor %}", "{% for x of l %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for x in l if %}{% endfor %}",
         "{% for x in l %}", "{% for x in l %}{% else %}", "{% set %}", "{% set 1 %}{% endset %}", "{% set x = %}", "{% set x = 1 2 %}", "{% set x | %}{% endset %}", "{% set x | upper %}", "{% set x %}", "{% set x | upper | trim %} a {% endset %}[{{ x }}]", "{% set ns.x = 1 %}", "{% set ns.x.y = 1 %}",
         "{% filter %}{% endfilter %}", "{% filter upper %}", "{% filter upper 1 %}{% endfilter %}", "{% filter nothing %}{% endfilter %}", "{% generation %}", "{% generation 1 %}{% endgeneration %}", "{% macro 1() %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}",
         "{% macro m(a b) %}{% endmacro %}", "{% macro m(a=) %}{% endmacro %}", "{% macro m(a) 1 %}{% endmacro %}", "{% macro m(a) %}", "{% nothing %}", "{% break 1 %}", "{% endif %}"]


def products():
    """Every filter, test and method on every variable, as x, and on none."""
    filters = sorted({*STRING_FILTERS, *LIST_FILTERS, *DICT_FILTERS, *NUMBER_FILTERS} - {"reverse"})  # it prints an iterator
    texts = [f"{{{{ x|{f} }}}}" for f in filters] + [f"{{{{ x is {t} }}}}" for t in TESTS] + [f"{{{{ x.{m} }}}}" for m in METHODS]
    values = [{"x": v} for v in VARIABLES.values()] + [{}]
    return [{"templates": {"default": text}, "messages": [], "variables": {**v, "ls": VARIABLES["ls"]}} for text in texts for v in values]


def cases(seed, count):
    out = [{"templates": {"default": text}, "messages": [], "variables": VARIABLES} for text in FIXED] + products()
    for i in range(count):
        g = Generator(f"{seed}-{i}")
        text = "a {{ " + g.value(3) + " }} z" if i % 3 else g.body(3)
        out.append({"templates": {"default": text}, "messages": [], "variables": VARIABLES})
    return out


seed, count = int(os.environ.get("FTX_CHAT_SEED", "1")), int(os.environ.get("FTX_CHAT_CASES", "2500"))
counts = oracle.compare(sys.argv[1], cases(seed, count))
assert counts["text"] > count // 4 and counts["error"] > count // 20, counts
