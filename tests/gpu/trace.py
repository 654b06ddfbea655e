#!/usr/bin/env python3
"""trace.py - checks a trace of `ftxc run --trace` on a GPU against the launches of `ftxc show --json`.

    tests/gpu/trace.py TRACE.json SHOW.json [--no-host]

Times come from CUPTI; every run has kernels, which are those of a program, in its order, as often as it was enqueued;
kernels begin after the call that has enqueued them. --no-host: no copy to the host, and from the host only the steps'
tokens (under 64 KiB each).
"""
import itertools
import json
import sys


def once(labels):
    """The labels, with one of each that stand in a row."""
    return [label for label, _ in itertools.groupby(labels)]


def main():
    trace, show = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:3])
    assert trace["otherData"]["device_times"] == "CUPTI", trace["otherData"]
    assert trace["otherData"]["dropped_events"] == 0, trace["otherData"]
    events = sorted((e for e in trace["traceEvents"] if e["ph"] == "X"), key=lambda e: e["ts"])
    # a matrix product of cuBLASLt may be two kernels with one label
    programs = [once(l["label"] for l in p["launches"]) for plan in show["plans"] for p in plan["programs"]]
    runs = {e["args"]["run"]: e for e in events if e["cat"] == "host" and "run" in e["args"]}
    assert runs, "no run"
    kernels = [e for e in events if e["cat"] == "kernel"]
    assert all("run" in e["args"] for e in kernels), [e for e in kernels if "run" not in e["args"]][:3]
    for number, call in runs.items():
        ours = [e for e in kernels if e["args"]["run"] == number]
        labels = once(e["name"] for e in ours)
        assert labels and any(labels == p * (len(labels) // len(p)) for p in programs if p), (number, call, labels[:20])
        assert ours[0]["ts"] >= call["ts"] - 20, (ours[0], call)  # 20 us: the clocks are compared by reading both
    copies = [e for e in events if e["cat"] == "copy"]
    if "--no-host" in sys.argv:
        assert not [e for e in copies if e["name"] == "copy to the host"], copies
        assert all(e["args"]["bytes"] < 65536 for e in copies if e["name"] == "copy from the host"), copies
        assert [e for e in copies if e["name"] == "copy on the GPU"], "no copy on the GPU"
    print(f"{len(runs)} runs, {len(kernels)} kernels, {len(copies)} copies: as the plan has them")


if __name__ == "__main__":
    main()
