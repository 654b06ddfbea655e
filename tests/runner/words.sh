#!/bin/sh
# words.sh - what ftxc says to people who mistake something, and that Ctrl-C leaves nothing behind.
set -eu
room=$FTX_BUILD/words
rm -rf "$room"
mkdir -p "$room/empty"
: >"$room/empty.ftx"
head -c 1048577 /dev/zero | tr '\0' ' ' >"$room/big.lua"
tiny=$room/tiny.ftx
"$FTXC" compile tests/models/tiny-llama -t cpu -q -o "$tiny"

refused() { # refused CODE WORDS ARGUMENT...: ftxc ends with that code and says those words, nothing else
    code=$1 words=$2 found=0
    shift 2
    "$FTXC" "$@" >"$room/out" 2>"$room/err" </dev/null || found=$?
    if [ $found != "$code" ] || ! grep -q -F -e "$words" "$room/err" || [ -s "$room/out" ]; then
        echo "ftxc $(echo "$*" | head -c 300): exit code $found, wanted $code and \"$words\"; it said:" >&2
        cat "$room/err" "$room/out" >&2
        exit 1
    fi
}
refused 1 'empty: not a regular file' run "$room/empty" x
refused 1 '/dev/null: not a regular file' run /dev/null x
refused 1 'is 0 bytes' run "$room/empty.ftx" x
refused 1 'none.ftx: No such file' run "$room/none.ftx" x
refused 1 'is not an ftx artifact' run README.md x
refused 1 'fable.lua: is not an ftx artifact, which ftxc compile makes of a spec' run specs/fable.lua x
refused 2 'it has no config.json' compile "$room/empty" -o "$room/x.ftx"
refused 1 'no spec there' compile "$room/none.lua" -o "$room/x.ftx"
cp -R tests/models/tiny-llama "$room/checkout"
echo 'return {}' >"$room/checkout/tune.lua"
printf x >"$room/checkout/short"
for file in model.safetensors config.json golden.json tune.lua short; do # an artifact replaces no file that it is made from, nor any other
    cp "$room/checkout/$file" "$room/was"
    refused 2 "$file: the artifact would overwrite this file, which is no artifact" \
        compile "$room/checkout" -t cpu -o "$room/checkout/$file"
    cmp "$room/checkout/$file" "$room/was"
done
: >"$room/new.ftx"
head -c 5000 "$FTXC" >"$room/damaged" # as a program that has lost its end
for out in new.ftx new.ftx damaged; do
    "$FTXC" compile "$room/checkout" -t cpu -q -o "$room/$out"
done
refused 1 'cannot be written: it is a folder' compile tests/models/tiny-llama -o "$room/empty"
refused 1 'cannot be written: No such file' compile tests/models/tiny-llama -o "$room/no/x.ftx"
refused 1 'cannot be written' compile tests/models/tiny-llama -o /proc/x.ftx
refused 2 'sm_90b' compile tests/models/tiny-llama -t sm_90b -o "$room/x.ftx"
refused 2 '0 (all CPUs) to 1024, found 2000' run "$tiny" --ids 5 --threads 2000
refused 2 'expected cpu, cuda, cuda:N or auto, found "gpu"' run "$tiny" --ids 5 -d gpu
for bytes in 0 -1 0.5 4GB G 1e30 nan inf 4,5 ''; do
    refused 2 "--kv-memory: expected bytes (512M, 4G), found \"$bytes\"" run "$tiny" --ids 5 --kv-memory "$bytes"
done
refused 2 'is 0.0 MB, and the KV cache needs' run "$tiny" --ids 5 --kv-memory 1.5K
refused 2 'is 0.0 MB, and the KV cache needs' bench "$tiny" --random-weights 1 --kv-memory 100
refused 2 'is 0.0 MB, and the KV cache needs' score "$tiny" --ids 5,6 --kv-memory 100
for layers in -1 some 3x 1.5 99999999999 ''; do
    refused 2 "--gpu-layers: expected a number of layers, found \"$layers\"" run "$tiny" --ids 5 --gpu-layers "$layers"
done
for command in 'run --ids 5' 'score --ids 5,6' 'bench --random-weights 1'; do
    refused 2 'gpu_memory (--gpu-memory) and gpu_layers (--gpu-layers) are two ways to say one thing' ${command%% *} "$tiny" \
        ${command#* } --gpu-layers 0 --gpu-memory 1M
done
for option in '--gpu-layers 0' '--gpu-memory 1M'; do
    refused 2 "${option% *}): for a GPU; on the CPU all weights are in host memory" run "$tiny" --ids 5 --device cpu $option
done
refused 2 'and a text is given too' run "$tiny" hello --ids 5
refused 2 'expected at most one prompt, found 2' run "$tiny" hello again
refused 2 'no tokenizer' run "$tiny" hello
refused 2 '99999 is no token id' run "$tiny" --ids 99999
refused 2 'expected whole numbers of 32 bits' run "$tiny" --ids ''
refused 2 'found "5x9"' run "$tiny" --ids 5x9
refused 2 'top_k: expected 0 to' run "$tiny" --ids 5 --top-k 2000
for option in --top-k --max-new --min-new --samples --beams --n-best --repetition-window --no-repeat-ngram --threads; do
    refused 2 "$option: expected a whole number of 32 bits" run "$tiny" --ids 5 $option 4294967297 # not 1
done
refused 2 'seed: expected a whole number' run "$tiny" --ids 5 --seed 18446744073709551616
refused 2 'seed: expected a whole number, found "5x"' run "$tiny" --ids 5 --seed 5x
refused 2 'logit-bias: expected ID=NUMBER' run "$tiny" --ids 5 --logit-bias 4294967301=1
for device in cuda: cuda:x cuda:-0 'cuda: 1' cuda:1000 cuda:99999999999999999999 ''; do
    refused 2 "expected cpu, cuda, cuda:N or auto, found \"$device\"" run "$tiny" --ids 5 -d "$device"
done
for number in nan inf; do
    refused 2 "temperature: expected 0 to 100, found $number" run "$tiny" --ids 5 --temperature $number
    refused 2 "bias_values[0]: expected a number or -infinity, found $number" run "$tiny" --ids 5 --logit-bias 5=$number
done
refused 2 'temperature: expected a number, found "1e999"' run "$tiny" --ids 5 --temperature 1e999
refused 2 'the prompt has 50000 tokens' run "$tiny" --ids "$(yes 5 | head -n 50000 | paste -s -d , -)"
# shellcheck disable=SC2046
refused 2 'more than 64 arguments' run "$tiny" $(yes x | head -n 64)
# What a file, an option or a command is called sends nothing to the terminal.
escape=$(printf 'a\033[31m\302\233b\377')
refused 1 'a\x1b[31m\xc2\x9bb\xff: No such file' run "$escape" x
refused 2 'unknown option --a\x1b[31m' run "$tiny" "--$escape"
refused 2 'no command "a\x1b[31m' "$escape"
refused 2 'expected cpu, cuda, cuda:N or auto, found "a\x1b[31m' run "$tiny" --ids 5 -d "$escape"
refused 1 'grüße: No such file' run grüße x
refused 1 'a file without a name: No such file' run '' x
refused 2 'prompt-file takes the place' run "$tiny" hello --prompt-file README.md
refused 1 'empty: Is a directory' run "$tiny" --prompt-file "$room/empty"
refused 1 'empty: Is a directory' run "$tiny" --prompt-file "$room/empty" --batch
refused 2 'big.lua: the file is 1048577 bytes, a spec may have 1048576' compile "$room/big.lua" -o "$room/x.ftx"
for command in compile why; do
    refused 2 'tiny.ftx: a compiled model; ftxc run and ftxc show take it' $command "$tiny"
done
refused 2 'not a text file: it has a byte of value 0' compile "$FTXC" -o "$room/x.ftx"
refused 1 'a file without a name' compile tests/models/tiny-llama -o ''
refused 2 'no pass has the letter "Z"' compile tests/models/tiny-llama -o "$room/x.ftx" --dump Z
refused 2 'limits.context must be a whole number from 2' compile tests/models/tiny-llama -o "$room/x.ftx" -D limits.context=1
refused 2 'it takes no arguments' ops all
refused 2 'no command "nope"' help nope
refused 2 'the graph'"'"'s family has no field '"'"'layer'"'"'' compile tests/models/tiny-llama -D graph.layer=1 -o "$room/x.ftx"
FTX_NVRTC=$room/none.so refused 1 'NVRTC' compile tests/models/tiny-llama -t sm_90a -o "$room/x.ftx" # no mistake of the spec
test ! -e "$room/x.ftx"

# A seed of 64 bits, signed or not.
"$FTXC" run "$tiny" --ids 5 --temperature 1 -n 8 -q -d cpu --seed -1 >"$room/minus"
"$FTXC" run "$tiny" --ids 5 --temperature 1 -n 8 -q -d cpu --seed 18446744073709551615 | cmp - "$room/minus"

# No room for the file, nobody to read what is written, nothing to read from: one line, and no half file.
(
    ulimit -f 100
    refused 1 'x.ftx: File too large' compile tests/models/tiny-llama -o "$room/x.ftx"
)
test -z "$(ls "$room" | grep '^x.ftx')"
code=0
yes 5 | timeout 60 "$FTXC" run "$tiny" --batch -n 4 -q -d cpu >/dev/full 2>"$room/err" || code=$?
test $code = 1
code=0
"$FTXC" run "$tiny" -q -d cpu <&- 2>"$room/err" >"$room/out" || code=$?
test $code = 1 && grep -q 'standard input: Bad file descriptor' "$room/err"

# Bytes of value 0 and invalid UTF-8 in a prompt are part of it.
"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx"
printf 'Once\0upon\377a' >"$room/bytes"
tokens=$("$FTXC" tokenize "$room/fable.ftx" -f "$room/bytes" | tr , '\n' | wc -l)
test "$tokens" -gt 4
"$FTXC" run "$room/fable.ftx" -f "$room/bytes" -d cpu -n 2 -q --json >"$room/out"
grep -q "\"prompt_tokens\":$tokens," "$room/out"

# More than twice as many threads as CPUs: slow, not wrong, and said.
"$FTXC" run "$tiny" --ids 5,17 --greedy -n 3 -q -d cpu --threads 1000 >"$room/many" 2>"$room/err"
grep -q ': note: 1000 threads on [0-9]* CPUs: ' "$room/err"
cpus=$(sed -n 's/.* on \([0-9]*\) CPUs.*/\1/p' "$room/err")
"$FTXC" run "$tiny" --ids 5 -n 1 -q -d cpu --threads $((2 * cpus)) >"$room/out" 2>"$room/err"
test ! -s "$room/err"
"$FTXC" run "$tiny" --ids 5,17 --greedy -n 3 -q -d cpu | cmp - "$room/many"

# The same stop text twice is that stop text; it ends the answer, which alone goes to standard output.
ask="run $room/fable.ftx -d cpu --greedy -n 40"
# shellcheck disable=SC2086
{
    "$FTXC" $ask "Once upon a time" --stop . --stop . >"$room/twice" 2>"$room/err"
    "$FTXC" $ask "Once upon a time" --stop . -q >"$room/once"
    "$FTXC" $ask "Once upon a time" -q >"$room/whole"
}
cmp "$room/once" "$room/twice"
grep -q 'tokens/s' "$room/err"
head -c "$(($(stat -c %s "$room/once") - 1))" "$room/once" | cmp -n "$(($(stat -c %s "$room/once") - 1))" - "$room/whole"

# No memory is exit code 3, as `ftxc help` says.
"$FTXC" help | grep -q '^  3  *no memory'
case ${FTX_SANITIZE:-OFF} in
ON | on | 1) ;; # sanitizers reserve terabytes
*)
    (
        ulimit -v 60000
        refused 3 'no memory for the engine' run "$room/fable.ftx" x -d cpu
        least=20000 # or what the program itself needs: one with counters of lines is larger
        until (ulimit -v $least && "$FTXC" --version >/dev/null 2>&1); do
            least=$((least + 2000))
        done
        ulimit -v $least
        refused 3 'cannot map' run "$room/fable.ftx" x -d cpu
    )
    ;;
esac

# Ctrl-C while texts are written: with --json one object for each prompt that was read, with the text so far.
yes "Once upon a time" | head -n 40 >"$room/prompts"
code=0
FTX_TRACE=1 "$FTXC" run "$room/fable.ftx" -d cpu --batch --json --ignore-eos --greedy -n 1000 -q <"$room/prompts" \
    >"$room/out" 2>"$room/err" &
until [ "$(grep -c 'launch embed' "$room/err")" -gt 3 ]; do sleep 0.05; done
kill -INT $!
wait $! || code=$?
test $code = 130
test "$(wc -l <"$room/out")" = 40
test "$(grep -c '"finish":"cancel"' "$room/out")" -gt 0
head -n 1 "$room/out" | grep -q '"text":"[^"]'

# Ctrl-C (or a terminal that closes) during compile: exit code 130, the folder as it was. The moment varies with the pause.
old=$(cksum <"$room/fable.ftx") interrupted=0
for pause in 0.01 0.02 0.03 0.05 0.08 0.1 0.15 0.2 0.3 0.02 0.03 0.05; do
    code=0
    [ $pause = 0.03 ] && signal=HUP || signal=INT
    "$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx" &
    sleep $pause
    kill -$signal $! 2>/dev/null || true
    wait $! || code=$?
    case $code in
    130) interrupted=$((interrupted + 1)) ;;
    129) test $signal = HUP ;; # before its first line
    0) ;;
    *) echo "$signal after $pause s: exit code $code" >&2; exit 1 ;;
    esac
    if ls "$room" | grep -q part; then
        echo "$signal after $pause s left $(ls "$room" | grep part)" >&2
        exit 1
    fi
    test "$(cksum <"$room/fable.ftx")" = "$old"
done
echo "interrupted $interrupted of 12 times"
test $interrupted -gt 0
