#!/usr/bin/env python3
"""expand.py - instances of the templates for the device checks, without the compiler.

    expand.py TEMPLATE.cu NAME CONST=value ...     text of the instance
    as a module: Contract(file, variant).fix(values) gives constants, grid, block, smem

Evaluates the `//@` lines of a template as the catalog does; what the graph and the target would
give (type(x), N, K, T_MAX, ARCH, SMEM ...) comes as values.
"""
import re
import sys

TYPES = {"fp32": 1, "fp16": 2, "bf16": 3}
TEXT = {1: "float", 2: "half", 3: "bf16"}
SIZE = {1: 4, 2: 2, 3: 2}


class Expression:
    """The grammar of runtime/base/expr.h, evaluated at once."""
    LEVELS = [["||"], ["&&"], ["==", "!=", "<=", ">=", "<", ">"], ["+", "-"], ["*", "/^", "/", "%"]]

    def __init__(self, text, env):
        text = re.sub(r"(\w+)\.(\w+)", r"\1_\2", text.replace("$", ""))
        text = re.sub(r"(sizeof|type|has|rows|logits|group|scales)\((\w+)\)", r"\1_\2", text)
        self.words = re.findall(r"\w+|\|\||&&|[=!<>]=|/\^|\S", text)
        self.at, self.env = 0, env

    def accept(self, *words):
        if self.at < len(self.words) and self.words[self.at] in words:
            self.at += 1
            return self.words[self.at - 1]
        return None

    def expr(self):
        c = self.level(0)
        if not self.accept("?"):
            return c
        a = self.expr()
        assert self.accept(":"), self.words
        b = self.expr()
        return a if c else b

    def level(self, i):
        if i == len(self.LEVELS):
            return self.unary()
        v = self.level(i + 1)
        while op := self.accept(*self.LEVELS[i]):
            w = self.level(i + 1)
            v = {"||": lambda: v or w, "&&": lambda: v and w, "==": lambda: v == w, "!=": lambda: v != w,
                 "<=": lambda: v <= w, ">=": lambda: v >= w, "<": lambda: v < w, ">": lambda: v > w,
                 "+": lambda: v + w, "-": lambda: v - w, "*": lambda: v * w, "/": lambda: v // w,
                 "/^": lambda: -(-v // w), "%": lambda: v % w}[op]()
        return v

    def unary(self):
        if self.accept("-"):
            return -self.unary()
        if self.accept("!"):
            return not self.unary()
        if self.accept("("):
            v = self.expr()
            assert self.accept(")"), self.words
            return v
        w = self.words[self.at]
        self.at += 1
        if w.isdigit():
            return int(w)
        if not self.accept("("):
            return self.env[w]
        args = [self.expr()]
        while self.accept(","):
            args.append(self.expr())
        assert self.accept(")"), self.words
        return FUNCTIONS[w](*args)


def evaluate(text, env):
    e = Expression(text, env)
    v = e.expr()
    if e.at != len(e.words):
        raise SyntaxError(text)
    return v


FUNCTIONS = {
    "min": min, "max": max,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, b: -(-a // b) * b,
    "pow2": lambda a: 1 << max(0, (a - 1).bit_length()),
}


class Contract:
    def __init__(self, path, variant="plain"):
        self.lines, self.fixed = [], {}
        self.consts, self.fits, self.launch, self.matches = [], [], {}, []
        self.prefer = []  # ({constant: value}, condition)
        self.tiled = {}   # argument: rows of a tile
        self.shared = []  # (region, bytes, "over", "after", "align" or "", region or number)
        for line in open(path).read().splitlines():
            m = re.match(r"//@ (?:((?:\w+,\s*)*\w+):)?\s*(\w+)\s(.*)", line)
            if not m:
                self.lines.append("" if line.startswith("//@") else line)
                continue
            labels, key, rest = m.groups()
            mine = not labels or variant in re.findall(r"\w+", labels)
            self.lines.append(rest if mine and key == "text" else "")
            if not mine:
                continue
            rest = rest.split("//")[0].strip()
            if key == "variant" and rest.split()[0] == variant:
                self.fixed = {n: int(v) for n, v in re.findall(r"(\w+)=(\d+)", rest)}
            elif key == "consts":
                for n, v in re.findall(r"([A-Z]\w*):\s+(.*?)(?=\s+[A-Z]\w*:|$)", rest):
                    self.consts.append((n, v))
            elif key == "tune":
                for n, v in re.findall(r"([A-Z]\w*):\s+(.*?)(?=\s+[A-Z]\w*:|$)", rest):
                    self.consts.append((n, v.split()))
            elif key == "prefer" and not rest.startswith("other "):
                values, _, when = rest.partition(" if ")
                self.prefer.append((dict(v.split("=") for v in values.split()), when or "1"))
            elif key == "fits":
                self.fits.append(rest)
            elif key == "launch":
                for n, v in re.findall(r"(grid|block|smem)\s+(.*?)(?=\s+(?:grid|block|smem)\b|$)", rest):
                    self.launch[n] = v
            elif key == "shared":
                m = re.match(r"(\w+)\s+(.*?)(?:\s+(over|after|align)\s+(\w+))?$", rest.split("//")[0].strip())
                self.shared.append(m.groups())
            elif key == "tiled":
                n, v = rest.split(None, 1)
                self.tiled[n] = v
            elif key == "match":
                self.matches.append(rest)

    def fix(self, values, sms=132, force={}):
        """All constants (force: instead of what an expression gives); raises ValueError where a `fits` line does not hold."""
        env = dict(values, **self.fixed)
        for n, v in self.consts:
            tuned = [(p[n], when) for p, when in self.prefer if n in p] if isinstance(v, list) else []
            texts = " ".join([when for value, when in tuned] + ([v] if isinstance(v, str) else []))
            for name in re.findall(r"\bBESIDE_(\w+)", texts):
                env["BESIDE_" + name] = self.place(env, name)["SHARED"]
            for name in re.findall(r"\b(\w+)_AT\b", texts):
                env[name + "_AT"] = self.place(env, until=name)[name + "_AT"]
            if isinstance(v, list):  # of a tune line: the first prefer line decides, else the first value
                v = next((value for value, when in tuned if evaluate(when, env)), v[0])
            env[n] = force[n] if n in force else evaluate(v, env)
        env.update(self.place(env))
        for f in self.fits:
            if not evaluate(f, env):
                raise ValueError("fits " + f)
        for n, v in self.tiled.items():
            env["TILED_" + n] = evaluate(v, env)
        env["SMS"] = sms
        for n in ("grid", "block", "smem"):
            parts, depth = [""], 0
            for ch in self.launch.get(n, "SHARED" if n == "smem" and self.shared else "0"):
                depth += (ch == "(") - (ch == ")")
                if ch == "," and depth == 0:
                    parts.append("")
                else:
                    parts[-1] += ch
            env["LAUNCH_" + n] = [int(evaluate(p, env)) for p in parts]
        return env

    def place(self, env, without=None, until=None):
        """The offsets of the regions of shared memory, up to one or all, and the end of all."""
        at, end, empty = {}, {None: 0}, {without}
        for name, size, place, other in self.shared:
            if other in empty and (place == "over" or place == "after" and other != without):
                empty.add(name)
            first = max(end.values())
            first = at[other] if place == "over" else end[other] if place == "after" else first
            if place == "align":
                first = -(-first // int(other)) * int(other)
            at[name] = first
            if name == until:
                return {name + "_AT": first}
            end[name] = first + (0 if name in empty else evaluate(size, env))
        return dict({n + "_AT": first for n, first in at.items()}, SHARED=max(end.values())) if at else {}

    def body(self, name, env):
        types = {n for n, v in self.consts if isinstance(v, str) and re.fullmatch(r"type\(\$?\w+\)", v)}

        def word(m):
            n = m.group(1)
            if n == "NAME":
                return name
            if n == "REGIONS":
                return ", ".join("%s = %d" % (r, env[r]) for r in [r[0] + "_AT" for r in self.shared] + ["SHARED"])
            v = env[n]
            if n in types:
                return TEXT[v]
            return repr(v) + "f" if isinstance(v, float) else str(int(v) if isinstance(v, bool) else v)
        return re.sub(r"@([A-Z_][A-Z0-9_]*)@", word, "\n".join(self.lines)) + "\n"


if __name__ == "__main__":
    c = Contract(sys.argv[1])
    env = {}
    for a in sys.argv[3:]:
        n, v = a.split("=")
        env[n] = TYPES[v] if v in TYPES else float(v) if "." in v else int(v)
    sys.stdout.write(c.body(sys.argv[2], c.fix(env)))
