#!/bin/sh
# calibrate.sh - ftxc compile --calibrate: the same texts give the same bytes on any number of threads; texts, specs and models that
# are refused; nothing is left behind.
set -eu
room=$FTX_BUILD/calibrate
rm -rf "$room"
mkdir -p "$room"
int4="-t cpu -q -D precision.weights=int4"

says() { # says CODE WORDS OPTIONS...: ftxc compile ends with that code, and those words are in what it prints
    code=$1 words=$2 found=0
    shift 2
    "$FTXC" compile "$@" -o "$room/x.ftx" >"$room/out" 2>&1 </dev/null || found=$?
    if [ $found != "$code" ] || ! grep -q -e "$words" "$room/out"; then
        echo "ftxc compile $*: exit code $found, wanted $code and \"$words\"; it said:" >&2
        cat "$room/out" >&2
        exit 1
    fi
}

# Several pieces, the last one of a few tokens.
for i in 1 2 3 4 5 6 7 8 9; do
    printf 'Once upon a time there was a king who had %d daughters, and the youngest was so fair that the sun wondered.\n' $i
    printf 'The wolf went down to the river, drank, and said: I have %d teeth, and none of them is for thee.\n\n' $i
done >"$room/tales"
mkdir "$room/elsewhere"
cp "$room/tales" "$room/elsewhere/tales"
one=$(taskset -pc $$ | sed 's/.*[^0-9]\([0-9]*\)$/\1/')
# shellcheck disable=SC2086
{
    "$FTXC" compile specs/fable.lua $int4 -o "$room/plain.ftx"
    "$FTXC" compile specs/fable.lua $int4 --calibrate "$room/tales" -o "$room/a.ftx"
    taskset -c "$one" "$FTXC" compile specs/fable.lua $int4 --calibrate "$room/elsewhere/tales" -o "$room/b.ftx"
    "$FTXC" compile specs/fable.lua $int4 --calibrate - -o "$room/c.ftx" <"$room/tales"
}
cmp "$room/a.ftx" "$room/b.ftx"
score() { # score ARTIFACT: log-probabilities of a text
    "$FTXC" score "$1" --json -d cpu <"$room/tales"
}
score "$room/a.ftx" >"$room/wanted"
score "$room/c.ftx" | cmp - "$room/wanted"
score "$room/plain.ftx" >"$room/out"
! cmp -s "$room/out" "$room/wanted" || exit 1
"$FTXC" show "$room/a.ftx" | grep -q -e '-D precision.weights=int4 --calibrate tales'

# A program, from a smaller text.
head -n 2 "$room/tales" >"$room/tale"
# shellcheck disable=SC2086
"$FTXC" compile specs/fable.lua $int4 --calibrate "$room/tale" --exe -o "$room/fable"
"$room/fable" -q -n 3 'Once upon a time' >/dev/null

# Tokens that see all of a piece: it is not longer than a step.
cp -r specs/fable "$room/fable-weights"
sed -e 's/require "llama"/require "decoder"/' -e 's|"fable/|"fable-weights/|' -e 's/graph = llama {/&\
    prefix_tail = 1, norm = "rms", activation = "silu",\
    names = {\
      prefix = "model.", embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm", head = "lm_head",\
      attention_norm = "input_layernorm", ffn_norm = "post_attention_layernorm", q = "self_attn.q_proj", k = "self_attn.k_proj",\
      v = "self_attn.v_proj", out = "self_attn.o_proj", gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj",\
    },/' specs/fable.lua >"$room/whole.lua"
# shellcheck disable=SC2086
"$FTXC" compile "$room/whole.lua" $int4 -D limits.tokens=24 --calibrate "$room/tale" -o "$room/x.ftx"

# Other kinds of models take lines.
printf 'The king went home.\n\nI will not go to the sea today.' >"$room/lines"
# shellcheck disable=SC2086
{
    "$FTXC" compile specs/verse.lua $int4 -o "$room/x.ftx"
    "$FTXC" compile specs/verse.lua $int4 --calibrate "$room/lines" -o "$room/verse.ftx"
    echo 'The king went home.' | "$FTXC" run "$room/verse.ftx" -q -d cpu -n 20 | grep -q König

    : >"$room/empty"
    says 2 "calibrate: $room/empty has no text" specs/fable.lua $int4 --calibrate "$room/empty"
    printf '\n\n' >"$room/empty"
    says 2 "calibrate: $room/empty has no text" specs/verse.lua $int4 --calibrate "$room/empty"
    says 1 'none: No such file' specs/fable.lua $int4 --calibrate "$room/none"
    says 2 'none does: add -D precision.weights=int4' specs/fable.lua -t cpu -q --calibrate "$room/tales"
    says 2 'none does: add -D precision.weights=int4' specs/fable.lua -t cpu -q -D precision.weights=int8 --calibrate "$room/tales"
    says 2 'lie on several devices' specs/fable.lua $int4 -D parallel=2 --calibrate "$room/tales"
    says 2 'no-weights stores no weights' specs/fable.lua $int4 --no-weights --calibrate "$room/tales"
    says 2 'llama-3.2-1b.lua: has no weights' specs/llama-3.2-1b.lua $int4 --calibrate "$room/tales"
    says 2 'calibrate: the model has no tokenizer' tests/models/tiny-llama $int4 -D precision.group=32 --calibrate "$room/tales"
}

# A gain that makes inputs infinite.
python3 - "$room/bad.safetensors" <<'END'
import json, struct, sys
data = bytearray(open("specs/fable/model.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
tensor = json.loads(data[8:8 + size])["model.layers.0.post_attention_layernorm.weight"]
at = 8 + size + tensor["data_offsets"][0]
data[at:at + 2] = struct.pack("<f", 3e38)[2:]
open(sys.argv[1], "wb").write(data)
END
# shellcheck disable=SC2086
says 2 'inputs of "model.layers.0.*{gate,up}_proj.weight" are not finite' specs/fable.lua $int4 -D weights="$room/bad.safetensors" --calibrate "$room/tales"
test -z "$(ls "$room" | grep plain-)"
