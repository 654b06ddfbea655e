#!/bin/sh
# check.sh - the model tests on this machine's GPU, then the benchmarks of docs/performance.md.
#
#   tests/gpu/check.sh BUILD [PART...]     BUILD: the folder with ftxc and tests/
#
# Parts: fp32 bf16 fp16 families odd many beam samples ptx encode device trace memory swap offload bench texts sequences sanitize, and
# for two GPUs ranks, processes (with NCCL), processes_times (default: fp32 bf16 fp16 bench). The reference files of the
# bigger models are looked for in FTX_SHARED (default: shared beside the checkout). Rest goes to FTX_OUT: bench, texts
# and sequences write results.jsonl there, which docs/results can keep as it is. FTX_GPU_RESULTS names a file such as
# docs/results/gpu.json, into which the kernel texts of every part that passes are put; FTX_COMMIT is then the commit, where
# git cannot say it.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- fp32 bf16 fp16 bench
out=${FTX_OUT:-$build/gpu}
mkdir -p "$out"
export FTXC="$build/ftxc" FTX_BUILD="$out" FTX_SHARED="${FTX_SHARED:-../shared}"
export FTX_TEST_DEVICE=cuda FTX_TEST_TARGET="${FTX_TEST_TARGET:-sm_90a}"
all_failed=0
rm -f "$out/results.jsonl"
results=${FTX_GPU_RESULTS:-}
if [ -n "$results" ]; then
    commit=${FTX_COMMIT:-$(git rev-parse HEAD)} || { echo "FTX_COMMIT must say which commit this is"; exit 2; }
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0) || exit 2
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0) || exit 2
    nvrtc=$("$FTXC" doctor | sed -n 's/^ *ok *nvrtc *\([0-9.]*\).*/\1/p')
    export FTX_TEXTS="$out/texts"
fi

models() { # models TYPE MARGIN TOLERANCE: tests of the trained and the tiny models
    export FTX_TEST_DEFINE="-D precision.weights=$1" FTX_TEST_MARGIN=$2 FTX_TEST_TOLERANCE=$3 FTX_TEST_LOSS_TOLERANCE=$4
    for test in golden tiny; do
        echo "== $1 $test"
        "$build/tests/models/test_$test" >"$out/$1-$test.log" 2>&1 || failed=1
        grep -E 'largest|parts at|FAILED|ERROR|error|PASSED|skipped' "$out/$1-$test.log"
    done
}
one() { # one TYPE TOLERANCE TEST: a test of models in one type
    mkdir -p "$out/$1"
    FTX_BUILD="$out/$1" FTX_TEST_DEFINE="-D precision.weights=$1" FTX_TEST_TOLERANCE=$2 \
        "$build/tests/models/test_$3" >"$out/$1-$3.log" 2>&1 || touch "$out/failed"
    echo "== $1 $3
$(grep -E 'part|differs|away|FAILED|ERROR|error|PASSED|skipped' "$out/$1-$3.log")"
}
begin() { # begin RANK FILE ARGUMENT...: this rank of two processes, a GPU each, in the background; $pid is its number
    rank=$1 file=$2
    shift 2
    : >"$out/rank.$rank"
    FTX_RANK=$rank FTX_RANKS=2 "$FTXC" run "$out/$file" --device cuda:0,1 -q "$@" >"$out/rank.$rank" 2>"$out/rank.$rank.log" </dev/null &
    pid=$!
}
meet() { # a new place at which processes meet
    FTX_MASTER=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export FTX_MASTER
}
generating() { # two processes write a long text; $zero and $one, when it has begun
    meet
    begin 1 "$1" x
    one=$pid
    begin 0 "$1" --greedy --ignore-eos -n 900 --ids 5,6,7
    zero=$pid
    tries=0
    until [ -s "$out/rank.0" ] || [ $tries -ge 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
ended() { # ended PID SECONDS WORDS: rank 0 ends by itself within so many seconds, with an error that has one of these words
    from=$(date +%s%N)
    code=0
    timeout "$2" tail --pid="$1" -f /dev/null || kill -9 "$1"
    wait "$1" || code=$?
    echo "   rank 0: exit code $code after $((($(date +%s%N) - from) / 1000000)) ms: $(cat "$out/rank.0.log")"
    { [ $code = 1 ] && grep -q -e "$3" "$out/rank.0.log"; } || failed=1
}
bench() { # bench SPEC DEFINES OPTIONS: steps or generations with random weights, into results.jsonl
    spec=$1
    defines=$2
    shift 2
    # shellcheck disable=SC2086
    "$FTXC" compile "specs/$spec.lua" -t "$FTX_TEST_TARGET" --no-weights $defines -o "$out/$spec.ftx" || failed=1
    make="ftxc compile specs/$spec.lua -t $FTX_TEST_TARGET --no-weights${defines:+ $defines}"
    (cd "$out" && "$FTXC" bench "$spec.ftx" --random-weights 1 --device cuda "$@" --json) >"$out/bench.log" || failed=1
    sed "s|^{|{\"make\":\"$make\",|" "$out/bench.log" | tee -a "$out/results.jsonl"
}

for part in "$@"; do
    failed=0
    rm -f "$out/failed" "$out/texts"
    case $part in
    fp32) models fp32 0 1e-4 1e-3 ;;
    bf16) models bf16 0.35 0.06 0.6 ;;
    fp16) models fp16 0.05 0.01 0.1 ;;
    families) # two-layer twins of each checkpoint that is read; at once, since compiling takes the most
        one fp32 1e-4 families &
        one bf16 0.06 families &
        one fp16 0.01 families &
        wait
        ;;
    odd) # FTX_ODD: how many shapes of each family
        one fp32 1e-4 odd
        one bf16 0.06 odd
        one fp16 0.01 odd
        ;;
    many)
        one fp32 1e-4 many
        one bf16 0.06 many
        ;;
    beam) # at once, since compiling takes the most; in 16 bits (tolerance 0) they find their bounds for themselves
        one fp32 1e-4 beam &
        one fp32 1e-4 beam_odd &
        one bf16 0 beam &
        one fp16 0 beam_odd &
        wait
        ;;
    samples)
        one fp32 1e-4 samples &
        one fp16 0 samples &
        one bf16 0 samples &
        wait
        ;;
    ptx) # texts that this GPU's driver translates when the model is opened
        own=$FTX_TEST_TARGET
        for FTX_TEST_TARGET in compute_80 compute_90; do
            one fp32 1e-4 tiny
            one bf16 0.06 tiny
        done
        FTX_TEST_TARGET=$own
        ;;
    encode) # encoders and encoder-decoders: vectors and tokens
        one fp32 1e-4 encode
        one fp32 1e-4 seq2seq
        for type in fp16 bf16; do # these find out for themselves how far rounding may go
            one $type 0 encode
            one $type 0 seq2seq
            FTX_ODD=40 one $type 0 odd_text
        done
        FTX_ODD=40 one fp32 1e-4 odd_text
        ;;
    bench)
        bench llama-3.2-1b "" --sequences 1,8,64 --context 128,2048 --prompt 128,512,2048
        bench llama-3.1-8b "" --sequences 1,8,64 --context 128,2048 --prompt 2048
        ;;
    texts) # encoders: texts of one length, and of many with a mean of 70
        for spec in bert-base bert-large; do
            bench $spec "" --sequences 1 --prompt 16,64,128,256,384,512
            bench $spec "" --sequences 32 --prompt 128 --context 70
        done
        bench bert-base "" --sequences 8,32 --prompt 128,384
        bench bert-large "" --sequences 128 --prompt 384
        ;;
    device) # hidden states and vectors in memory of the GPU: the same bits, and no copy over the host in a trace
        for type in fp32 bf16 fp16; do
            "$FTXC" compile tests/models/tiny-bert -t "$FTX_TEST_TARGET" -q -o "$out/device.ftx" -D precision.weights=$type \
                -D limits.tokens=512 || failed=1
            "$build/tests/gpu/encode_device" "$out/device.ftx" "$out/device-$type.json" || failed=1
            "$FTXC" show "$out/device.ftx" --json >"$out/show.json" || failed=1
            tests/gpu/trace.py "$out/device-$type.json" "$out/show.json" --no-host || failed=1
        done
        ;;
    trace) # timelines: prompts, decode steps as graphs and chains, products of cuBLASLt, beams
        "$FTXC" compile specs/llama-3.2-1b.lua -t "$FTX_TEST_TARGET" --no-weights -q -o "$out/trace-1b.ftx" || failed=1
        "$FTXC" compile specs/fable.lua -t "$FTX_TEST_TARGET" -q -o "$out/trace-fable.ftx" || failed=1
        prompt=$(seq -s , 5 700)
        while read -r model options; do
            # shellcheck disable=SC2086
            "$FTXC" run "$out/trace-$model.ftx" --device cuda -q $options --trace "$out/trace-$model.json" \
                >"$out/trace.log" || failed=1
            "$FTXC" show "$out/trace-$model.ftx" --json >"$out/show.json" || failed=1
            tests/gpu/trace.py "$out/trace-$model.json" "$out/show.json" || failed=1
            scripts/timeline "$out/trace-$model.json" || failed=1
            scripts/timeline "$out/trace-$model.json" --run -1 | tail -n 40
        done <<-end
			fable --ids 5,6,7 --greedy -n 30
			1b --ids $prompt --greedy -n 30 --ignore-eos --random-weights 1
		end
        FTX_TRACE=1 "$FTXC" run "$out/trace-fable.ftx" --device cuda -q --ids 5,6 --greedy -n 3 2>&1 >"$out/trace.log" |
            grep -q 'launch embed.* us at ' || { echo "FTX_TRACE names no kernel"; failed=1; }
        ;;
    memory) # eight models of Transformer-big, beam 4, batch 8, 256 tokens: in one process, and in eight
        used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }
        "$FTXC" compile specs/transformer-big.lua -t "$FTX_TEST_TARGET" -o "$out/big.ftx" --no-weights \
            -D limits.sequences=32 -D limits.context=256 -D limits.source=256 -D limits.tokens=2048 || failed=1
        before=$(used)
        for way in "1 8 6144" "8 1 16384"; do # processes, models in each, MiB at most
            # shellcheck disable=SC2086
            set -- $way
            rm -f "$out"/memory.* && mkfifo "$out/memory.hold"
            for i in $(seq "$1"); do
                "$build/tests/gpu/open_many" "$out/big.ftx" "$2" 8 255 <"$out/memory.hold" >"$out/memory.$i" &
            done
            exec 9>"$out/memory.hold"
            tries=0
            while [ "$(cat "$out"/memory.[0-9]* | wc -l)" -lt "$1" ] && [ $tries -lt 300 ]; do
                sleep 0.2
                tries=$((tries + 1))
            done
            now=$(used)
            cat "$out"/memory.[0-9]* | sort | uniq -c
            [ "$(cat "$out"/memory.[0-9]* | wc -l)" -eq "$1" ] || failed=1
            echo "$1 processes with $2 models each hold $((now - before)) MiB of the GPU (at most $3)"
            [ $((now - before)) -le "$3" ] || failed=1
            exec 9>&-
            wait
        done
        ;;
    swap) # preempted requests: tokens as with room for all, pages recomputed or copied to the host and back
        "$FTXC" compile specs/llama-3.2-1b.lua -t "$FTX_TEST_TARGET" -q --no-weights -D precision.sums=fixed \
            -o "$out/fixed.ftx" || failed=1
        "$build/tests/gpu/swap_check" "$out/fixed.ftx" || failed=1
        ;;
    offload) # weights in host memory: the same results as on the GPU; steps longer by the time of the copies
        ids=$(seq -s , 5 60)
        results_of() { grep -o '"ids":.*"logprobs":[^]]*\|"first":[^]]*' "$out/offload.json"; }
        while read -r model layers options; do
            "$FTXC" compile "$model" -t "$FTX_TEST_TARGET" -q -o "$out/offload.ftx" || failed=1
            for n in "$layers" 2 0; do
                # shellcheck disable=SC2086
                "$FTXC" run "$out/offload.ftx" --device cuda -q --json --ids "$ids" $options --gpu-layers "$n" \
                    >"$out/offload.json" 2>"$out/offload.log" </dev/null || failed=1
                results_of >"$out/offload.$n"
                if [ ! -s "$out/offload.$n" ] || ! cmp "$out/offload.$layers" "$out/offload.$n"; then
                    failed=1
                else
                    echo "== $model --gpu-layers $n: $(cat "$out/offload.log")"
                fi
            done
        done <<-end
			specs/fable.lua 6 --greedy -n 200 --ignore-eos
			specs/verse.lua 6 --beams 4 -n 40
			tests/models/tiny-gpt2 9 --greedy -n 30 --ignore-eos
			tests/models/tiny-bert 9
		end
        "$FTXC" compile specs/fable.lua -t "$FTX_TEST_TARGET" -q -o "$out/offload.ftx" || failed=1
        compute-sanitizer --tool memcheck --error-exitcode 9 "$FTXC" run "$out/offload.ftx" --device cuda --gpu-layers 0 \
            --ids 5,6,7 --greedy -n 6 >"$out/offload-memcheck.log" 2>&1 </dev/null || failed=1
        grep 'ERROR SUMMARY' "$out/offload-memcheck.log"
        # 0, 8, 16 and 32 layers of 0.436 GB are copied: compare each difference with what the note says
        "$FTXC" compile specs/llama-3.1-8b.lua -t "$FTX_TEST_TARGET" --no-weights -q -o "$out/offload.ftx" || failed=1
        for n in 32 24 16 0; do
            echo "== 8B --gpu-layers $n"
            "$FTXC" bench "$out/offload.ftx" --random-weights 1 --device cuda --sequences 1,64 --context 128 --prompt 2048 \
                -r 10 --kv-memory 8G --gpu-layers "$n" || failed=1
        done
        "$FTXC" bench "$out/offload.ftx" --random-weights 1 --device cuda -r 10 --kv-memory 8G --gpu-memory 8G || failed=1
        ;;
    sequences) # whole generations
        bench transformer-base "" --beams 4 --source 32 --new 32 --sequences 1,2,8,32,64,128
        bench transformer-big "" --beams 4 --source 32 --new 32 --sequences 1,8,64
        bench gpt2-124m "-D precision.weights=fp16 -D limits.sequences=32 -D limits.context=256 -D limits.tokens=1024" \
            --source 32 --new 128 --top-k 4 --top-p 0.9 --sequences 1,32
        ;;
    sanitize) # prompts of 5 and of 100 tokens, sampling, beams, encoders
        short=113,7,9,20,31
        long=$(seq -s , 5 104)
        while read -r model ids options; do
            case $options in *--beams*) beams="-D decode.width=4" ;; *) beams= ;; esac
            # shellcheck disable=SC2086
            "$FTXC" compile "tests/models/$model" -t "$FTX_TEST_TARGET" -o "$out/sanitize.ftx" -q -D limits.context=128 \
                -D limits.tokens=128 -D limits.sequences=8 $beams || failed=1
            [ "$ids" = short ] && ids=$short || ids=$long
            for tool in memcheck racecheck; do
                # shellcheck disable=SC2086
                compute-sanitizer --tool $tool --error-exitcode 9 "$FTXC" run "$out/sanitize.ftx" --device cuda \
                    --ids "$ids" $options >"$out/sanitize-$model-$tool.log" 2>&1 </dev/null || failed=1
                echo "$model $tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/sanitize-$model-$tool.log")"
            done
        done <<-end
			tiny-llama short --top-k 20 --top-p 0.9 -n 6 --seed 1
			tiny-mistral long --greedy -n 4
			tiny-gpt2 long --greedy -n 4
			tiny-bert long
			tiny-marian short --beams 4 -n 6
		end
        ;;
    ranks) # two GPUs that share a model: tokens as on one; a GPU that is late, or does not come
        ids=$(seq -s , 5 60)
        for model in tiny-llama tiny-gpt2 tiny-mistral; do
            for type in fp32; do
                for n in 1 2; do
                    "$FTXC" compile "tests/models/$model" -t "$FTX_TEST_TARGET" -q -D precision.weights=$type -D parallel=$n \
                        -o "$out/$model-$type-$n.ftx" || failed=1
                    "$FTXC" run "$out/$model-$type-$n.ftx" --device cuda -q --ids "$ids" --greedy -n 30 --ignore-eos \
                        >"$out/ranks.$n" || failed=1
                done
                [ -s "$out/ranks.1" ] && cmp "$out/ranks.1" "$out/ranks.2" && echo "== $model $type: the same tokens" || failed=1
            done
        done
        FTX_PEER_TIMEOUT=2 "$build/tests/gpu/ranks_check" "$out/tiny-llama-fp32-2.ftx" || failed=1
        ;;
    processes) # two processes, a GPU each, exchange by NCCL: tokens and log-probabilities of one process; one that dies, or hangs
        "$FTXC" doctor | grep nccl
        for model in fable tiny-llama tiny-gpt2 tiny-mistral; do
            for type in fp32 bf16; do
                case $model in
                fable) spec=specs/fable.lua prompt="-n 200" ids=$(seq -s , 5 12) ;;
                *) spec=tests/models/$model prompt="-n 30" ids=$(seq -s , 5 60) ;;
                esac
                "$FTXC" compile "$spec" -t "$FTX_TEST_TARGET" -q -D precision.weights=$type -D parallel=2 \
                    -o "$out/$model-$type-2.ftx" || failed=1
                unset FTX_MASTER
                # shellcheck disable=SC2086
                "$FTXC" run "$out/$model-$type-2.ftx" --device cuda:0,1 -q --ids "$ids" --greedy --ignore-eos $prompt --json |
                    grep -o '"ids":.*"logprobs":[^]]*' >"$out/one.json" || failed=1
                meet
                begin 1 "$model-$type-2.ftx" x
                one=$pid
                # shellcheck disable=SC2086
                begin 0 "$model-$type-2.ftx" --ids "$ids" --greedy --ignore-eos $prompt --json
                wait "$pid" || failed=1
                wait "$one" || failed=1
                grep -o '"ids":.*"logprobs":[^]]*' "$out/rank.0" >"$out/two.json" || failed=1
                if cmp "$out/one.json" "$out/two.json"; then
                    echo "== $model $type: the same tokens and log-probabilities in one process and in two"
                else
                    failed=1
                    cat "$out/rank.0.log" "$out/rank.1.log"
                fi
            done
        done
        echo "== rank 1 is killed"
        generating fable-fp32-2.ftx
        kill -9 "$one"
        ended "$zero" 20 "the connection to rank 1 has ended"
        wait "$one"
        echo "== rank 1 hangs, FTX_PEER_TIMEOUT=2"
        export FTX_PEER_TIMEOUT=2
        generating fable-fp32-2.ftx
        kill -STOP "$one"
        ended "$zero" 30 "rank 1 did not come\|rank 1 has not answered"
        kill -CONT "$one"
        wait "$one" && failed=1
        echo "== rank 0 is killed"
        generating fable-fp32-2.ftx
        kill -9 "$zero"
        timeout 20 tail --pid="$one" -f /dev/null || kill -9 "$one"
        wait "$one" && failed=1
        grep "the connection to rank 0 has ended" "$out/rank.1.log" || failed=1
        wait "$zero"
        unset FTX_PEER_TIMEOUT FTX_MASTER
        ;;
    processes_times) # steps of a model on two GPUs: by our own exchange in one process, by NCCL in two
        "$FTXC" compile specs/llama-3.2-1b.lua -t "$FTX_TEST_TARGET" -q --no-weights -D parallel=2 -o "$out/1b-2.ftx" || failed=1
        steps="--random-weights 1 --device cuda:0,1 --sequences 1,8,64 --context 128 --prompt 128,512,2048 -r 15"
        echo "== one process"
        # shellcheck disable=SC2086
        "$FTXC" bench "$out/1b-2.ftx" $steps || failed=1
        meet
        # shellcheck disable=SC2086
        FTX_RANK=1 FTX_RANKS=2 "$FTXC" bench "$out/1b-2.ftx" $steps >"$out/rank.1.log" 2>&1 &
        one=$!
        echo "== two processes"
        # shellcheck disable=SC2086
        FTX_RANK=0 FTX_RANKS=2 "$FTXC" bench "$out/1b-2.ftx" $steps || failed=1
        wait "$one" || { failed=1; cat "$out/rank.1.log"; }
        unset FTX_MASTER
        ;;
    *) echo "no part \"$part\""; exit 2 ;;
    esac
    [ ! -e "$out/failed" ] || failed=1
    if [ -n "$results" ] && [ $failed = 0 ]; then
        tests/gpu/results.py passed "$results" "$part" "$out/texts" "$gpu" "$driver" "$nvrtc" "$commit" || failed=1
    elif [ -n "$results" ]; then
        tests/gpu/results.py failed "$results" "$part" "$gpu"
    fi
    [ $failed = 0 ] || all_failed=1
done
exit $all_failed
