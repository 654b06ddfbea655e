#!/usr/bin/env python3
# families_torch.py - processor time of one thread for the model of a config.json with random weights in fp32: ftxc beside
# transformers on torch, in turn. Decoders: a prompt of 128 tokens, and a token behind it; encoders: 8 texts of 128 tokens.
#
#   ftxc compile FOLDER -t cpu --no-weights -D weights= -D precision.weights=fp32 -D limits.context=512 -D limits.tokens=1024 -o FILE.ftx
#   PYTHONPATH=python FTX_LIBRARY=build/libftx.so python3 tests/bench/families_torch.py FOLDER FILE.ftx [ROUNDS]
import sys
import time

import numpy
import torch
import transformers

import ftxc

folder, file, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5
torch.set_num_threads(1)
config = transformers.AutoConfig.from_pretrained(folder)
kind = config.architectures[0]
theirs = getattr(transformers, kind)(config).eval()
ours = ftxc.Model(file, threads=1, random_weights=1)
ids = torch.arange(8 * 128).reshape(8, 128) % (config.vocab_size - 10) + 5
MORE = 16


def spent(work):
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def their_tokens(prompt):
    with torch.no_grad():
        out = theirs(prompt, use_cache=True)
        first = time.process_time()
        for _ in range(MORE):
            out = theirs(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
    return first


def decoder():
    prompt, found = ids[:1], {"a prompt of 128": ([], []), "a token": ([], [])}
    for _ in range(rounds):
        start = time.process_time()
        first = their_tokens(prompt)
        end = time.process_time()
        found["a prompt of 128"][1].append(1e3 * (first - start))
        found["a token"][1].append(1e3 * (end - first) / MORE)
        one = spent(lambda: ours.generate(prompt[0].tolist(), max_new=1, temperature=0.0))
        more = spent(lambda: ours.generate(prompt[0].tolist(), max_new=1 + MORE, temperature=0.0))
        found["a prompt of 128"][0].append(one)
        found["a token"][0].append((more - one) / MORE)
    return found


def encoder():
    found = {"8 texts of 128": ([], [])}
    packed, lengths = ids.numpy().astype(numpy.int32), [128] * 8
    for _ in range(rounds):
        found["8 texts of 128"][0].append(spent(lambda: ours.forward(ids=packed, lengths=lengths)))
        with torch.no_grad():
            found["8 texts of 128"][1].append(spent(lambda: theirs(ids)))
    return found


for what, (a, b) in (decoder() if kind.endswith("ForCausalLM") else encoder()).items():
    print(f"{kind}, {what}: ftxc {min(a):.1f} to {max(a):.1f} ms, torch {torch.__version__} {min(b):.1f} to {max(b):.1f}, "
          f"of the least {min(b) / min(a):.2f} times")
