#!/bin/sh
# commands.sh - every command of ftxc: what it prints, and what it refuses.
set -eu
room=$FTX_BUILD/commands
rm -rf "$room"
mkdir -p "$room"
tiny=$room/tiny.ftx
bert=$room/bert.ftx
"$FTXC" compile tests/models/tiny-llama -t cpu -o "$tiny" --json >"$room/out"
grep -q '"artifact":".*tiny.ftx","name":"tiny-llama","kind":"checkout","path":"tests/models/tiny-llama","targets":\[{"target":"cpu","engine_bytes":[1-9]' "$room/out"
"$FTXC" compile tests/models/tiny-bert -t cpu -q -o "$bert"

says() { # says CODE WORDS COMMAND...: it ends with that code, and those words are in what it prints
    code=$1 words=$2 found=0
    shift 2
    "$FTXC" "$@" >"$room/out" 2>&1 </dev/null || found=$?
    if [ $found != "$code" ] || ! grep -q -e "$words" "$room/out"; then
        echo "ftxc $(echo "$*" | head -c 300): exit code $found, wanted $code and \"$words\"; it said:" >&2
        cat "$room/out" >&2
        exit 1
    fi
}

for command in compile run score tokenize detokenize bench show page opt why; do
    says 0 "^ftxc $command" help $command
    says 0 "^ftxc $command" $command --help
    says 2 "$command: " $command --no-such-option
    says 2 "$command: expected" $command
done
says 0 '^ftxc doctor' help doctor
# Help wraps between words, at 110 columns.
"$FTXC" help run >"$room/help"
tr -s '\n ' ' ' <"$room/help" | grep -q -e "to leave room for --max-new) and sources at their start or end; an encoder's texts longest_first"
test "$(awk 'length > most { most = length } END { print (most <= 110) }' "$room/help")" = 1
says 0 'FTX_PATIENCE' help env
says 0 '^rmsnorm ' ops
says 0 'Exit codes' help
says 0 '^  M memory' help opt

graph=$room/graph.ir
sed '/^---/,$d' tests/passes/simplify-attention.ir >"$graph"
says 0 'pairs' opt "$graph" --pass=simplify
says 2 'no-such-pass' opt "$graph" --pass=no-such-pass
printf 'a\0b' >"$room/zero.ir"
says 2 'zero.ir: not a text file: it has a byte of value 0' opt "$room/zero.ir" --pass=simplify
says 2 'float3' opt "$graph" --pass=simplify --weights float3
says 2 'compute: no type' opt "$graph" --pass=precision --compute float3
says 1 'none.ir' opt none.ir --pass=simplify

says 2 'no value "%99999"; the graph has %1 to' why tests/models/tiny-llama %99999 -t cpu
says 0 'taken: ' why tests/models/tiny-llama %20 -t cpu
says 0 ' lost: ' why tests/models/tiny-llama %20 -t sm_90a
says 0 '= linear : ' why tests/models/tiny-llama layers.1.down_proj -t cpu
test "$("$FTXC" why tests/models/tiny-llama layers.1 -t cpu | grep -c '^%')" -gt "$("$FTXC" why tests/models/tiny-llama layers.1.q_proj -t cpu | grep -c '^%')"
test "$("$FTXC" why tests/models/tiny-llama layers.1.q_proj -t cpu | grep -c '^%')" = 1
for name in layers.9.q_proj q_proj.layers q_pro layers.1.q_proj.weight.x '%' '""'; do
    says 2 "no value \"" why tests/models/tiny-llama "$name" -t cpu
done
says 0 'context=64 ' why tests/models/tiny-llama -D limits.context=64
says 0 'token ids: the host writes them' why tests/models/tiny-llama %2
says 2 'there is no target "sm_1"' why tests/models/tiny-llama %20 -t sm_1

# A file, standard input and -; windows: each token is scored once, by the window that the help text says.
fable=$room/fable.ftx short=$room/short.ftx
"$FTXC" compile specs/fable.lua -t cpu -q -o "$fable"
"$FTXC" compile specs/fable.lua -t cpu -q -D limits.context=16 -o "$short"
printf 'Once upon a time there was a king who had a daughter, and she was so fair that the sun wondered at her.' >"$room/tale"
"$FTXC" score "$fable" "$room/tale" -d cpu >"$room/wanted"
grep -q '^[0-9]* tokens, mean loss' "$room/wanted"
"$FTXC" score "$fable" -d cpu <"$room/tale" | cmp - "$room/wanted"
"$FTXC" score "$fable" - -d cpu <"$room/tale" | cmp - "$room/wanted"
"$FTXC" score "$short" "$room/tale" --stride 6 -d cpu >"$room/out"
grep -q "^$(cut -d ' ' -f 1 "$room/wanted") tokens in [0-9]* windows of 16, stride 6, mean loss" "$room/out"
list() { # list KEY FILE: its numbers, a line each
    sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/" "$2" | tr , '\n'
}
"$FTXC" score "$short" "$room/tale" --stride 6 -d cpu --json >"$room/windows"
list ids "$room/windows" >"$room/ids"
n=$(wc -l <"$room/ids") done=1 start=0
test "$n" -gt 22 # three windows at least
begin=$(head -n 1 "$room/ids")
while [ $done -lt "$n" ]; do
    end=$((start + 16 < n ? start + 16 : n))
    { echo "$begin"; sed -n "$((start + 2)),${end}p" "$room/ids"; } | paste -s -d , >"$room/window"
    "$FTXC" score "$short" --ids "$(cat "$room/window")" -d cpu --json >"$room/one"
    list logprobs "$room/one" | tail -n $((end - done))
    done=$end start=$((start + 6))
done >"$room/logprobs"
list logprobs "$room/windows" | cmp - "$room/logprobs"
grep -q "\"windows\":$((start / 6))[,}]" "$room/windows"
# The loss is the mean of what is scored, the perplexity its exponential.
{ list logprobs "$room/windows"; sed 's/.*"loss":\([^,]*\),"perplexity":\([^,]*\),.*/\1 \2/' "$room/windows"; } |
    awk 'NF == 2 { loss = $1; perplexity = $2; next } { sum -= $1; n++ }
         function near(a, b) { return a - b < 1e-5 * b && b - a < 1e-5 * b }
         END { exit !(near(sum / n, loss) && near(exp(loss), perplexity)) }'
# Against another model: its own loss, and how far this one is from it; windows of the smaller context.
eight=$room/fable8.ftx
value() { # value KEY FILE: a number of an object
    sed "s/.*\"$1\":\([^,}]*\)[,}].*/\1/" "$2"
}
"$FTXC" compile specs/fable.lua -t cpu -q -D precision.weights=int4 -D precision.kv=int8 -o "$eight"
"$FTXC" score "$fable" "$room/tale" -d cpu --json >"$room/exact"
"$FTXC" score "$eight" "$room/tale" -d cpu --json >"$room/alone"
"$FTXC" score "$eight" "$room/tale" --against "$fable" -d cpu --json >"$room/both"
test "$(value loss "$room/both")" = "$(value loss "$room/alone")"
test "$(value against_loss "$room/both")" = "$(value loss "$room/exact")"
test "$(value against_perplexity "$room/both")" = "$(value perplexity "$room/exact")"
list logprobs "$room/alone" >"$room/one"
list logprobs "$room/both" | cmp - "$room/one"
echo "$(value divergence "$room/both") $(value same_top "$room/both")" |
    awk '{ exit !($1 > 0.0565 && $1 < 0.06 && $2 > 0.5 && $2 < 1) }' # the other way round it is 0.062
"$FTXC" score "$fable" "$room/tale" --against "$fable" -d cpu --json >"$room/same"
echo "$(value divergence "$room/same") $(value same_top "$room/same")" | awk '{ exit !($1 >= 0 && $1 < 1e-12 && $2 == 1) }'
"$FTXC" score "$eight" "$room/tale" --against "$short" -d cpu --stride 6 >"$room/out"
grep -q 'windows of 16, stride 6, mean loss' "$room/out"
grep -q "^against $short: its mean loss .* (.* % here)\$" "$room/out"
grep -q '^mean divergence 0\.[0-9]* nats, the same likeliest token [0-9.]* %$' "$room/out"
says 2 'has a vocabulary of ' score "$fable" --against "$tiny" --ids 5,6 -d cpu
says 2 'stride: expected 1 to 15 (the context is 16)' score "$fable" --against "$short" --stride 16 --ids 5,6 -d cpu
sed 's/"Ġking": 864/"Ġking": 2649/; s/"Ġkingdom": 2649/"Ġkingdom": 864/' specs/fable/tokenizer.json >"$room/other.json"
"$FTXC" compile specs/fable.lua -t cpu -q -D "tokenizer=$room/other.json" -o "$room/other.ftx"
says 2 'has another tokenizer' score "$fable" "$room/tale" --against "$room/other.ftx" -d cpu

# Texts to ids and back: as arguments, a file, lines, JSON; a mistake keeps its place among the others.
"$FTXC" tokenize "$fable" "$(cat "$room/tale")" 'Ein König' >"$room/two"
head -n 1 "$room/two" | tr , '\n' | cmp - "$room/ids"
{ cat "$room/tale"; echo; echo 'Ein König'; } >"$room/lines"
"$FTXC" tokenize "$fable" --batch <"$room/lines" | cmp - "$room/two"
head -n 1 "$room/two" >"$room/one"
echo >>"$room/tale"
"$FTXC" tokenize "$fable" --file "$room/tale" | cmp - "$room/one"
test "$("$FTXC" tokenize "$fable" --file "$room/tale" --keep-newline)" != "$(cat "$room/one")"
test "0,$("$FTXC" tokenize "$fable" 'Ein König' --no-bos)" = "$(tail -n 1 "$room/two")"
"$FTXC" detokenize "$fable" --skip-special <"$room/two" | cmp - "$room/lines"
"$FTXC" tokenize "$fable" --batch --json <"$room/lines" >"$room/json"
"$FTXC" detokenize "$fable" --skip-special <"$room/json" | cmp - "$room/lines"
grep -q '"pieces":\["<|begin_of_text|>","E","in"," K","","ö","n","ig"\]}' "$room/json"
says 0 '^{"text":"<|begin_of_text|>Ein König"}' detokenize "$fable" '[0, 38,263,604,129,116,79,537]' --json
printf '38\nx\n\n[38,"a"]\n{"id":1}\n[38\n38\0,1\n99999\n34\n' >"$room/lists"
says 2 'line 2: expected token ids with commas between, found "x"' detokenize "$fable" -f "$room/lists"
test "$("$FTXC" detokenize "$fable" -f "$room/lists" 2>/dev/null | tr '\n' .)" = E........A.
for line in 4 5 6 7 8; do
    grep -q "^ftxc: line $line: " "$room/out"
done
test "$("$FTXC" detokenize "$fable" -f "$room/lists" --json 2>/dev/null | grep -c '^{"error":"line ')" = 6
says 2 '4096 is no token id (0 to 4095)' detokenize "$fable" 4096
says 2 'tiny.ftx has no tokenizer' tokenize "$tiny" x
says 1 'none.txt' tokenize "$fable" -f none.txt
says 2 'file takes the place' tokenize "$fable" x -f none.txt
says 2 'with --batch each line' tokenize "$fable" --batch --keep-newline

says 0 'perplexity' score "$tiny" --ids 5,17,9,230 -d cpu
says 0 '"perplexity"' score "$tiny" --ids 5,17,9,230 -d cpu --json
"$FTXC" compile tests/models/tiny-llama -t cpu -q --json -o "$room/a\"b.ftx" >"$room/out"
grep -q '"artifact":".*/a\\"b.ftx"' "$room/out"
"$FTXC" compile tests/models/tiny-llama -t cpu -q --json -o "$room/$(printf 'a\377.ftx')" >"$room/out"
grep -q '"artifact":".*/a?.ftx"' "$room/out"
says 2 'expected 2 to' score "$tiny" --ids 5 -d cpu
says 2 'expected 2 to' score "$fable" -d cpu # standard input is empty
says 2 'stride: expected 1 to 1023 (the context is 1024), found 1024' score "$fable" --stride 1024 -d cpu
says 2 'tokens 3 to 17: ids\[13\]: 9999 is not below' score "$short" --ids "$(seq -s , 16),9999,18" --stride 3 -d cpu
says 2 'the model is an encoder' score "$bert" --ids 5,17 -d cpu
says 2 'no tokenizer' score "$tiny" README.md -d cpu
says 1 'none.txt' score "$tiny" none.txt -d cpu
says 1 'none.ftx' score none.ftx none.txt -d cpu
says 2 'expected cpu, cuda' score "$tiny" --ids 5,6 -d gpu
says 2 'ids: expected whole numbers' score "$tiny" --ids 5,x -d cpu

says 0 '^prompt .* tokens/s' bench "$tiny" --sequences 1,2 --context 8 --prompt 8 --repeat 2 -d cpu
says 0 '"median_us"' bench "$tiny" --sequences 2 --context 8 --repeat 2 -d cpu --json
says 0 '^encode .* tokens/s' bench "$bert" --sequences 2 --prompt 8 --repeat 2 -d cpu
says 0 'a step' bench "$tiny" --sequences 1,2 --new 4 --source 6 --repeat 2 -d cpu
says 2 '0 x 1 tokens after 8: sequences: expected 1 to' bench "$tiny" --sequences 0 --context 8 -d cpu
says 2 '^decode  *1 ' bench "$tiny" --sequences 0,1 --context 8 --repeat 1 -d cpu # a mistake among others
says 2 'repeat: expected 1 to 1000' bench "$tiny" --context 8 --repeat 0 -d cpu
says 2 'sequences: expected 1 or more' bench "$tiny" --sequences 0 --new 4 -d cpu
says 2 'repeat: expected 1 to 1000, found 0' bench "$tiny" --new 4 --repeat 0 -d cpu
says 2 'new: expected 1 to' bench "$tiny" --new 0 -d cpu
says 2 'source: expected 1 to' bench "$tiny" --new 4 --source -1 -d cpu
says 2 'temperature: expected 0 to' bench "$tiny" --new 4 --temperature -1 -d cpu
says 2 'beams: expected 0 to 64, found -1' bench "$tiny" --new 4 --beams -1 -d cpu
says 2 '99999 new tokens exceed the context' bench "$tiny" --new 99999 -d cpu
says 2 'are for single steps' bench "$tiny" --new 4 --context 8 -d cpu
says 2 'need --new' bench "$tiny" --beams 2 -d cpu
says 2 'need --new' bench "$tiny" --temperature 1 -d cpu
says 2 'expected 1 token or more' bench "$tiny" --context -5 -d cpu
says 0 '"generation":4,"source":6' bench "$tiny" --new 4 --source 6 --repeat 1 -d cpu --json
says 2 'sequences: expected at most 32 whole numbers' bench "$tiny" --sequences 1,,2 -d cpu
says 2 'sequences: expected at most 32 whole numbers' bench "$tiny" --sequences 1x2 -d cpu
says 2 'context, --prompt: expected at most 32 whole numbers' bench "$tiny" --prompt x -d cpu
says 2 'expected cpu, cuda' bench "$tiny" -d gpu
says 1 'none.ftx' bench none.ftx -d cpu
says 0 '^mixed  *3  *9  *8 .* tokens/s' bench "$tiny" --mixed 2x8+6,3x8+9 --repeat 2 -d cpu
test "$(grep -c '^mixed' "$room/out")" = 2
says 0 '"step":"mixed".*"sequences":3,"tokens":9,"context":8' bench "$tiny" --mixed 3x8+9 --repeat 2 -d cpu --json
says 2 '16 x 4 tokens after 8: sequences beside a prompt: expected 1 to 15, found 16' bench "$tiny" --mixed 16x8+4 -d cpu
says 2 'exceed the 512 tokens of a step' bench "$fable" --mixed 15x8+498 -d cpu
for words in 3x8 3x8+ x8+9 3x8+9, 3x8+9,,3x8+9 3+8x9 3x8+9x ''; do
    says 2 'mixed: expected SEQUENCESxCONTEXT+PROMPT' bench "$tiny" --mixed "$words" -d cpu
done
says 2 'leave --sequences, --context and --prompt out' bench "$tiny" --mixed 3x8+9 --context 8 -d cpu
says 2 'single steps, and --new is given' bench "$tiny" --mixed 3x8+9 --new 4 -d cpu
says 2 'only decoders have steps in which' bench "$bert" --mixed 3x8+9 -d cpu
says 0 '^decode  *2  *1  *8 .* ms .* % \[.*%\?.* [BAn][ o]' bench --compare "$tiny" "$tiny" --sequences 2 --context 8 --repeat 6 -d cpu
says 0 '"compare":"prompt","rounds":6,"a_us":.*"difference_us":.*"low_us":.*"high_us":.*"b":".*tiny.ftx"' bench --compare "$tiny" "$tiny" --context 8 --prompt 8 --repeat 6 -d cpu --json
test "$(wc -l <"$room/out")" = 2
says 0 '^mixed ' bench "$tiny" "$tiny" --compare --mixed 3x8+9 --repeat 6 -d cpu
says 0 '^encode ' bench --compare "$bert" "$bert" --sequences 2 --prompt 8 --repeat 6 -d cpu
says 2 'expected two artifacts to compare, found 1' bench --compare "$tiny" -d cpu
says 2 'expected one artifact, found 2' bench "$tiny" "$tiny" -d cpu
says 2 'compare: the two are not of one model: tiny-llama is a decoder, tiny-bert is an encoder' bench --compare "$tiny" "$bert" -d cpu
says 2 'compare takes 6 to 1000 rounds, found 5' bench --compare "$tiny" "$tiny" --repeat 5 -d cpu
says 2 'trace records one artifact' bench --compare "$tiny" "$tiny" --trace "$room/t.json" -d cpu
says 1 'none.ftx' bench --compare "$tiny" none.ftx -d cpu
says 0 'launches .* share' bench "$tiny" --sequences 2 --new 4 --temperature 1 --top-k 5 --repeat 1 -d cpu --profile

says 0 'all checksums are right' show "$tiny" --verify
says 0 'decoding  *greedy' show "$tiny"
says 0 'linear' show "$tiny" --kernels
says 0 'state' show "$tiny" --memory
says 0 '"kernels"' show "$tiny" --json
says 0 'encode' show "$bert" --memory
says 1 'README.md' show README.md
says 0 '^ftxc [0-9]' --version

# Without -o the file is named by the spec; a dump leaves a text behind each pass.
root=$(pwd)
(cd "$room" && "$FTXC" compile "$root/tests/models/tiny-llama" -t cpu -q --dump P --dump-dir "$room/dump" && cmp tiny-llama.ftx tiny.ftx)
ls "$room/dump" | grep -q precision
# A place that cannot be written is found before the work.
says 1 'cannot be written' compile tests/models/tiny-llama -t cpu --dump P --dump-dir "$room/early" -o "$room/no/x.ftx"
test ! -e "$room/early"
mkdir "$room/checkout" "$room/named"
(cd "$room/named" && "$FTXC" compile "$root/specs/fable.lua" -t cpu -q && "$FTXC" compile "$root/specs/fable.lua" -t cpu -q --exe)
test -f "$room/named/fable.ftx"
test -x "$room/named/fable"
cp tests/models/tiny-llama/* "$room/checkout"
(cd "$room/checkout" && "$FTXC" compile . -t cpu -q && [ -f checkout.ftx ])
says 0 'x.ftx: tiny-llama from the checkout tests/models/tiny-llama, for cpu; .* kernels, weights .*, engine .* MB: state .*, KV cache of up to [0-9]* tokens' compile tests/models/tiny-llama -t cpu,cpu -o "$room/x.ftx"
says 0 'tests/models/tiny-llama: there is no tokenizer.json' compile tests/models/tiny-llama -t cpu -o "$room/x.ftx"
says 0 'a list of cpu sm_80 .* sm_120a; all: ' compile --help
says 0 'compute_80 compute_90; ptx: both' compile --help
for targets in all ptx; do # taken apart, then each wants NVRTC
    FTX_NVRTC=$room/none says 1 'needs NVRTC' compile tests/models/tiny-llama -t $targets -o "$room/x.ftx"
done
says 2 'no target is named; known: cpu sm_80 .* compute_90 all ptx' compile tests/models/tiny-llama -t , -o "$room/x.ftx"
# Tuning files: --tune names one; else the spec's folder and the user's are searched by the name of the GPU.
says 0 'GPU of a kind: h200 h100; PTX' compile --help
FTX_NVRTC=$room/none says 1 'needs NVRTC' compile tests/models/tiny-llama -t h200,sm_90a,h100 -o "$room/x.ftx"
mkdir -p "$room/tuned/tune" "$room/user/ftxc/tune"
cp specs/fable.lua "$room/tuned"
ln -s "$root/specs/fable" "$room/tuned/fable"
echo 'return { gpu = "NVIDIA H200", entries = {} }' >"$room/h200.lua"
says 0 'on h200' why specs/fable.lua %20 -t h200 --tune "$room/h200.lua"
says 2 'h200.lua: the file is for NVIDIA H200, and no target is that GPU; -t names one: cpu' why specs/fable.lua %20 -t sm_90a --tune "$room/h200.lua"
says 1 'none.lua: ' why specs/fable.lua %20 -t h200 --tune none.lua
sed 's/H200/H100/' "$room/h200.lua" >"$room/tuned/tune/nvidia-h200.lua"
says 2 'tune/nvidia-h200.lua: the file is for NVIDIA H100, and by its name for NVIDIA H200' why "$room/tuned/fable.lua" %20 -t h200
says 0 'on h200' why "$room/tuned/fable.lua" %20 -t h200 --tune none
says 0 'on sm_90a' why "$room/tuned/fable.lua" %20 -t sm_90a
mv "$room/tuned/tune/nvidia-h200.lua" "$room/user/ftxc/tune"
XDG_CONFIG_HOME=$room/user says 2 'user/ftxc/tune/nvidia-h200.lua: the file is for NVIDIA H100' why "$room/tuned/fable.lua" %20 -t h200
says 0 'TILE_N = 64 of .*; tune/nvidia-h200.lua: step 128 takes' why specs/llama-3.2-1b.lua layers.0.q_proj -t h200 # shipped
# ftxc tune: its mistakes, and what it says without a GPU.
says 2 'expected one spec, folder or artifact, found 0 arguments' tune
says 2 'expected one spec, folder or artifact, found 2 arguments' tune a.lua b.lua
says 2 'minutes: expected more than 0, at most 1000, found 0' tune a.lua --minutes 0
says 2 'minutes: expected more than 0, at most 1000, found 1001' tune a.lua --minutes 1001
says 2 'context: expected 0 or more, found -1' tune a.lua --context -1
says 2 'buckets: expected numbers with commas between, found "8;9"' tune a.lua --buckets '8;9'
says 2 'buckets: expected numbers with commas between, found ""' tune a.lua --buckets ''
FTX_CUDA=0 says 1 'tune measures on a GPU: ' tune specs/fable.lua
"$FTXC" compile tests/models/tiny-llama -t cpu --no-weights -q -o "$room/made.ftx"
says 2 'made.ftx: was made from tiny-llama, which is neither beside it nor in this folder: name the spec' tune "$room/made.ftx"
ln -s "$root/tests/models/tiny-llama" "$room/tiny-llama"
FTX_CUDA=0 says 1 'tune measures on a GPU: ' tune "$room/made.ftx"
says 2 'emit-cuda: no target is a GPU' compile tests/models/tiny-llama -t cpu --emit-cuda "$room/cuda" -o "$room/x.ftx"
says 2 'no-weights stores none' compile tests/models/tiny-llama -t cpu --sidecar --no-weights -o "$room/x.ftx"
for file in fable.lua fable/model.safetensors fable/tokenizer.json; do
    ln -s "$root/specs/$file" "$room/precious"
    says 2 'the artifact would overwrite this file' compile specs/fable.lua -t cpu -o "$room/precious"
    rm "$room/precious"
done
says 1 'none.lua: no spec there: No such file' compile none.lua
says 1 'none.lua: no spec there: No such file' why none.lua %1

# A byte order mark that an editor put before a text is no part of it: the same artifacts come out.
mkdir -p "$room/plain" "$room/marked"
cp -r specs/fable.lua specs/fable specs/llama.lua specs/verse "$room/plain"
rm "$room/plain/verse/tokenizer.json" # source.spm and vocab.json are read in its place
cp -r "$room/plain"/* "$room/marked"
for file in fable.lua llama.lua fable/tokenizer.json verse/config.json verse/generation_config.json verse/vocab.json; do
    printf '\357\273\277' | cat - "$room/plain/$file" >"$room/marked/$file"
done
for model in fable.lua verse; do
    for side in plain marked; do
        (cd "$room/$side" && "$FTXC" compile $model -t cpu -q -o model.ftx)
    done
    cmp "$room/plain/model.ftx" "$room/marked/model.ftx"
done
printf '\357\273\277' | cat - "$graph" >"$room/marked/graph.ir"
says 0 'pairs' opt "$room/marked/graph.ir" --pass=simplify

# A prompt from a file, from standard input, as an argument; a vector of ids.
ask="--greedy -n 4 -q -d cpu" # words, split on purpose
printf 'Once upon a time' >"$room/prompt"
"$FTXC" run "$fable" 'Once upon a time' $ask >"$room/wanted"
"$FTXC" run "$fable" --prompt-file "$room/prompt" $ask | cmp - "$room/wanted"
"$FTXC" run "$fable" $ask <"$room/prompt" | cmp - "$room/wanted"

# The last newline of a file or pipe is no part of the prompt, unless that is asked for; only one goes.
newline='
'
echo 'Once upon a time' | "$FTXC" run "$fable" $ask | cmp - "$room/wanted"
"$FTXC" run "$fable" "Once upon a time$newline" $ask >"$room/line"
! cmp -s "$room/line" "$room/wanted"
echo 'Once upon a time' | "$FTXC" run "$fable" --keep-newline $ask | cmp - "$room/line"
printf 'Once upon a time\n\n' | "$FTXC" run "$fable" -f - $ask | cmp - "$room/line"
says 2 'keep-newline: each line is a prompt' run "$fable" --keep-newline --batch $ask
says 0 '^-\{0,1\}[0-9.e-]* -\{0,1\}[0-9.]' run "$bert" --ids 5,17,9 -q -d cpu
says 2 'temperature: an encoder .* writes no text' run "$bert" --ids 5 --temperature 3 -d cpu
says 2 'stop: an encoder' run "$bert" --ids 5 --stop x -d cpu
says 2 'no-bos: an encoder' run "$bert" --ids 5 --no-bos -d cpu
says 2 'greedy: an encoder' run "$bert" --ids 5 --greedy -d cpu
says 1 'none.txt' run "$fable" --prompt-file none.txt -d cpu
says 0 '[a-z]' run "$fable" '' $ask # what the model writes behind its begin token
says 2 'early-stopping: expected' run "$fable" x --early-stopping maybe -d cpu
says 2 'logit-bias: expected' run "$fable" x --logit-bias 5 -d cpu
says 2 'stop-id: expected' run "$fable" x --stop-id x -d cpu
says 2 'logits: only with --json' run "$fable" x --logits -d cpu
says 2 'n-best: only with --json' run "$fable" x --n-best 2 -d cpu
says 2 'greedy is .*: not with --temperature' run "$fable" x --greedy --temperature 0.5 -d cpu
says 2 'greedy is .*: not with --beams' run "$fable" x --beams 2 --greedy -d cpu
says 0 . run "$fable" x --greedy --temperature 0 --beams 1 $ask
says 0 . run "$fable" x --top-p 0 $ask
says 0 '"logits":\[' run "$fable" x --json --logits $ask
FTX_TRACE=1 says 0 'launch embed' run "$fable" x $ask
says 2 'unknown option -x' run "$fable" x -x
says 2 'max-new needs a value' run "$fable" x --max-new
says 2 'expected at most one prompt, found 2' run "$fable" x -- -n
says 2 'pair: only an encoder' run "$fable" x --pair y -d cpu
says 2 'pair goes with one text' run "$bert" --ids 5 --pair y -d cpu
says 2 'types: expected as many' run "$bert" --ids 5 --types 0,0 -d cpu
says 2 'and --batch is given too' run "$fable" --batch --ids 5 -d cpu
says 0 'share' run "$bert" --ids 5 --profile -d cpu
says 0 '1 tokens in' run "$bert" --ids 5 -d cpu
printf 'Once upon a time' | "$FTXC" run "$fable" --batch $ask | cmp - "$room/wanted"
"$FTXC" run "$fable" 'Once upon a time' --batch $ask | cmp - "$room/wanted"
says 1 'zero: a text of more than 64 MiB' run "$fable" -f /dev/zero $ask
says 1 'zero: a text of more than 64 MiB' run "$fable" -f /dev/zero --batch $ask
found=0
yes | "$FTXC" run "$fable" $ask >"$room/out" 2>&1 || found=$?
[ $found = 1 ] && grep -q 'standard input: a text of more than 64 MiB' "$room/out"
says 0 '"finish"' run "$fable" x --logit-bias 5=-9 --stop-id 7 --json $ask
echo "every command"
