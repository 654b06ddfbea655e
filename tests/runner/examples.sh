#!/bin/sh
# examples.sh - every command that a help text or the README shows, as it stands there: each must do its work.
set -eu
tree=$(pwd)
room=$FTX_BUILD/examples
rm -rf "$room"
mkdir -p "$room/bin" "$room/models" "$room/adapters/pirate"
ln -s "$FTXC" "$room/bin/ftxc"
ln -s "$tree/specs" "$room/specs"
ln -s "$tree/tests/models/tiny-llama" "$room/models/Llama-3.2-1B" # in ~
header='{"base_model.model.model.norm.weight":{"dtype":"F32","shape":[96],"data_offsets":[0,384]}}' # 90 bytes
{ printf '\132\0\0\0\0\0\0\0%s' "$header" && head -c 384 /dev/zero; } >"$room/adapters/pirate/adapter_model.safetensors"
echo '{"peft_type": "LORA"}' >"$room/adapters/pirate/adapter_config.json"
PATH=$room/bin:$PATH
"$FTXC" compile tests/models/tiny-bert -D tokenizer=tests/tokenizer/small/wordpiece.json -t cpu -q -o "$room/minilm.ftx"
"$FTXC" compile specs/fable.lua -D precision.weights=int8 -t cpu -q -o "$room/fable8.ftx"
cp specs/fable/tokenizer.json "$room"
echo '{"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}' >"$room/tokenizer_config.json"
"$FTXC" compile specs/fable.lua -D "tokenizer=$room/tokenizer.json" -t cpu -q -o "$room/qwen.ftx"
cd "$room"
printf 'Once upon a time\nThe king\n' >prompts.txt
printf 'No one knows his name.\nI like it.\n' >sentences.txt
printf 'Once upon a time there was a king who had a daughter.\n' >tale.txt
i=0
while [ $i -lt 300 ]; do
    echo "The king had a daughter, and she was very fair."
    i=$((i + 1))
done >chapter.txt # more than fits

{
    sed -n 's/^\$ ftxc/ftxc/p' "$tree/README.md"
    for command in '' $(ftxc help | sed -n '/^First steps/q; s/^  ftxc \([a-z]*\) .*/\1/p'); do
        ftxc help $command | sed -n '/^Examples:$/,$ s/^  ftxc/ftxc/p; /^First steps:$/,$ s/^  ftxc/ftxc/p'
    done
} >commands
test "$(wc -l <commands)" -ge 30
for command in $(ftxc help | sed -n '/^First steps/q; s/^  ftxc \([a-z]*\) .*/\1/p'); do
    case $command in
    ops | help) ;; # they take no file
    *) test "$(ftxc help $command | sed -n '/^Examples:$/,/^$/p' | grep -c "ftxc $command")" -ge 2 || {
        echo "ftxc help $command has fewer than two examples" >&2
        exit 1
    } ;;
    esac
done
while IFS= read -r line; do
    case $line in # kernels of GPUs need NVRTC, which not everybody has; asking why needs none
        *compile*' -t sm_90a'*) line=$(echo "$line" | sed 's/ -t sm_90a/ -t cpu/') ;;
        'ftxc load'*) # of a server that is there
            line=": >served; ftxc serve fable.ftx --port 0 -q 2>>served & p=\$!; until grep -q ': ready' served; do sleep 0.1; done
                ${line%%#*} --port \$(sed -n 's/.*listening on .*:\([0-9]*\)\$/\1/p' served); s=\$?; kill \$p; wait \$p; exit \$s"
            ;;
        'ftxc chat'*'<'*) ;;
        'ftxc chat'*) line="echo Hello | ${line%%#*}" ;;
        'ftxc tune'*) line="! ${line%%#*}" ;; # it wants a GPU, and says so
        'ftxc serve'*) line="timeout -s TERM 4 ${line%%#*} --port 0; grep -q '^ftxc: ready' err" ;; # until it is stopped
    esac
    HOME=$room FTX_CUDA=0 sh -c "$line" >out 2>err </dev/null || {
        echo "$line: exit code $?; it said:" >&2
        cat err >&2
        exit 1
    }
    test -s out || test -s err || {
        echo "$line: it said nothing" >&2
        exit 1
    }
done <commands
echo "$(wc -l <commands) examples"
