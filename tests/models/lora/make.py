#!/usr/bin/env python3
"""make.py - golden.json: adapters that PEFT saved, and the models that its merge_and_unload makes of them.

    python3 -m venv /tmp/peft && /tmp/peft/bin/pip install torch transformers peft
    /tmp/peft/bin/python tests/models/lora/make.py        # from the top folder; writes tests/models/lora/golden.json

The numbers of an adapter come from a counter: number i of a tensor depends on its name and i alone. The tests have the
same generator (adapters.h), so golden.json holds only names, shapes and settings of the adapters, six elements of each
changed weight and its product with other such numbers, and greedy tokens or a vector of the merged model. All is
computed in fp32, by adapters and models as loaded back from disk."""
import json, pathlib, shutil, sys, tempfile
import numpy, peft, torch, transformers
from safetensors import safe_open
from peft import LoraConfig, PeftModel, get_peft_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from drawn import numbers

HERE = pathlib.Path("tests/models/lora")
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
PROMPTS = [[0, 17, 200, 45, 9], [5, 6, 7, 250, 33, 80, 12, 4]]
SOURCES = [case["source_ids"] for case in json.load(open("tests/models/verse/greedy.json"))["cases"][:2]]
TOKENS = 12

# name: model, class, adapters: (settings, stored type)
LLAMA, GPT2, BERT = "tests/models/tiny-llama", "tests/models/tiny-gpt2", "tests/models/tiny-bert"
CASES = {
    "list": (LLAMA, "CausalLM", [(dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]), "F32")]),
    "all-linear": (LLAMA, "CausalLM", [(dict(
        r=5, lora_alpha=3, use_rslora=True, target_modules="all-linear", rank_pattern={r"layers\.1\..*proj": 2},
        alpha_pattern={"o_proj": 7, "self_attn.q_proj": 1.5}, modules_to_save=["lm_head", "norm"]), "BF16")]),
    "embedding": (LLAMA, "CausalLM", [(dict(r=3, lora_alpha=2, target_modules=["embed_tokens", "lm_head"]), "F32")]),
    "dora": (LLAMA, "CausalLM", [(dict(r=4, lora_alpha=8, use_dora=True,
                                       target_modules=["k_proj", "up_proj", "embed_tokens"]), "F32")]),
    "two": (LLAMA, "CausalLM", [
        (dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj"]), "F32"),
        (dict(r=2, lora_alpha=-3, target_modules=r".*\.1\.self_attn\.(q|v)_proj"), "F16")]),
    "conv1d": (GPT2, "CausalLM", [(dict(r=4, lora_alpha=8, fan_in_fan_out=True, bias="all",
                                        target_modules=["c_attn", "c_proj", "c_fc"]), "F32")]),
    "conv1d-dora": (GPT2, "CausalLM", [(dict(r=6, lora_alpha=8, use_dora=True, fan_in_fan_out=True,
                                             target_modules="all-linear"), "F32")]),
    "positions": (GPT2, "CausalLM", [(dict(r=2, lora_alpha=1, target_modules=["wpe"]), "F32")]),
    "encoder": (BERT, "", [(dict(r=4, lora_alpha=8, bias="lora_only", target_modules=["query", "output.dense"],
                                 modules_to_save=["pooler"]), "F32")]),
    "seq2seq": ("specs/verse", "Seq2SeqLM", [(dict(r=8, lora_alpha=8, lora_bias=True,
                                                   target_modules=["q_proj", "v_proj", "fc1"]), "BF16")]),
    "fable": ("specs/fable", "CausalLM", [(dict(r=16, lora_alpha=16, target_modules="all-linear"), "BF16")]),
}


def tensor(name, like):
    x = numbers(name, like.numel())
    if "magnitude" in name:
        x = numpy.float32(1) + x * numpy.float32(0.5)
    elif "norm" in name and "weight" in name:
        x = numpy.float32(1) + x * numpy.float32(0.25)
    else:
        x = x * numpy.float32(0.0625)
    return torch.from_numpy(x).reshape(like.shape)


def load(model, kind):
    return getattr(transformers, f"AutoModel{'For' + kind if kind else ''}").from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager").eval()


def save(folder, model, kind, settings, dtype):
    """An adapter as PEFT saves it, its numbers drawn; its description."""
    torch.manual_seed(0)
    adapted = get_peft_model(load(model, kind), LoraConfig(**settings))
    adapted.save_pretrained(folder)
    path = folder / "adapter_model.safetensors"
    with safe_open(path, "pt") as f:
        tensors = {name: tensor(name, f.get_tensor(name)).to(DTYPES[dtype]) for name in f.keys()}
    from safetensors.torch import save_file
    save_file(tensors, path)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "base"
    config["peft_version"] = peft.__version__
    return {"dtype": dtype, "config": config, "tensors": {name: list(t.shape) for name, t in sorted(tensors.items())}}


def merged(model, kind, folders):
    m = load(model, kind)
    for folder in folders:
        m = PeftModel.from_pretrained(m, folder).merge_and_unload()
    return m.eval()


def results(model, kind):
    with torch.no_grad():
        if not kind:
            return {"prompts": PROMPTS, "pooler": [
                model(torch.tensor([p])).pooler_output[0].tolist() for p in PROMPTS]}
        rows = []
        for prompt in SOURCES if kind == "Seq2SeqLM" else PROMPTS:
            ids, margins = list(prompt), []
            source = torch.tensor([prompt]) if kind == "Seq2SeqLM" else None
            ids = [model.config.decoder_start_token_id] if source is not None else ids
            given = len(ids)
            for _ in range(TOKENS):
                x = torch.tensor([ids])
                y = model(input_ids=source, decoder_input_ids=x) if source is not None else model(x)
                logits = y.logits[0, -1]
                if source is not None:
                    logits[model.config.pad_token_id] = -torch.inf
                best = logits.topk(2)
                ids.append(int(best.indices[0]))
                margins.append(float((best.values[0] - best.values[1]) / logits[logits > -1e30].abs().max()))
            rows.append({"prompt": source[0].tolist() if source is not None else prompt, "greedy": ids[given:],
                         "margin": margins})
        return {"rows": rows}


def main():
    out = {"versions": {m.__name__: m.__version__ for m in (torch, transformers, peft)}, "cases": {}}
    for name, (model, kind, adapters) in CASES.items():
        room = pathlib.Path(tempfile.mkdtemp())
        folders = [room / str(i) for i in range(len(adapters))]
        saved = [save(folder, model, kind, *adapter) for folder, adapter in zip(folders, adapters)]
        base = load(model, kind).state_dict()
        changed = {}
        m = merged(model, kind, folders)
        for key, t in m.state_dict().items():
            if torch.equal(t, base[key]):
                continue
            flat = t.double().flatten()
            at = [i * (flat.numel() - 1) // 5 for i in range(6)]
            changed[key] = {"at": at, "is": [float(flat[i]) for i in at],
                            "product": float(flat @ torch.from_numpy(numbers("probe", flat.numel())).double())}
        out["cases"][name] = {"model": model, "adapters": saved, "changed": changed, "results": results(m, kind)}
        print(name, len(changed), "weights changed")
        shutil.rmtree(room)
    (HERE / "golden.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


main()
