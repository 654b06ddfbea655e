#!/usr/bin/env python3
"""bert_torch.py - ftxc.torch.Encoder where a BertModel of transformers stood: how near its tensors are, and times of both.

    PYTHONPATH=python tests/bench/bert_torch.py [--device cpu|cuda] [--layers 12] [--width 768] [--batch 32x128,1x64] [--threads 1] [--json FILE]

It makes a BertModel with random weights, saves it, compiles the folder with ftxc and runs both on the same ids. On a GPU
both compute in fp16, on a CPU in fp32. A time is the median of the calls that fit in two seconds, after as many as warm up;
calls of the two take turns. "compiled" is the same BertModel by torch.compile. It needs torch and transformers, FTXC (the
program) and FTX_LIBRARY (libftx.so), unless the package is installed.

On a CPU that others use, too, look at "least" (the shortest call) and "cpu" (the least processor time of a call, all threads
together); both are printed there.
"""
import argparse
import json
import statistics
import tempfile
import time

import torch
from transformers import BertConfig, BertModel

import ftxc
from ftxc.torch import Encoder


def timed(run, cuda):
    """Milliseconds of a call, and milliseconds of processor time."""
    begin, busy = time.perf_counter(), time.process_time()
    run()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3, (time.process_time() - busy) * 1e3


def called_in_turn(runs, cuda, seconds):
    """For each the times of its calls."""
    for run in runs.values():
        for _ in range(3):
            timed(run, cuda)
    times = {name: [] for name in runs}
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(times[next(iter(times))]) < 5:
        for name, run in runs.items():
            times[name].append(timed(run, cuda))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", default="32x128,8x128,1x64", help="texts x tokens, with commas between")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for all; 0: what each takes by itself")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each batch and each of the three")
    parser.add_argument("--json", help="append a line for each batch to this file")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    config = BertConfig(hidden_size=options.width, num_hidden_layers=options.layers,
                        num_attention_heads=options.width // 64, intermediate_size=4 * options.width)
    bert = BertModel(config).eval()
    shapes = [tuple(map(int, b.split("x"))) for b in options.batch.split(",")]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        bert.save_pretrained(folder)
        tokens = max(config.max_position_embeddings, *(b * s for b, s in shapes))
        fields = {"precision.weights": "fp32", "limits.sequences": max(b for b, _ in shapes), "limits.tokens": tokens}
        if cuda:
            major, minor = torch.cuda.get_device_capability()
            fields["precision.weights"] = "fp16"
            target = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        path = ftxc.compile(folder, folder + "/bert.ftx", target=target if cuda else "cpu", progress=False,
                            **fields)
        encoder = Encoder(path, device=options.device, threads=options.threads)
        bert = bert.to(options.device, torch.float16 if cuda else torch.float32)
        runs = {"ftxc": encoder, "torch": bert, "compiled": torch.compile(bert)}
        for texts, tokens in shapes:
            ids = torch.randint(999, config.vocab_size, (texts, tokens), device=options.device)
            mask = torch.ones_like(ids)
            far = (encoder(ids, mask).last_hidden_state - bert(ids, mask).last_hidden_state.float()).abs().max().item()
            times = called_in_turn({name: (lambda run=run: run(ids, mask)) for name, run in runs.items()}, cuda, options.seconds)
            line = {"step": "BertModel", "width": options.width, "layers": options.layers, "texts": texts,
                    "tokens": tokens, "device": torch.cuda.get_device_name() if cuda else "cpu",
                    "type": "fp16" if cuda else "fp32", "threads": torch.get_num_threads(), "largest_difference": far,
                    **{name + "_ms": round(statistics.median(wall for wall, _ in t), 4) for name, t in times.items()}}
            if not cuda:
                for name, t in times.items():
                    line[name + "_least_ms"], line[name + "_cpu_ms"] = (round(min(column), 4) for column in zip(*t))
            print(json.dumps(line), flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as f:
                    f.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
