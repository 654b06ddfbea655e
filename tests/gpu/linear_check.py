#!/usr/bin/env python3
"""linear_check.py OUT [WORD|order] - writes the instances that linear_check.cu runs, as OUT/part*.cu.

Each part is a translation unit: the templates' text with their constants, one namespace an
instance, and a row of facts for each in a table. WORD: only templates with it in their name.
order: kernels that state the same order of sums, for `linear_check order`.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from expand import SIZE, Contract  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATES = os.path.join(HERE, "..", "..", "templates")
FP32, FP16, BF16 = 1, 2, 3
SMS = 132
ORDER = sys.argv[2:] == ["order"]
ONLY = sys.argv[2] if len(sys.argv) > 2 and not ORDER else ""
rows, contracts, names = [], {}, {}  # names: of the texts


def norms(template):
    """The norms that a template's match lines have: 0 none, 1 RMS norm, 2 layer norm."""
    if "linear_q" in template:
        return (0,) if "hopper" in template or "digits" in template else (0, 1)
    if "swapped" in template or "batch" in template or "rows" in template:
        return (0,)
    if "hopper" in template:
        return (0, 1) if "head" in template else (1,)
    return (0, 1, 2)


def add(template, x, n, k, m, norm=0, bias=0, act=0, glu=0, res=0, heads=None, kv=None, y=None, seq="", force={}, live=0, codes=(0, 0, 0)):
    """One instance. heads: (H, G, E, ROT) of append. seq: belongs to a timed sequence.
    codes: bits, group and scales of quantised weights."""
    if ONLY not in template or norm not in norms(template):
        return False
    if template not in contracts:
        kernel, variant = re.fullmatch(r"(\w+?)(?:_(rows_append|rows_head|rows|append|head))?", template).groups()
        contracts[template] = Contract(os.path.join(TEMPLATES, kernel + ".cu"), variant or "plain")
    c = contracts[template]
    y = y or x
    last = template.endswith("head")
    h, g, e, rot = heads or (1, 1, 2, 0)
    v = dict(type_x=x, type_w=codes[0] or x, int4=4, fp8=-1, group_w=codes[1], scales_w=codes[2], type_y=y, type_k=kv or x, sizeof_x=SIZE[x], sizeof_w=SIZE[x], sizeof_KV=SIZE[kv or x], N=n, K=k, T_MAX=m,
             S_MAX=m, BUCKET=m, ARCH=90, FIXED=int(ORDER), T=m, S=m, TMA=1, CLUSTER=1, WGMMA=1, SMEM=232448, SM_SMEM=233472, NORM=norm, EPS=1e-5, ACT=act, GLU=glu, RES=res, has_b=bias,
             rows_x=0, logits_y=0, LAST=int(last), BEAMS=0, CONTEXT=256, BLOCK=16, append_heads=h, append_kv_heads=g, append_head_dim=e, append_rot=rot)
    try:
        env = c.fix(v, SMS, force)
    except ValueError:
        return False
    if "rows" not in template:
        env["M"] = max(m, 1)
    name = f"i{len(rows)}"
    body = re.sub(r'^#include.*$', "", c.body("KERNEL", env), flags=re.M)
    name = names.setdefault(body, name)
    facts = dict(x=x, y=y, kv=kv or x, n=n, k=k, m=m, norm=norm, bias=bias, act=act, glu=glu, res=res, append=int(bool(heads)),
                 H=h, G=g, E=e, ROT=rot, last=int(last), grid=env["LAUNCH_grid"][0], grid_y=(env["LAUNCH_grid"] + [1])[1], block=env["LAUNCH_block"][0],
                 smem=env["LAUNCH_smem"][0], tile_x=env.get("TILED_x", 0), tile_w=env.get("TILED_w", 0),
                 cluster=env.get("SPLIT_K", env.get("CLUSTER_SIZE", 1)), live=live or m, bits=codes[0], group=codes[1], scales=codes[2])
    rows.append((template, name, body.replace("KERNEL", name), facts, seq, f'N{env.get("TILE_N","-")} P{env.get("PASSES","-")} CL{env.get("CLUSTER_SIZE","-")} ST{env.get("STAGES","-")} WG{env.get("WARPGROUPS","-")} {force or ""}'))
    return True


def every(x, n, k, ms, **kw):
    """The narrow form where it fits, the wide form always, those of Hopper where they fit, for each bucket."""
    suffix = "_append" if kw.get("heads") else "_head" if kw.pop("last", 0) else ""
    for m in ms:
        if x == FP32:
            add("linear_fma" + suffix, x, n, k, m, **kw)
        else:
            add("linear" + suffix, x, n, k, m, **kw)
            add("linear_wide" + suffix, x, n, k, m, **kw)
            add("linear_hopper" + suffix, x, n, k, m, **kw)
            if suffix != "_head":
                add("linear_swapped" + suffix, x, n, k, m, **kw)


def quantised(x, n, k, ms, codes, **kw):
    """The forms for quantised weights: bits, group, scales."""
    suffix = "_append" if kw.get("heads") else "_head" if kw.get("last") else ""
    own = {a: b for a, b in kw.items() if a != "last"}
    for m in ms:
        add("linear_q" + suffix, x, n, k, m, codes=codes, **own)
        if m <= 4: # as its contract prefers
            add("linear_q_bulk" + suffix, x, n, k, m, codes=codes, **own)
        elif suffix != "_head":
            add("linear_q_hopper" + suffix, x, n, k, m, codes=codes, **dict(kw, norm=0))
            add("linear_q_digits" + suffix, x, n, k, m, codes=codes, **dict(kw, norm=0))


def checks():
    quantised(BF16, 40, 256, (1, 4, 16), (4, 128, 0), bias=1)
    quantised(BF16, 4096, 4096, (1, 2, 8, 16, 64), (4, 128, 0), res=1)
    quantised(BF16, 6144, 4096, (1, 8, 16, 32), (4, 128, 0), norm=1, heads=(32, 8, 128, 128))
    quantised(FP16, 28672, 4096, (1, 4, 16, 32, 64), (4, 64, 1), norm=1, glu=1, act=5)
    quantised(BF16, 4096, 14336, (1, 2, 4, 16, 64), (4, 128, 0), res=1)
    quantised(BF16, 2048, 8192, (1, 8, 16, 64), (8, 128, 0), res=1)
    quantised(FP16, 3000, 2048, (1, 8, 32, 64), (8, 32, 1), norm=1, bias=1)
    quantised(BF16, 1001, 1088, (1, 2, 8, 16, 64), (4, 32, 1), bias=1, act=2)
    quantised(FP16, 520, 448, (1, 4, 32), (8, 64, 2), act=5)
    quantised(BF16, 600, 320, (1, 8), (4, 64, 3), norm=1)
    quantised(BF16, 40000, 4096, (1, 8), (8, 128, 0), norm=1, y=FP32, last=1)
    quantised(BF16, 40000, 4096, (16, 64), (8, 128, 0), y=FP32)
    quantised(BF16, 40000, 2048, (1, 4), (8, 128, 0), norm=1, y=FP32, last=1)
    quantised(BF16, 9000, 1024, (1, 2), (8, 64, 0), y=FP32, last=1)
    quantised(BF16, 3072, 2048, (1, 2), (4, 128, 0), norm=1, heads=(32, 8, 64, 64))
    quantised(BF16, 2048, 2048, (1, 2), (4, 128, 0), res=1)
    quantised(BF16, 16384, 2048, (1, 2, 4), (4, 128, 0), norm=1, glu=1, act=5)
    quantised(BF16, 16384, 2048, (1, 4), (8, 128, 0), norm=1, glu=1, act=5)
    quantised(BF16, 4096, 1024, (1, 2), (4, 32, 1), norm=1, heads=(16, 8, 128, 128))
    quantised(BF16, 2048, 8192, (1, 2, 4), (4, 128, 0), res=1)
    every(BF16, 8, 112, (1, 16), bias=1)
    every(BF16, 300, 120, (1, 4, 64), norm=1, bias=1)
    every(BF16, 640, 300, (1, 32), norm=1)
    every(BF16, 301, 301, (16, 64), norm=2, bias=1, act=3)
    every(BF16, 640, 384, (1, 8, 16, 64), norm=1, heads=(6, 2, 64, 64))
    every(FP16, 1024, 384, (1, 16), norm=1, glu=1, act=5)
    every(FP16, 2304, 768, (2, 32), norm=2, bias=1, heads=(12, 12, 64, 0), kv=FP32)
    every(FP16, 3072, 768, (1, 16, 64), norm=2, bias=1, act=3)
    every(BF16, 4096, 2048, (1, 2, 8, 64), norm=1, glu=1, act=5)
    every(BF16, 3072, 2048, (1, 8, 32, 64), norm=1, bias=1, heads=(32, 8, 64, 32))
    every(BF16, 2048, 8192, (1, 4, 16, 64), res=1)
    every(BF16, 520, 1536, (1, 64), act=2)
    every(BF16, 264, 14336, (1, 4, 64), res=1, bias=1)
    every(BF16, 50257, 384, (1, 16, 64), norm=1, y=FP32, last=1)
    every(BF16, 4096, 2048, (4, 64), norm=2, y=FP32, last=1)
    every(BF16, 5000, 616, (16, 32, 64), norm=1, act=3)
    every(BF16, 12288, 1024, (16, 64), norm=1, glu=1, act=5)
    every(BF16, 20000, 200, (16, 64), bias=1, res=1)
    every(BF16, 33801, 328, (16, 32, 64), norm=1, bias=1)
    every(FP16, 50258, 128, (16, 64), norm=1, y=FP32, last=1)
    every(FP16, 40, 8, (16, 32, 64), bias=1, act=2)
    every(BF16, 2048, 2048, (16, 32, 64), res=1, bias=1)
    every(BF16, 512, 520, (16, 64), res=1)
    every(FP16, 768, 3072, (16, 32, 64), norm=1, bias=1, act=3)
    every(BF16, 6145, 72, (16, 64), norm=1)
    every(FP16, 6144, 4096, (16, 32, 64), norm=1, heads=(32, 8, 128, 128))
    every(FP16, 34000, 72, (16, 64), norm=1, glu=1, act=5)
    every(BF16, 40000, 192, (16, 32, 64), y=FP32, last=1)
    for n, tile in enumerate((32, 64, 96, 128, 160, 192, 224, 256)):  # all tiles and clusters
        for size in (1, 2, 4, 8):
            force = {"TILE_N": tile, "CLUSTER_SIZE": size}
            add("linear_swapped", BF16, 1000, 712, (64, 32, 16)[n % 3], bias=1, res=1, force=force)
            add("linear_swapped", FP16, 1001, 1096, (32, 64, 16)[n % 3], act=5, force=force)
    for n, tile in enumerate((32, 48, 64, 96, 112, 128, 160, 192, 224, 256)):
        for i, split in enumerate((1, 2, 4)):
            force = {"TILE_N": tile, "SPLIT_K": split, "WARPGROUPS": 4 if tile <= 128 and (n + i) % 2 else 3 if tile <= 160 and (n + i) % 4 == 2 else 2}
            m = (65, 128, 256, 192, 300, 512)[(n + i) % 6]
            add("linear_batch", BF16, 1000, 712, m, bias=1, res=1, force=force)
            add("linear_batch", FP16, 2008, 1096, m, glu=1, act=5, force=force)
            add("linear_batch_append", FP16, 640, 576, m, heads=(6, 2, 64, 64), force=force)
    for split in (1, 2):  # tiles of 192 rows, two in a program; products in two halves
        for tile in (96, 128, 224):
            force = {"TILE_N": tile, "SPLIT_K": split, "WARPGROUPS": 3}
            add("linear_batch", BF16, 1000, 712, 384, bias=1, res=1, force=force)
            add("linear_batch", FP16, 2008, 1096, 384, glu=1, act=5, force=force)
            add("linear_batch_append", FP16, 640, 576, 384, heads=(6, 2, 64, 64), force=force)
    every(FP32, 640, 384, (1, 8, 64), norm=1, heads=(6, 2, 64, 64))
    every(FP32, 300, 301, (1, 16), norm=2, bias=1, act=2)
    every(FP32, 4096, 2048, (1, 64), norm=1, glu=1, act=5)
    every(FP32, 2048, 1022, (1, 4), res=1)
    every(FP32, 5003, 384, (2, 64), norm=1, last=1)


def batch(tag, model, m, live, force={}):
    """The four linears of a llama layer with many rows. One instance is timed with several numbers of rows."""
    h, f, heads = MODELS[model]
    n = (heads[0] + 2 * heads[1]) * heads[2]
    for nn, kk, kw in [(n, h, dict(heads=heads)), (h, h, dict(res=1)), (2 * f, h, dict(glu=1, act=5)), (h, f, dict(res=1))]:
        for rows_live in live:
            add("linear_batch" + ("_append" if "heads" in kw else ""), BF16, nn, kk, m, seq=f"{model} {tag} rows {rows_live} of {m}", live=rows_live,
                force=force.get((nn, kk), force.get("all", {})), **kw)


MODELS = {"1B": (2048, 8192, (32, 8, 64, 64)), "8B": (4096, 14336, (32, 8, 128, 128))}


def layer(tag, model, m, wide, force=lambda n, k, wide: {}):
    """The four linears of a llama layer."""
    h, f, heads = MODELS[model]
    n = (heads[0] + 2 * heads[1]) * heads[2]
    for step, (nn, kk, kw) in enumerate([(n, h, dict(norm=1, heads=heads)), (h, h, dict(res=1)),
                                         (2 * f, h, dict(norm=1, glu=1, act=5)), (h, f, dict(res=1))]):
        suffix = "_append" if step == 0 else ""
        if wide == "hopper":
            form = "linear_hopper" if kw.get("norm") else "linear_swapped"
            add(form + suffix, BF16, nn, kk, m, seq=tag, force=force(nn, kk, True), **kw)
        elif wide or not add("linear" + suffix, BF16, nn, kk, m, seq=tag, force=force(nn, kk, False), **kw):
            add("linear_wide" + suffix, BF16, nn, kk, m, seq=tag, force=force(nn, kk, True), **kw)


def quantised_layer(tag, model, m, form, force=lambda n, k: {}):
    """The four linears of a llama layer with weights of int4."""
    h, f, heads = MODELS[model]
    n = (heads[0] + 2 * heads[1]) * heads[2]
    for nn, kk, kw in [(n, h, dict(norm=1, heads=heads)), (h, h, dict(res=1)), (2 * f, h, dict(norm=1, glu=1, act=5)), (h, f, dict(res=1))]:
        if "hopper" in form or "digits" in form:
            kw["norm"] = 0
        add(form + ("_append" if "heads" in kw else ""), BF16, nn, kk, m, seq=f"int4 {model} M={m} {form} {tag}", codes=(4, 128, 0), force=force(nn, kk), **kw)


def quantised_sequences():
    for m in (1, 2, 4, 8):
        quantised_layer("", "8B", m, "linear_q")
        if m <= 4:
            quantised_layer("", "8B", m, "linear_q_bulk")
    for m in (16, 32, 64):
        quantised_layer("", "8B", m, "linear_q_hopper")
    for m in (8, 16, 32):
        quantised_layer("", "8B", m, "linear_q_digits")


def sequences():
    """Llama-3.2-1B and 3.1-8B; variants of what the contract decides."""
    HALF, ALL = 115712, 232448
    for model in MODELS:
        layer(f"{model} M=1", model, 1, False)
        layer(f"{model} M=1 flight 48", model, 1, False, lambda n, k, w: {"IN_FLIGHT": 49152})
        layer(f"{model} M=1 whole", model, 1, False, lambda n, k, w: {"BYTES": ALL})
        layer(f"{model} M=1 whole flight 96", model, 1, False, lambda n, k, w: {"BYTES": ALL, "IN_FLIGHT": 98304})
        layer(f"{model} M=1 whole part", model, 1, False, lambda n, k, w: {"BYTES": ALL, "CHUNK_MAX": 2048 if k == 4096 and n < 8192 else 1024})
        for m in (2, 4, 8):
            layer(f"{model} M={m}", model, m, False)
        layer(f"{model} M=8 half", model, 8, False, lambda n, k, w: {} if w or k > 4096 else {"BYTES": HALF})
        layer(f"{model} M=8 wide", model, 8, True)
        for m in (16, 32, 64):
            layer(f"{model} M={m} wide", model, m, True)
            layer(f"{model} M={m} hopper", model, m, "hopper")
        for whole in (0, 1):
            layer(f"{model} M=64 wide whole={whole}", model, 64, True, lambda n, k, w: {"WHOLE_SM": whole})
        layer(f"{model} M=16 wide NT64", model, 16, True, lambda n, k, w: {"TILE_N_MAX": 64})
        layer(f"{model} M=64 wide NT64", model, 64, True, lambda n, k, w: {"TILE_N_MAX": 64})
        layer(f"{model} M=64 wide NT96", model, 64, True, lambda n, k, w: {"TILE_N_MAX": 96})
        for m, live in ((128, (65, 128)), (192, (129, 160, 192)), (256, (129, 192, 193, 256)), (384, (257, 320, 384)), (512, (385, 448, 512))):
            batch("batch", model, m, live)
    for m in (1, 8, 64):
        every(BF16, 128256, 2048, (m,), norm=1, y=FP32, last=1, seq=f"head 1B M={m}")
    add("linear_fma", FP32, 8192, 4096, 1, seq="fp32 M=1")
    add("linear_fma", FP32, 8192, 4096, 64, seq="fp32 M=64")


def orders():
    """Shapes of the 8B, the 1B, fable, BERT and odd ones, computed by every kernel that can add in the same order."""
    shapes = [(BF16, 6144, 4096, dict(heads=(32, 8, 128, 128))), (BF16, 4096, 4096, dict(res=1)), (BF16, 28672, 4096, dict(glu=1, act=5)),
              (BF16, 4096, 14336, dict(res=1)), (FP16, 3072, 2048, dict(heads=(32, 8, 64, 64))), (FP16, 2048, 8192, dict(res=1)),
              (BF16, 640, 384, dict(heads=(6, 2, 64, 64), bias=1)), (BF16, 384, 1152, dict(res=1)), (FP16, 3072, 768, dict(bias=1, act=2)),
              (BF16, 3072, 768, dict(bias=1, act=3)), (FP16, 2304, 768, dict(bias=1)), (BF16, 1000, 712, dict(bias=1, res=1))]
    for n, (x, columns, k, kw) in enumerate(shapes):
        tail = "_append" if "heads" in kw else ""
        for slices in ((1, 2) if n == 2 else (1, 2, 4) if n == 3 else (1, 2, 4)[n % 3:n % 3 + 1]):
            for m in (1, 16, 32, 64)[slices % 2::2]:
                add("linear_swapped" + tail, x, columns, k, m, force={"CLUSTER_SIZE": slices}, **kw)
            for m in (65, 129, 300, 512)[slices % 2::2]:
                add("linear_batch" + tail, x, columns, k, m, force={"SPLIT_K": slices}, **kw)
        if n % 3 == 0:
            add("linear" + tail, x, columns, k, 8, **kw)
            add("linear_wide" + tail, x, columns, k, 64, **kw)
            add("linear_wide_rows" + tail, x, columns, k, 300, **kw)
    for m in (1, 8, 64, 300):
        add("linear_fma", FP32, 1000, 712, m, bias=1, res=1)
        add("linear_fma", FP32, 301, 301, m, bias=1, act=2)


def main():
    out = sys.argv[1]
    if ORDER:
        orders()
    else:
        checks()
        sequences()
        quantised_sequences()
    parts = [[], [], [], []]
    for r in rows:
        parts[int(r[1][1:]) % len(parts)].append(r)
    for i, part in enumerate(parts):
        with open(os.path.join(out, f"part{i}.cu"), "w") as f:
            f.write('#include "linear.cuh"\n#include "linear_wide.cuh"\n#include "linear_hopper.cuh"\n#include "linear_swapped.cuh"\n#include "linear_batch.cuh"\n#include "linear_q.cuh"\n#include "linear_q_bulk.cuh"\n#include "linear_q_hopper.cuh"\n#include "linear_q_digits.cuh"\n#include "linear_fma.cuh"\n#include "linear_check.h"\n')
            for name, body in {r[1]: r[2] for r in part}.items():
                f.write(f"namespace n{name} {{\n{body}}}\n")
            f.write(f"extern const Instance part{i}[] = {{\n")
            for template, name, body, facts, seq, note in part:
                values = ", ".join(str(v) for v in facts.values())
                note = note.replace('"', "'")
                f.write(f'    {{"{template}", (const void *)n{name}::{name}, {values}, "{seq}", "{note}", {rows.index((template, name, body, facts, seq, note))}}},\n')
            f.write(f"}};\nextern const int part{i}_count = {len(part)};\n")
    print(len(rows), "instances")


main()
