#!/usr/bin/env python3
"""serve_torch.py - transformers' own continuous batching on the work of `ftxc load`: all requests at once, tokens a second.

    python3 tests/bench/serve_torch.py [--requests 600] [--model 8b|tiny] [--attention sdpa] [--device cuda]

The model has the shape of Llama-3.1-8B and random weights in bf16. Prompts and answers have 230 and 200 tokens on average,
log-normal with a deviation of 0.8, at most 1,024, as those of `ftxc load`; texts end at their length alone. It needs torch and
transformers 5. Warm-up and the capture of graphs are not timed.
"""
import argparse
import json
import math
import random
import time

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

SHAPES = {"8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                     vocab_size=128256, rope_theta=500000.0, max_position_embeddings=8192),
          "tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                       vocab_size=300, max_position_embeddings=4096)}


def length(draw, mean, spread=0.8, most=1024):
    value = math.exp(math.log(mean) - spread * spread / 2 + spread * draw.gauss(0, 1))
    return max(1, min(most, round(value)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--model", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--attention", default="sdpa", help="of transformers: sdpa, paged|sdpa, flash_attention_2, ...")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=200.0, help="give up after so many")
    options = parser.parse_args()
    draw = random.Random(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(options.device):
        model = LlamaForCausalLM(LlamaConfig(**SHAPES[options.model], attn_implementation=options.attention)).eval()
    vocab = model.config.vocab_size
    work = [([draw.randrange(10, vocab) for _ in range(length(draw, 230))], length(draw, 200)) for _ in range(options.requests)]
    manager = model.init_continuous_batching(generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0))
    manager.start()

    def run(jobs):
        begin = time.perf_counter()
        for ids, new in jobs:
            manager.add_request(ids, max_new_tokens=new, eos_token_id=-1)
        done = written = 0
        while done < len(jobs) and time.perf_counter() - begin < options.seconds:
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                done += 1
                written += len(result.generated_tokens)
        return done, written, time.perf_counter() - begin

    run([(ids[:64], 16) for ids, _ in work[:8]])
    done, written, seconds = run(work)
    manager.stop(block=True)
    print(json.dumps({"program": "transformers " + transformers.__version__, "torch": torch.__version__, "attention": options.attention,
                      "requests": options.requests, "finished": done, "tokens_written": written, "seconds": round(seconds, 2),
                      "tokens_per_second": round(written / seconds, 1)}))


if __name__ == "__main__":
    main()
