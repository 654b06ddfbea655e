#!/bin/sh
# processes.sh - ranks that are processes, over TCP on this machine: the tokens of one process, bit for bit; a rank that is late, hangs, dies,
# has another artifact or does not come.
set -eu
room=$FTX_BUILD/processes
rm -rf "$room"
mkdir -p "$room"
export FTX_PEER_TIMEOUT=20
pids=

fail() {
    echo "$*" >&2
    exit 1
}
finish() { # what this test has started ends with it
    for pid in $pids; do
        kill -9 "$pid" 2>/dev/null || :
    done
}
trap finish EXIT
begin() { # begin RANK RANKS FILE ARGUMENT...: in the background; $pid is its number
    rank=$1 ranks=$2 file=$3
    shift 3
    : >"$room/out.$rank"
    FTX_RANK=$rank FTX_RANKS=$ranks "$FTXC" run "$room/$file.ftx" -d cpu -q --threads 1 "$@" >"$room/out.$rank" 2>"$room/err.$rank" </dev/null &
    pid=$!
    pids="$pids $pid"
}
ends() { # ends PID CODE RANK WORDS: with this exit code and these words
    code=0
    wait "$1" || code=$?
    [ $code = "$2" ] || fail "rank $3: exit code $code, not $2: $(cat "$room/err.$3")"
    [ -z "$4" ] || grep -q -F -e "$4" "$room/err.$3" || fail "rank $3: no \"$4\": $(cat "$room/err.$3")"
}
meet() { # a new place to meet at
    FTX_MASTER=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export FTX_MASTER
}
has_begun() { # rank 0 has written a token
    n=0
    until [ -s "$room/out.0" ]; do
        n=$((n + 1))
        [ $n -lt 600 ] || fail "no token: $(cat "$room"/err.*)"
        sleep 0.05
    done
}
answer() { # of --json: ids and log-probabilities
    grep -o '"ids":.*"logprobs":[^]]*'
}
same() {
    cmp "$room/$1" "$room/$2" || fail "$1: $(head -c 300 "$room/$1"), $2: $(head -c 300 "$room/$2")"
}

"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/one.ftx"
"$FTXC" compile specs/fable.lua -t cpu -q -D parallel=2 -o "$room/two.ftx"
"$FTXC" compile specs/fable.lua -t cpu -q -D parallel=2 -D limits.sequences=8 -o "$room/other.ftx"
"$FTXC" compile tests/models/tiny-llama -t cpu -q -o "$room/tiny.ftx"
"$FTXC" compile tests/models/tiny-llama -t cpu -q -D parallel=4 -o "$room/four.ftx"
story="--greedy --ignore-eos --max-new"
# shellcheck disable=SC2086
{
    "$FTXC" run "$room/one.ftx" -d cpu -q $story 60 "Once upon a time" >"$room/want"
    "$FTXC" run "$room/four.ftx" -d cpu -q --json $story 20 --ids 5,9,100,31,7 | answer >"$room/want4"

    # Two processes, and one that is late by a second.
    meet
    begin 1 2 two x
    one=$pid
    begin 0 2 two $story 60 "Once upon a time"
    zero=$pid
    has_begun
    kill -STOP "$one"
    sleep 1
    kill -CONT "$one"
    ends "$zero" 0 0 ""
    ends "$one" 0 1 ""
    same out.0 want
    [ ! -s "$room/out.1" ] || fail "rank 1 writes: $(cat "$room/out.1")"

    # Four, each by the variables of another launcher; the first comes last.
    meet
    begin 3 4 four x
    three=$pid
    (unset FTX_RANK FTX_RANKS; SLURM_PROCID=2 SLURM_NTASKS=4 exec "$FTXC" run "$room/four.ftx" -d cpu -q x 2>"$room/err.2") &
    two=$!
    (unset FTX_RANK FTX_RANKS; OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 exec "$FTXC" run "$room/four.ftx" -d cpu -q x 2>"$room/err.1") &
    one=$!
    pids="$pids $two $one"
    PMI_RANK=0 PMI_SIZE=4 "$FTXC" run "$room/four.ftx" -d cpu -q --json $story 20 --ids 5,9,100,31,7 | answer >"$room/got4"
    same got4 want4
    for rank in 1 2 3; do
        case $rank in 1) pid=$one ;; 2) pid=$two ;; *) pid=$three ;; esac
        ends "$pid" 0 "$rank" ""
    done

    # Four over IPv6.
    if grep -q "^0*1 " /proc/net/if_inet6 2>/dev/null; then
        meet
        FTX_MASTER=::1:${FTX_MASTER##*:}
        for rank in 3 2 1; do
            begin $rank 4 four x
        done
        begin 0 4 four --json $story 20 --ids 5,9,100,31,7
        ends "$pid" 0 0 ""
        answer <"$room/out.0" >"$room/got6"
        same got6 want4
        wait
    fi

    # A rank that dies.
    meet
    begin 1 2 two x
    one=$pid
    begin 0 2 two $story 900 "Once upon a time"
    zero=$pid
    has_begun
    kill -9 "$one"
    ends "$zero" 1 0 "the connection to rank 1 has ended"
    wait "$one" || :

    # Rank 0 dies.
    meet
    begin 1 2 two x
    one=$pid
    begin 0 2 two $story 900 "Once upon a time"
    zero=$pid
    has_begun
    kill -9 "$zero"
    ends "$one" 1 1 "the connection to rank 0 has ended"
    wait "$zero" || :

    # One that hangs.
    export FTX_PEER_TIMEOUT=2
    meet
    begin 1 2 two x
    one=$pid
    begin 0 2 two $story 900 "Once upon a time"
    zero=$pid
    has_begun
    kill -STOP "$one"
    ends "$zero" 1 0 "within 2 s"
    grep -q "rank 1 did not come\|rank 1 has not answered" "$room/err.0" || fail "$(cat "$room/err.0")"
    kill -CONT "$one"
    ends "$one" 1 1 "the connection to rank 0 has ended"

    export FTX_PEER_TIMEOUT=1
    # Another artifact; another number of ranks; none; two that are one rank.
    meet
    begin 1 2 other x
    one=$pid
    begin 0 2 two x
    ends "$pid" 2 0 "rank 1 has another artifact: its checksum is"
    ends "$one" 2 1 "rank 1 has another artifact: its checksum is"
    meet
    begin 1 3 two x
    ends "$pid" 2 1 "there are 3 processes (FTX_RANKS), and the artifact is for 2 ranks"
    begin 0 4 two x
    ends "$pid" 2 0 "there are 4 processes (FTX_RANKS), and the artifact is for 2 ranks"
    begin 1 2 tiny x
    ends "$pid" 2 1 "and the artifact is for 1 rank"
    begin 0 2 two x
    ends "$pid" 1 0 "1 of 2 ranks have come to $FTX_MASTER within 6 s"
    meet
    begin 1 2 two x
    ends "$pid" 1 1 "cannot connect to"
    meet
    begin 1 4 four x
    one=$pid
    sleep 0.3
    cp "$room/err.1" "$room/err.first"
    begin 1 4 four x
    two=$pid
    begin 0 4 four x
    ends "$pid" 2 0 "two processes are rank 1"
    wait "$one" || :
    wait "$two" || :

    # What the variables say.
    for wrong in "FTX_RANK=2 FTX_RANKS=2: rank 2 of 2" "FTX_RANK=x FTX_RANKS=2: FTX_RANK is \"x\"" "FTX_RANKS=2: but none of FTX_RANK," \
        "FTX_RANK=1 FTX_RANKS=2 FTX_MASTER=here: expected host:port" "FTX_RANK=0 FTX_RANKS=2 FTX_MASTER=300.1.1.1:5: cannot find" ; do
        code=0
        env ${wrong%%: *} "$FTXC" run "$room/two.ftx" -d cpu -q x >/dev/null 2>"$room/err" </dev/null || code=$?
        [ $code != 0 ] || fail "$wrong: it runs"
        grep -q -F -e "${wrong#*: }" "$room/err" || fail "$wrong: $(cat "$room/err")"
    done
}
