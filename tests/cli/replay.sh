#!/usr/bin/env bash
# replay.sh - route traces and `sluice replay`: the engine's counters and the replay of its own trace are
# equal to the last hit, for both policies and several budgets; traces say what was routed; tracing
# changes no text; damaged traces and senseless options are refused.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"
demo=$here/../../models/demo.gguf
export SLUICE_LOOKAHEAD=0 # a replay does not read ahead

# part FILE OBJECT KEY: a number of the innermost object of that name
part() { sed -n "/^ *\"$2\": {/,/}/p" "$1" | grep -oE "\"$3\": *[-0-9.e+]+" | head -n 1 | sed 's/.*: *//'; }
keys="routed hits misses hit_bytes miss_bytes"
# equal LABEL RUN REPLAY PREFIX: counters of the run's JSON object and of the replay's
equal() {
    local label=$1 phase key a b wrong=0 seen=""
    for phase in prompt generation; do
        for key in $keys; do
            a=$(part "$2" "$phase" "$key")
            b=$(part "$3" "$4$phase" "$key")
            if [ -z "$a" ] || [ "$a" != "$b" ]; then
                wrong=1
                fail "$label: $phase $key: run $a, $4replay $b"
            fi
        done
        seen="$seen $(part "$2" "$phase" hits)/$(part "$2" "$phase" routed)"
    done
    [ "$wrong" -ne 0 ] || ok "$label: equal, hits$seen"
}

# itself FILE LABEL: the replay's counters are the recorded ones
itself() {
    equal "$2" "$1" "$1" recorded_
}

n=0
evicted=0
for policy in cycle lru; do
    for cache in 0 1100KiB 2MiB 3MiB 6MiB 40MiB; do
        for prompt in "There was once a baker" "Dear Carmen, it rained. The roof of the mill leaks, and the goose is gone."; do
            n=$((n + 1))
            # A prompt's batch is small enough for all its experts to fit: see src/trace/replay.c.
            try "$sluice" run -m "$demo" -t 2 -c 512 -p "$prompt" -n 24 --seed $n --cache $cache --force-cache \
                --cache-policy $policy --ubatch 3 --route-trace t.csv --json -q
            [ "$rc" -eq 0 ] || fail "run $policy $cache: exit $rc: $(tail -n 1 err.txt)"
            mv out.txt run.json
            bytes=$(sed -n 's/.* cache_budget=\([0-9]*\) .*/\1/p' t.csv)
            works "replay $policy $cache" "$sluice" replay t.csv --policy $policy --budget "${bytes}B" --json
            mv out.txt replay.json
            equal "  counters" run.json replay.json ""
            equal "  recorded" run.json replay.json recorded_
            a=$(grep -oE '"evictions": *[0-9]+' run.json | tail -n 1)
            b=$(grep -oE '"evictions": *[0-9]+' replay.json | tail -n 1)
            if [ "$a" = "$b" ]; then ok "  $a"; else fail "  run $a, replay $b"; fi
            evicted=$((evicted + ${a##* }))
        done
    done
done
[ "$evicted" -gt 1000 ] || fail "next to nothing was evicted: $evicted"

# With experts left out: dropped rows are in the trace, the cache was never asked for them, and the replay is equal still.
for settings in "--drop-cold-experts 1" "--drop-cold-experts 0.6 --cache-policy lru" \
    "--drop-cold-experts 1 --drop-reproducible" "--drop-cold-experts 1 --drop-in-prefill"; do
    policy=cycle
    case $settings in *lru*) policy=lru ;; esac
    # shellcheck disable=SC2086 # words
    works "run $settings" "$sluice" run -m "$demo" -t 2 -c 512 -p "There was once a baker" -n 24 --seed 3 --cache 3MiB --force-cache \
        --ubatch 3 --route-trace t.csv --json -q $settings
    mv out.txt run.json
    bytes=$(sed -n 's/.* cache_budget=\([0-9]*\) .*/\1/p' t.csv)
    works "  replay" "$sluice" replay t.csv --policy $policy --budget "${bytes}B" --json
    mv out.txt replay.json
    equal "  counters" run.json replay.json ""
    equal "  recorded" run.json replay.json recorded_
    a=$(awk -F, '!/^#/ && $10 == 1 { n++ } END { print n + 0 }' t.csv)
    b=$(grep -oE '"dropped": *[0-9]+' run.json | awk '{ n += $2 } END { print n + 0 }')
    if [ "$a" = "$b" ] && [ "$a" -gt 0 ]; then ok "  $a rows dropped"; else fail "  $a rows marked dropped, $b counted"; fi
done

# The trace itself: 6 layers, 4 experts a token; the last layer has only the last row of each batch of the prompt.
works "a run for its trace" "$sluice" run -m "$demo" -t 2 -c 512 -p "There was once a baker" -n 9 --temp 0 --cache 3MiB \
    --ubatch 4 --route-trace t.csv --route-probs p.csv --json
mv out.txt run.json
prompt=$(part run.json prompt tokens)
rows=$(grep -vc '^#' t.csv)
batches=$(((prompt + 3) / 4))
want=$((1 + 4 * (5 * prompt + batches + 6 * 8)))
if [ "$rows" -eq "$want" ]; then ok "  $rows rows"; else fail "  $rows rows, not $want"; fi
expect "  first line" <(sed -n 1p t.csv) '^# route_trace v1$'
expect "  model" <(sed -n 2p t.csv) '^# model=.*demo.gguf arch=qwen3moe n_layer=6 n_expert=32 n_expert_used=4$'
expect "  layer" <(sed -n 3p t.csv) '^# layer=0 expert_bytes=52224 dense_bytes=[1-9][0-9]* slot_bytes=[0-9]+ top_k=4$'
expect "  header" t.csv '^turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped$'
if awk -F, '!/^#/ && $1 != "turn" {
        w[$1 "," $3 "," $4] += $7; if ($5 > 0 && $7 > last + 1e-7) bad = 1; last = $7
        if (($8 == 0) != ($9 > 0) && $2 == 1) bad = 1; if (NF != 10) bad = 1; steps[$3] = 1 }
    END { for (k in w) { n++; if (w[k] < 0.99999 || w[k] > 1.00001) bad = 1 }
        for (s in steps) { m++; if (s + 0 > top) top = s + 0 } exit bad || n < 50 || m != top + 1 }' t.csv; then
    ok "  weights of a token add up to 1 and descend, misses have bytes, no step is missing"
else
    fail "rows: $(head -n 30 t.csv)"
fi
# The chosen experts' probabilities, made to add up to 1, are the weights.
if awk -F, 'NR == FNR { for (i = 5; i <= NF; i++) p[$1 "," $2 "," $3 "," $4 "," i - 5] = $i; if (NF != 36) bad = 1; next }
    !/^#/ && $1 != "turn" { k = $1 "," $2 "," $3 "," $4; if (!((k "," $6) in p)) bad = 1
        s[k] += p[k "," $6]; row[++n] = k; w[n] = $7; q[n] = p[k "," $6] }
    END { for (i = 1; i <= n; i++) { d = q[i] / s[row[i]] - w[i]; if (d > 1e-4 || d < -1e-4) bad = 1 } exit bad || n < 100 }' p.csv t.csv
then ok "  probabilities agree with the weights"; else fail "probabilities: $(head -n 2 p.csv | cut -c1-200)"; fi

try "$sluice" run -m "$demo" -t 2 -c 512 -p "There was once a baker" -n 9 --temp 0 --cache 3MiB --ubatch 4 -q
cp out.txt plain.txt
try "$sluice" run -m "$demo" -t 2 -c 512 -p "There was once a baker" -n 9 --temp 0 --cache 3MiB --ubatch 4 -q --route-trace t.csv --route-probs p.csv
if cmp -s out.txt plain.txt && [ -s plain.txt ]; then ok "  tracing changes no text"; else fail "another text when traced"; fi

# Reading ahead shows in the trace.
SLUICE_LOOKAHEAD=1 works "with lookahead" "$sluice" run -m "$demo" -t 2 -c 512 -p Hello -n 40 --temp 0 --cache 3MiB -q --route-trace t.csv
expect "  the head says so" t.csv '^# sluice .* lookahead=1$'

# Turns of a conversation.
printf 'Who was Vera?\nAnd then?\n/clear\nWho?\n' |
    "$sluice" chat -m "$demo" -t 2 -c 512 -n 8 --temp 0 -q --cache 3MiB --route-trace t.csv >out.txt 2>err.txt
rc=$?
[ "$rc" -eq 0 ] || fail "chat: exit $rc: $(tail -n 1 err.txt)"
turns=$(grep -v '^#' t.csv | cut -d, -f1 | uniq | tr '\n' ' ')
if [ "$turns" = "turn 0 1 2 " ]; then ok "chat: $turns"; else fail "chat: turns $turns"; fi
works "  replayed" "$sluice" replay t.csv --budget 3 --policy cycle --json
itself out.txt "  the recorded counters"

# The committed trace of 2,000 steps and more: what was recorded, the replay of it, and the order of the policies.
gzip -dc "$here/../data/demo.route.csv.gz" >long.csv
works "the long trace" "$sluice" replay long.csv --policy lru --budget 3 --json
mv out.txt long.json
[ "$(part long.json generation tokens)" -ge 2000 ] || fail "not 2000 steps"
itself long.json "  the recorded counters"
expect "  by LRU" long.json '"recorded_policy": "lru"'
# hits POLICY
hits() { "$sluice" replay long.csv --policy "$1" --budget 3 --json | sed -n '/"generation": {/,/}/p' | grep -oE '"hits": *[0-9]+' | grep -oE '[0-9]+'; }
lru=$(hits lru) lfu=$(hits lfu) cycle=$(hits cycle) belady=$(hits belady)
if [ "$lru" -lt "$cycle" ] && [ "$cycle" -lt "$belady" ] && [ "$lfu" -lt "$belady" ] && [ "$lfu" -gt 0 ]; then
    ok "  hits: lru $lru, lfu $lfu, cycle $cycle, belady $belady"
else
    fail "hits: lru $lru, lfu $lfu, cycle $cycle, belady $belady"
fi

# A trace of another program, whose figures can be worked out: one layer, three experts of 1 MiB, two per token.
{
    printf '# route_trace v1\n# model=/m arch=x n_layer=1 n_expert=3 n_expert_used=2\n# layer=0 expert_bytes=1048576 dense_bytes=0\n'
    printf 'turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n'
    for step in 0 1 2 3; do printf '0,1,%d,0,0,0,0.8,1,0\n0,1,%d,0,1,%d,0.2,0,1048576\n' $step $step $((1 + step % 2)); done
} >small.csv
works "a small trace" "$sluice" replay small.csv --policy lru,belady --budget 2,3 --drop 1 --predict 100,2
expect "  lru, 2 MiB" out.txt '^ +lru +2\.0 +lossless +37\.5 +37\.5 +1\.25 +1\.95 to 2\.00$'
expect "  lru, 3 MiB" out.txt '^ +lru +3\.0 +lossless +62\.5 +62\.5 +0\.75 .*$'
expect "  drop" out.txt '^ +lru +2\.0 +drop 1 +75\.0 +75\.0 +0\.25 +80\.0 +20\.0 .*$'
expect "  one pool" out.txt 'one pool of bytes'
works "  fewer experts" "$sluice" replay small.csv --policy lru --budget 2 --n-expert-used 1
expect "  avoided" out.txt '^ +lru +2\.0 +1 experts +75\.0 +75\.0 +0\.25 +80\.0 +20\.0$'
works "  no cache" "$sluice" replay small.csv --policy cycle --budget 0
expect "  no hits" out.txt '^ +cycle +0\.0 +0\.0 +0\.0 +2\.00  below a token.s demand$'
works "  a range" "$sluice" replay small.csv --policy cycle --budget 1..3
[ "$(grep -c '^ *cycle' out.txt)" -eq 3 ] || fail "1..3: $(cat out.txt)"
works "several traces, a plot" "$sluice" replay small.csv long.csv --plot hits.svg
if [ "$(grep -c '<polyline' hits.svg)" -eq 6 ] && [ "$(grep -c "token's demand" hits.svg)" -ge 1 ]; then
    ok "  curves for both"
else
    fail "plot: $(head -c 400 hits.svg)"
fi
if command -v python3 >/dev/null; then
    if python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' hits.svg; then ok "  it is XML"; else fail "plot: no XML"; fi
fi

# What cannot be read is refused with file and line.
refused 1 "no/such.csv: cannot read" "no file" "$sluice" replay no/such.csv
refused 1 "demo.gguf:1: " "a model" "$sluice" replay "$demo"
head -c 200000 long.csv | head -c -3 >cut.csv
lines=$(($(tr -cd '\n' <cut.csv | wc -c) + 1))
refused 1 "cut.csv:$lines: the file ends in the middle of a line" "a trace that was cut" "$sluice" replay cut.csv
sed '100s/,/;/' long.csv >bad.csv
refused 1 "bad.csv:100: turn is not a number" "a damaged line" "$sluice" replay bad.csv
sed 's/^# layer=5 .*//' long.csv >bad.csv
refused 1 "bad.csv:8: expected the columns" "an empty line in the head" "$sluice" replay bad.csv
sed 's/n_expert=32/n_expert=99999999999/' long.csv >bad.csv
refused 1 "bad.csv:2: n_layer" "absurd numbers" "$sluice" replay bad.csv
head -c 1000000 /dev/zero >zeros
refused 1 "zeros:1: not a text file" "zeros" "$sluice" replay zeros
sed 's/0\.[0-9]*,\([01],\)/nan,\1/' small.csv >nan.csv
refused 1 "nan.csv has no router weights" "dropping without weights" "$sluice" replay nan.csv --drop 0.5
# Two hundred files with a byte changed or a piece cut out: an answer or one line, never a crash.
head -n 400 long.csv >part.csv
size=$(wc -c <part.csv)
crashed=0 answered=0
for i in $(seq 200); do
    at=$(((i * 7919) % (size - 8)))
    { head -c $at part.csv; [ $((i % 3)) -eq 0 ] || printf '%b' "\\x$(printf %x $((i % 256)))"; tail -c +$((at + 1 + i % 7)) part.csv; } >fuzz.csv
    try "$sluice" replay fuzz.csv --budget 1,3 --drop 0.5
    if [ "$rc" -eq 0 ]; then
        answered=$((answered + 1))
    elif [ "$rc" -ne 1 ] || [ "$(wc -l <err.txt)" -ne 1 ]; then
        crashed=$((crashed + 1))
        cp fuzz.csv "crash-$i.csv"
    fi
done
if [ "$crashed" -eq 0 ] && [ "$answered" -lt 200 ]; then ok "damage: $answered of 200 still make sense"; else fail "damage: $crashed crashed"; fi

refused 2 "no trace" "no trace" "$sluice" replay
refused 2 "--policy lru,fifo: must be a list" "an unknown policy" "$sluice" replay small.csv --policy lru,fifo
for budget in x 1.. ..2 5..2 0..4 1,,2 -1; do
    refused 2 "--budget" "--budget $budget" "$sluice" replay small.csv --budget="$budget"
done
for drop in 0 1.5 -0.5 nan "0.5,"; do
    refused 2 "--drop" "--drop $drop" "$sluice" replay small.csv --drop="$drop"
done
refused 2 "--predict 5: must be two numbers" "half a prediction" "$sluice" replay small.csv --predict 5
refused 2 "--predict 0,1" "a disk that reads nothing" "$sluice" replay small.csv --predict 0,1
refused 2 "--divide thirds: must be classes or pool" "an unknown division" "$sluice" replay small.csv --divide thirds
try "$sluice" replay small.csv --plot no/such/dir/x.svg
if [ "$rc" -eq 1 ]; then ok "a plot that cannot be written: exit 1"; else fail "a plot that cannot be written: exit $rc"; fi
expect "  says so" err.txt '^sluice replay: no/such/dir/x.svg: cannot write: '

# Recording.
refused 2 "nothing streams" "tracing a resident run" "$sluice" run -m "$demo" -p Hello -n 2 -q --resident --route-trace t.csv
refused 1 "no/such/t.csv: cannot write" "a trace that cannot be made" "$sluice" run -m "$demo" -p Hello -n 2 -q --route-trace no/such/t.csv
if [ -w /dev/full ]; then
    try "$sluice" run -m "$demo" -p Hello -n 4 -q --route-trace /dev/full
    if [ "$rc" -eq 1 ] && [ "$(cat err.txt)" = "sluice run: /dev/full: cannot write: No space left on device" ]; then
        ok "a full disk fails the run"
    else
        fail "a full disk: exit $rc: $(cat err.txt)"
    fi
fi

# A stock program with the plug-in.
if [ -f "$BIN/libsluice-preload.so" ] && ! ldd "$sluice" | grep -q 'lib[at]san'; then
    complete=("$LLAMA_BIN/llama-completion" -m "$demo" -p "There was once a baker" -n 9 --temp 0 -no-cnv --no-repack -t 2 -c 256)
    SLUICE_ROUTE_TRACE=$dir/stock.csv SLUICE_ROUTE_PROBS=$dir/probs.csv SLUICE_STATS=$dir/stock.json \
        works "llama-completion" "$sluice" exec --cache 3MiB -- "${complete[@]}"
    works "  its trace" "$sluice" replay stock.csv --policy cycle --budget 3 --json
    for key in hits misses; do
        sum=$(($(part out.txt prompt $key) + $(part out.txt generation $key)))
        if [ "$sum" = "$(value stock.json ${key}_total)" ]; then ok "  $key: $sum"; else fail "  $key: $sum, not $(value stock.json ${key}_total)"; fi
    done
    expect "  names the architecture" stock.csv '^# model=.*demo.gguf arch=qwen3moe n_layer=6 '
    [ -s probs.csv ] || fail "no probabilities"
    SLUICE_ROUTE_TRACE=$dir/nothing/x.csv try "$sluice" exec -- "${complete[@]}"
    expect "  a file that cannot be made fails the load" err.txt 'nothing/x.csv: cannot write: No such file'
    if [ "$rc" -ne 0 ]; then ok "  with exit code $rc"; else fail "  exit code 0"; fi
fi
finish
