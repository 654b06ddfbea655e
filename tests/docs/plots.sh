#!/bin/sh
# plots.sh - docs/plots are drawn from docs/results as they are; a result that has changed shows.
set -eu
room=$FTX_BUILD/docs-plots
rm -rf "$room"
mkdir -p "$room/scripts" "$room/docs"
scripts/plots --check
cp scripts/plots "$room/scripts"
cp -r docs/results docs/plots "$room/docs"
newest=$(find docs/results -name '*-h200-steps.jsonl' | sort | tail -n 1)
sed -i '1s/"median_us": */"median_us": 9/' "$room/$newest"
if cmp -s "$newest" "$room/$newest"; then echo "nothing was changed" >&2; exit 1; fi
if "$room/scripts/plots" --check 2>"$room/said"; then echo "a changed result is not seen" >&2; exit 1; fi
grep -q 'decode-128 differ' "$room/said"
