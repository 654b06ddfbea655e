#!/bin/sh
# messages.sh - `ftxc run --messages`: a conversation by the artifact's chat template, and what is refused.
set -eu
room=$FTX_BUILD/messages
rm -rf "$room"
mkdir -p "$room/additional_chat_templates"
cp specs/fable/tokenizer.json "$room/"
cat >"$room/tokenizer_config.json" <<'JSON'
{"bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|end_of_text|>", "chat_template": "not this one"}
JSON
cat >"$room/chat_template.jinja" <<'JINJA'
{{ bos_token }}
{%- for m in messages %}
    {%- if m.role not in ('user', 'assistant') %}
        {{- raise_exception('no turn for ' + m.role) }}
    {%- endif %}
    {{- m.role + ': ' + m.content + '\n' }}
{%- endfor %}
{{- 'assistant' if add_generation_prompt }}{{ mood }}:
JINJA
echo '{{ tools[0].name }}' >"$room/additional_chat_templates/tool_use.jinja"
"$FTXC" compile specs/fable.lua -D "tokenizer=$room/tokenizer.json" -t cpu -q -o "$room/x.ftx"
echo '[{"role": "user", "content": "Tell a story. <|end_of_text|>"}]' >"$room/m.json"
echo '[{"name": "story"}]' >"$room/t.json"

same() { # same PROMPT ARGUMENT...: the conversation gives the same text as the prompt, whose BOS token the tokenizer adds
    prompt=$1
    shift
    "$FTXC" run "$room/x.ftx" "$@" -g -n 12 -q >"$room/a"
    "$FTXC" run "$room/x.ftx" "$prompt" --literal -g -n 12 -q >"$room/b"
    cmp "$room/a" "$room/b" && [ -s "$room/a" ]
}
refused() { # refused WORDS ARGUMENT...
    words=$1 found=0
    shift
    "$FTXC" run "$room/x.ftx" "$@" >"$room/out" 2>"$room/err" </dev/null || found=$?
    if [ $found != 2 ] || ! grep -q -F -e "$words" "$room/err"; then
        echo "$*: exit code $found, wanted 2 and \"$words\"; it said: $(cat "$room/err")" >&2
        exit 1
    fi
}
same 'user: Tell a story. <|end_of_text|>
assistant:' --messages "$room/m.json"
same 'user: Tell a story. <|end_of_text|>
assistant, gladly:' --messages - --variables '{"mood": ", gladly"}' <"$room/m.json"
"$FTXC" run "$room/x.ftx" --messages "$room/m.json" --tools "$room/t.json" -g -n 12 -q >"$room/a"
"$FTXC" run "$room/x.ftx" story --no-bos -g -n 12 -q >"$room/b"
cmp "$room/a" "$room/b"
echo '[{"role": "critic", "content": "no"}]' >"$room/critic.json"
refused 'chat template: line 4: no turn for critic' --messages "$room/critic.json"
refused 'no chat template "other"' --messages "$room/m.json" --template other
refused 'messages: no value at byte 0' --messages /dev/null
refused 'variables: a JSON object is expected' --messages "$room/m.json" --variables 1
refused '--tools: only with --messages' x --tools "$room/t.json"
refused '--ids are given too' --messages "$room/m.json" --ids 5
refused 'and a text is given too' x --messages "$room/m.json"
refused '--messages are given' --messages "$room/m.json" --literal
echo '{% for x in y %}' >"$room/chat_template.jinja"
"$FTXC" compile specs/fable.lua -D "tokenizer=$room/tokenizer.json" -t cpu -o "$room/y.ftx" 2>&1 |
    grep -q 'chat_template.jinja:1: chat template: a block is not closed, at its end; the artifact has no chat template'
