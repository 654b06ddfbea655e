#!/bin/sh
# plots.sh - docs/plots are drawn from docs/results as they are; a result that has changed shows.
set -eu
room=$FTX_BUILD/docs-plots
rm -rf "$room"
mkdir -p "$room/scripts" "$room/docs"
scripts/plots --check
cp scripts/plots "$room/scripts"
cp -r docs/results docs/plots "$room/docs"
sed -i 's/"median_us": 664.0/"median_us": 665.0/' "$room"/docs/results/*-h200-steps.jsonl
if cmp -s docs/results/*-h200-steps.jsonl "$room"/docs/results/*-h200-steps.jsonl; then echo "nothing was changed" >&2; exit 1; fi
if "$room/scripts/plots" --check 2>"$room/said"; then echo "a changed result is not seen" >&2; exit 1; fi
grep -q 'decode-128 differ' "$room/said"
