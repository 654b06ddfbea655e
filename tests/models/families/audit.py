#!/usr/bin/env python3
"""audit.py - every field of config.json, with another value and without one: ftxc beside transformers.

    /tmp/families/bin/python tests/models/families/audit.py build/ftxc [NAME...]      # from the top folder

Of each case of make.py (NAME: those whose names begin so; none: the first of each class) the field becomes another value, or is
taken out of the file; transformers makes or loads the model, ftxc compiles the same folder. A line for each field:

    equal     logits after a prompt within 1e-4 of the largest, five greedy tokens equal; of encoders the vectors or classes
    refused   by ftxc, and what it says
    wrong     ftxc computes something else; exit status 1
    (nothing) transformers has no such model"""
import json, os, pathlib, shutil, subprocess, sys, tempfile
import numpy, torch, transformers
import make
from safetensors import safe_open
from safetensors.torch import save_file

LEFT = {"architectures", "model_type", "dtype", "transformers_version", "vocab_size", "use_cache", "bos_token_id", "eos_token_id",
        "pad_token_id", "sep_token_id", "max_position_embeddings", "n_positions", "initializer_range", "init_std", "vision_config",
        "output_router_logits", "is_decoder", "id2label", "label2id", "_name_or_path"}
PROMPT = make.PROMPTS[1]


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value % 2 else value * 2
    if isinstance(value, float):
        return value * 0.6
    if value == "silu":
        return "gelu_pytorch_tanh"
    if isinstance(value, str):
        return "relu"
    if value is None:
        return 3
    return None


def drawn(cls, room):
    path = room / "model.safetensors"
    with safe_open(path, "pt") as f:
        tensors = make.split_taps({n: f.get_tensor(n) for n in f.keys() if "*" not in n})
    tensors = {n: make.tensor(n, t) for n, t in tensors.items()}
    save_file(tensors, path, {"format": "pt"})


def load(cls, kind, room):
    model, info = cls.from_pretrained(room, dtype=torch.float32, output_loading_info=True,
                                      attn_implementation=make.ATTENTION.get(kind, "eager"))
    missing = [k for k in info["missing_keys"] if not k.endswith("rotary_embeddings.inv_freq")]
    if missing or info["unexpected_keys"] or info["mismatched_keys"]:
        raise ValueError("tensors do not fit")
    return model.eval()


def wanted(model):
    ids, first = list(PROMPT), None
    for _ in range(5):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        first = logits if first is None else first
        ids.append(int(logits.argmax()))
    return first.numpy(), ids[len(PROMPT):]


def got(ftxc, room):
    """logits and ids of ftxc, or what it says"""
    out = subprocess.run([ftxc, "compile", room, "-o", room / "m.ftx", "-q", "-t", "cpu"], capture_output=True, text=True)
    if out.returncode:
        lines = [l for l in out.stderr.splitlines() if "no tokenizer.json" not in l]
        return " ".join(lines).replace(str(room), "").replace("ftxc: ", "")
    out = subprocess.run([ftxc, "run", room / "m.ftx", "--ids", ",".join(map(str, PROMPT)), "--json", "--logits", "--greedy", "-n",
                          "5"], capture_output=True, text=True)
    if out.returncode:
        return "run: " + out.stderr.strip()
    answer = json.loads(out.stdout)
    return numpy.array(answer["logits"], numpy.float32), answer["ids"]


def vectors(ftxc, model, room):
    """Numbers of an encoder by transformers and by ftxc: the mean of the tokens' vectors and the text's, or the classes of all
    tokens. In place of the second what ftxc says."""
    text = make.texts(type(model).__name__)[1]
    out = make.encode(model, text)
    hidden = numpy.array(out["hidden"], numpy.float64).reshape(len(text), -1)
    of_tokens = type(model).__name__.endswith(("ForTokenClassification", "ForQuestionAnswering"))
    if type(model).__name__.endswith("ForTokenClassification"):
        hidden = numpy.exp(hidden - hidden.max(1, keepdims=True))
        hidden /= hidden.sum(1, keepdims=True)
    want = hidden.flatten() if of_tokens else numpy.concatenate([hidden.mean(0), out.get("pooled", [])])
    made = subprocess.run([ftxc, "compile", room, "-o", room / "m.ftx", "-q", "-t", "cpu"], capture_output=True, text=True)
    run = made if made.returncode else subprocess.run(
        [ftxc, "run", room / "m.ftx", "--ids", ",".join(map(str, text)), "--json"], capture_output=True, text=True)
    if run.returncode:
        return want, run.stderr.replace(str(room), "").replace("ftxc: ", "").strip()
    answer = json.loads(run.stdout)
    if of_tokens:
        return want, numpy.array([x for t in answer["labels"] for x in t["labels"].values()])
    return want, numpy.array(answer["mean"] + (answer["pooled"] or []))


def compare_vectors(ftxc, model, room):
    with torch.no_grad():
        want, mine = vectors(ftxc, model, room)
    if isinstance(mine, str):
        return "refused", mine
    if not numpy.isfinite(want).all():
        return None, ""
    away = float(abs(mine - want).max() / abs(want).max()) if len(mine) == len(want) else float("inf")
    return ("equal", "") if away < 1e-4 else ("wrong", f"{away:.2g} away, {len(mine)} numbers of {len(want)}")


def compare(ftxc, model, room):
    with torch.no_grad():
        logits, ids = wanted(model)
    mine = got(ftxc, room)
    if isinstance(mine, str):
        return "refused", mine
    if not numpy.isfinite(logits).all():
        return None, ""
    away = float(abs(mine[0] - logits).max() / abs(logits).max())
    n = min(len(mine[1]), len(ids))  # an end token
    return ("equal", "") if away < 1e-4 and n and mine[1][:n] == ids[:n] else ("wrong", f"{away:.2g} away, {mine[1]} {ids}")


def fields(config, path=()):
    for key, value in config.items():
        if key in LEFT:
            continue
        if isinstance(value, dict):
            yield from fields(value, (*path, key))
        yield (*path, key), value


def changed(settings, path, value, remove=False):
    made = json.loads(json.dumps(settings))
    inside = made
    for key in path[:-1]:
        inside = inside.setdefault(key, {})
    if remove:
        inside.pop(path[-1], None)
    else:
        inside[path[-1]] = value
    return made


def audit(ftxc, name, kind, settings, changes, encoder=False):
    bad, cls, made_by = 0, *make.class_of(kind, not encoder)
    config_class = cls.config_class if encoder or kind.endswith("Generation") else make.config_of(kind)

    if not encoder and not kind.endswith("Generation"):  # what make.py takes out of the file again
        own = vars(config_class()).keys() | getattr(config_class, "attribute_map", {}).keys()
        settings = {k: v for k, v in settings.items() if k in own or changes.get(k, 0) is not None}

    def attempt(what, made_of, edit):
        nonlocal bad
        room = pathlib.Path(tempfile.mkdtemp())
        try:
            torch.manual_seed(0)
            model = made_by(config_class(**made_of))
            model.save_pretrained(room)
            drawn(cls, room)
            config = json.loads((room / "config.json").read_text())
            config = edit(config)
            (room / "config.json").write_text(json.dumps(config))
            model = load(cls, kind, room)
            result, why = (compare_vectors if encoder else compare)(ftxc, model, room)
        except Exception as e:  # transformers has no such model
            result, why = None, repr(e)[:100]
        finally:
            shutil.rmtree(room)
        if result:
            print(f"{result:8} {name:16} {what}{': ' + why if why else ''}", flush=True)
        bad += result == "wrong"
        return config if result else {}

    config = attempt("as it is", settings, lambda c: c)
    for path, value in fields(config):
        text = ".".join(path)
        if other(value) is not None:
            attempt(f"{text} = {other(value)}", changed(settings, path, other(value)), lambda c: c)
        attempt(f"{text} is missing", settings, lambda c: changed(c, path, None, True))
        if value is not None:
            attempt(f"{text} = null", settings, lambda c: changed(c, path, None))
    return bad


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    bad, seen, ftxc = 0, set(), os.path.abspath(sys.argv[1])
    for name, (kind, settings, changes, *_) in {**make.CASES, **make.ENCODERS}.items():
        chosen = any(name.startswith(n) for n in sys.argv[2:]) if sys.argv[2:] else kind not in seen
        if kind != "ChatGLM" and chosen:
            seen.add(kind)
            bad += audit(ftxc, name, kind, settings, changes, name in make.ENCODERS)
    sys.exit(bad > 0)
