#!/bin/sh
# requests.sh - `ftxc run --requests`: lines of OpenAI's batches, with ids and settings of their own.
set -eu
room=$FTX_BUILD/requests
rm -rf "$room"
mkdir -p "$room"

fail() {
    echo "$*" >&2
    exit 1
}
same() { # same FILE: its lines are those of standard input
    cat >"$room/want"
    cmp "$1" "$room/want" || fail "$(head -c 3000 "$1")"
}
refused() { # refused WORDS ARGUMENT...: exit code 2 and those words
    words=$1 code=0
    shift
    "$FTXC" "$@" >"$room/out" 2>"$room/err" </dev/null || code=$?
    [ $code = 2 ] || fail "ftxc $*: exit code $code"
    grep -q -F -e "$words" "$room/err" || fail "no \"$words\": $(cat "$room/err")"
}
text_of() { # text_of PROMPT ARGUMENT...: what is written alone, as JSON
    prompt=$1
    shift
    "$FTXC" run "$room/fable.ftx" -d cpu -q --json "$@" "$prompt" | grep -o '"text":"[^"]*"'
}

"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx"
fable="run $room/fable.ftx -d cpu -q"
once='"prompt":"Once upon a time"'
cat >"$room/in" <<END
{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"m",$once,"max_tokens":7,"temperature":0}}
{"custom_id":"b","body":{$once,"max_completion_tokens":9,"temperature":1.0,"top_k":20,"seed":5,"n":1,"user":null}}
{"body":{"prompt":[5,17,9],"max_tokens":3,"temperature":0,"ignore_eos":true}}
{"custom_id":"stop","body":{$once,"temperature":0,"max_tokens":40,"stop":["zzzz"," a"]}}
{"custom_id":"end","body":{$once,"temperature":0,"max_tokens":40,"stop_token_ids":[5,300],"messages":null}}
END
# shellcheck disable=SC2086
{
    "$FTXC" $fable --requests <"$room/in" >"$room/out"
    test "$(wc -l <"$room/out")" = 5
    test "$(grep -c '"object":"text_completion"' "$room/out")" = 5
    grep -o '"custom_id":[^,]*' "$room/out" >"$room/ids"
    same "$room/ids" <<END
"custom_id":"a"
"custom_id":"b"
"custom_id":null
"custom_id":"stop"
"custom_id":"end"
END
    grep -o '"text":"[^"]*"' "$room/out" >"$room/texts"
    sed -n 1,2p "$room/texts" >"$room/two"
    {
        text_of "Once upon a time" -n 7 --greedy
        text_of "Once upon a time" -n 9 --temperature 1 --top-k 20 --seed 5
    } | same "$room/two"
    sed -n 1p "$room/out" | grep -q '"finish_reason":"length".*"completion_tokens":7' || fail "$(sed -n 1p "$room/out")"
    sed -n 3p "$room/out" | grep -q '"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}' || fail "usage"
    sed -n 4p "$room/out" | grep -q '"finish_reason":"stop"' || fail "$(sed -n 4p "$room/out")"
    sed -n 4p "$room/texts" | grep -q ' a' && fail "a text goes on behind its stop string"
    grep -q '"id":"batch_req_5"' "$room/out" || fail "ids of lines"

    # What is wrong ends its line alone.
    code=0
    "$FTXC" $fable --requests >"$room/out" 2>"$room/err" <<END || code=$?
{"custom_id":"a","body":{$once,"max_tokens":2}}
no json
[5]
{"custom_id":"b"}
{"custom_id":"c","body":{"max_tokens":2}}
{"custom_id":"d","body":{$once,"messages":[],"max_tokens":2}}
{"custom_id":"e","body":{$once,"max_tokens":"2"}}
{"custom_id":"f","body":{$once,"max_tokens":3000000000}}
{"custom_id":"g","body":{$once,"temperature":-1}}
{"custom_id":"h","body":{$once,"top_p":"x"}}
{"custom_id":"i","body":{$once,"n":2}}
{"custom_id":"j","body":{$once,"logit_bias":{}}}
{"custom_id":"k","body":{"prompt":""}}
{"custom_id":"l","body":{"prompt":[]}}
{"custom_id":"m","body":{"prompt":["x"]}}
{"custom_id":"n","body":{$once,"stop":[1]}}
{"custom_id":"o","body":{$once,"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}}
{"custom_id":"p","body":{$once,"stop_token_ids":5}}
{"custom_id":"q","body":{$once,"seed":"x"}}
{"custom_id":"r","body":{$once,"ignore_eos":1}}
{"custom_id":"s","body":{$once,"early_stopping":"x"}}
{"custom_id":"t","body":{"messages":[{"role":"user","content":"x"}]}}
{"custom_id":"z","body":{$once,"max_tokens":2,"early_stopping":"never"}}
END
    [ $code = 2 ] || fail "exit code $code"
    test "$(wc -l <"$room/out")" = 23
    test "$(grep -c '"status_code":200' "$room/out")" = 2
    grep -o '"message":"[^"]*' "$room/out" | cut -c12-60 >"$room/why"
    same "$room/why" <<\END
expected a JSON object: '[' or '{' expected near 
expected a JSON object
body: expected a JSON object
body: expected either prompt or messages
body: expected either prompt or messages
max_tokens: expected a whole number of 32 bits
max_tokens: expected a whole number of 32 bits
temperature: expected 0 to 100, found -1
top_p: expected a number
n: a line has one answer
logit_bias: no such field, or not in a batch
prompt: it is empty
prompt: expected a text or a list of token ids
prompt: expected a whole number of 32 bits
stop: expected a text or a list of texts
stop: expected at most 16 texts, found 17
stop_token_ids: expected a list of at most 64 tok
seed: expected a whole number
ignore_eos: expected true or false
early_stopping: expected true, false or \
messages: the artifact has no chat template: put 
END
}

# Ctrl-C: what has not ended is answered as cancelled, also what has not begun.
{
    echo "{\"custom_id\":\"0\",\"body\":{$once,\"max_tokens\":1}}"
    for i in $(seq 99); do
        echo "{\"custom_id\":\"$i\",\"body\":{$once,\"max_tokens\":900,\"ignore_eos\":true}}"
    done
} >"$room/many"
: >"$room/out"
# shellcheck disable=SC2086
"$FTXC" $fable --requests <"$room/many" >"$room/out" 2>"$room/err" &
until [ -s "$room/out" ]; do sleep 0.02; done
kill -TERM $!
code=0
wait $! || code=$?
[ $code = 130 ] || fail "exit code $code: $(cat "$room/err")"
test "$(wc -l <"$room/out")" = 100 || fail "$(wc -l <"$room/out") answers to 100 lines"
test "$(grep -c '"code":"batch_cancelled"' "$room/out")" -gt 50 || fail "$(head -c 2000 "$room/out")"
sed -n 100p "$room/out" | grep -q '"custom_id":"99"' || fail "$(tail -n 1 "$room/out")"

# A line that comes in two parts, and short ones right behind it.
# shellcheck disable=SC2086
{
    printf '{"custom_id":"the longest of them","body":{"max_tokens":1,"prompt":"Once upon a time there'
    sleep 0.5
    printf ' was"}}\n{"body":{"prompt":[5],"max_tokens":1}}\n{"body":{"prompt":[6],"max_tokens":1}}\n'
} | "$FTXC" $fable --requests >"$room/out"
test "$(grep -c '"status_code":200' "$room/out")" = 3 || fail "$(cat "$room/out")"

# A least number of new tokens that is the model's own gives way to the most that is asked for.
"$FTXC" compile specs/fable.lua -D decode.min_new=6 -t cpu -q -o "$room/least.ftx"
least="run $room/least.ftx -d cpu -q"
# shellcheck disable=SC2086
{
    "$FTXC" $least --greedy -n 2 --json Once >"$room/out"
    grep -q '"finish":"length"' "$room/out"
    echo '{"body":{"prompt":"Once","max_tokens":2,"temperature":0}}' | "$FTXC" $least --requests >"$room/out"
    grep -q '"completion_tokens":2' "$room/out" || fail "$(cat "$room/out")"
    refused 'min_new: expected 0 to 2, found 3' $least -n 2 --min-new 3 Once
    echo '{"body":{"prompt":"Once","max_tokens":2,"min_new":3}}' | "$FTXC" $least --requests >"$room/out" || true
    grep -q 'min_new: expected 0 to 2, found 3' "$room/out" || fail "$(cat "$room/out")"
}

# A conversation, by the chat template.
cp specs/fable/tokenizer.json "$room/"
echo '{"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}' >"$room/tokenizer_config.json"
cat >"$room/chat_template.jinja" <<'JINJA'
{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
JINJA
"$FTXC" compile specs/fable.lua -D "tokenizer=$room/tokenizer.json" -t cpu -q -o "$room/x.ftx"
echo '[{"role": "user", "content": "Tell a story."}]' >"$room/m.json"
"$FTXC" run "$room/x.ftx" -d cpu -q --messages "$room/m.json" -g -n 12 --json | grep -o '"text":"[^"]*"' | sed 's/"text"://' >"$room/want-chat"
echo '{"custom_id":"c","body":{"messages":[{"role":"user","content":"Tell a story."}],"max_tokens":12,"temperature":0}}' |
    "$FTXC" run "$room/x.ftx" -d cpu -q --requests >"$room/out"
grep -o '"message":{"role":"assistant","content":"[^"]*"' "$room/out" | sed 's/.*"content"://' >"$room/got-chat"
cmp "$room/got-chat" "$room/want-chat" || fail "$(cat "$room/out")"
grep -q '"object":"chat.completion"' "$room/out" || fail "$(cat "$room/out")"

"$FTXC" compile tests/models/tiny-bert -D tokenizer=tests/tokenizer/small/wordpiece.json -t cpu -q -o "$room/bert.ftx"
refused '--requests: an encoder answers none' run "$room/bert.ftx" -d cpu --requests
refused '--requests: its answers are JSON already' run "$room/fable.ftx" -d cpu --requests --json
refused '--requests: a line has one answer' run "$room/fable.ftx" -d cpu --requests --samples 2
refused "--ids takes the place of the prompt, and --batch is given too" run "$room/fable.ftx" -d cpu --requests --ids 5
echo "requests: as they should be"
