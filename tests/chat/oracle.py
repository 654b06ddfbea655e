"""oracle.py - Jinja2 as transformers sets it up, and the comparison with this tree's templates."""
import copy
import datetime
import functools
import json
import subprocess
import sys
import warnings

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753785296  # what strftime_now sees; a time of day without daylight saving rules is enough


class Generation(Extension):
    """{% generation %}: marks the assistant's text; rendering alone passes it on."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_pass", []), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return env


ENV = environment()


@functools.lru_cache(maxsize=None)
def compiled(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ENV.from_string(text)


def expected(case):
    """("text", TEXT) or ("error", TEXT of raise_exception or None)."""
    templates = case["templates"]
    name = case.get("name") or ("tool_use" if case.get("tools") is not None and "tool_use" in templates else "default")
    try:
        template = compiled(templates[name])
        variables = {"messages": case["messages"], "tools": case.get("tools"), "documents": None,
                     "add_generation_prompt": case.get("prompt", False)}
        return "text", template.render(**{**case.get("tokens", {}), **variables, **copy.deepcopy(case.get("variables", {}))})  # |indent changes a list
    except jinja2.exceptions.TemplateError as e:
        return "error", e.message if type(e) is jinja2.exceptions.TemplateError else None
    except Exception as e:  # what Python itself says has other words here
        case["why"] = repr(e)
        return "error", None


def answers(program, cases):
    lines = "".join(json.dumps({**c, "time": NOW}) + "\n" for c in cases)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def differs(case, want, got):
    """What is wrong, or None."""
    kind, text = want
    if kind == "text":
        return None if got.get("text") == text else f"expected {text!r}\n     got {got!r}"
    if "error" not in got:
        return f"expected an error ({text!r})\n     got {got!r}"
    if text is not None and not got["error"].endswith(": " + text.replace("\n", " ")):
        return f"expected the error {text!r}\n     got {got!r}"
    return None


def compare(program, cases):
    """Exits with 1 where a case differs; returns how many were texts and how many errors."""
    bad, counts = 0, {"text": 0, "error": 0}
    got = answers(program, cases)
    if len(got) != len(cases):
        sys.exit(f"{len(got)} answers to {len(cases)} cases")
    for case, answer in zip(cases, got):
        want = expected(case)
        counts[want[0]] += 1
        why = differs(case, want, answer)
        if why and (bad := bad + 1) <= 10:
            print(json.dumps(case, ensure_ascii=False)[:3000], why, sep="\n", end="\n\n")
    print(f"{len(cases)} cases, {counts['text']} texts, {counts['error']} errors, {bad} differ")
    if bad:
        sys.exit(1)
    return counts
