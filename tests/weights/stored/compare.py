#!/usr/bin/env python3
"""compare.py - the checkpoints of make.py read by the libraries that define their formats.

    pip install torch transformers compressed-tensors, and a source distribution of autoawq for its folder awq/utils
    python tests/weights/stored/compare.py [FOLDER OF autoawq]       # from the top folder

want.bin must be what compressed-tensors, transformers' converter of gpt-oss and AutoAWQ's unpacking find."""
import importlib.util, json, pathlib, sys
import numpy, torch
from safetensors.torch import load_file

HERE = pathlib.Path("tests/weights/stored")


def same(name, got):
    want = torch.from_numpy(numpy.fromfile(HERE / name / "want.bin", "<f4")).reshape(got.shape)
    if not torch.equal(got.to(torch.float32), want):
        sys.exit(f"{name}: differs by {(got - want).abs().max()}")
    print(name, "equal")


def compressed(name, config):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    all, found = load_file(HERE / name / "model.safetensors"), []
    scheme = QuantizationScheme(**config["config_groups"]["group_0"])
    reader = BaseCompressor.get_value_from_registry(config["format"])
    for matrix in "ab":
        one = {k[2:]: v for k, v in all.items() if k.startswith(matrix + ".")}
        one["weight_scale"] = one["weight_scale"].to(torch.float32)
        found.append(reader.decompress(one, scheme)["weight"])
    same(name, torch.stack(found))


def awq(name, utils, group):
    all, found = load_file(HERE / name / "model.safetensors"), []
    for matrix in "ab":
        codes, zeros = utils.unpack_awq(all[matrix + ".qweight"], all[matrix + ".qzeros"], 4)
        codes, zeros = (x & 15 for x in utils.reverse_awq_order(codes, zeros, 4))
        scales = all[matrix + ".scales"].to(torch.float32).repeat_interleave(group, 0)
        found.append((scales * (codes - zeros.repeat_interleave(group, 0))).T)
    same(name, torch.stack(found))


for folder in sorted(HERE.iterdir()):
    if not folder.is_dir():
        continue
    config = json.loads((folder / "config.json").read_text()).get("quantization_config", {})
    if config.get("quant_method") == "compressed-tensors":
        compressed(folder.name, config)
if len(sys.argv) > 1:
    spec = importlib.util.spec_from_file_location("packing", pathlib.Path(sys.argv[1]) / "awq/utils/packing_utils.py")
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    awq("awq", utils, 32)
    awq("awq-old", utils, 64)
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
t = load_file(HERE / "mxfp4" / "model.safetensors")
same("mxfp4", convert_moe_packed_tensors(t["a_blocks"], t["a_scales"], dtype=torch.float32))
