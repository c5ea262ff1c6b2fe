#!/usr/bin/env bash
# run.sh - `sluice run` and `sluice info`: what is printed where, equal text however the experts are held,
# the comparison with the resident run, the shape of the JSON objects.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

run=("$sluice" run -m "$model" -t 2 -c 512 -p "Once upon a time" -n 12)
demand=$("$sluice" info --json "$model" | grep -oE '"token_demand_bytes": *[0-9]+' | grep -oE '[0-9]+$')

works "greedy" "${run[@]}" --temp 0
cp out.txt greedy.txt
[ -s greedy.txt ] || fail "no text"
expect "  the mode line comes first" <(head -n 1 err.txt) '^streaming 6 expert tensors .*, lossless$'
[ "$(grep -c '^streaming' err.txt)" -eq 1 ] || fail "not one mode line: $(cat err.txt)"
expect "  the summary counts" err.txt '^sluice: 12 tokens generated \(length\), load [0-9.]+ s'
expect "  it has a prompt" err.txt '^  prompt +[0-9]+ tokens in [0-9.]+ s, [0-9.]+ tok/s; [0-9.]+ MiB read per token, hit rate'
expect "  and a generation" err.txt '^  generation +11 tokens in [0-9.]+ s, [0-9.]+ tok/s; [0-9.]+ MiB read per token, hit'
expect "  and memory" err.txt '^  memory +[0-9]+ MiB peak'
if grep -q $'\r\|\033' err.txt; then fail "progress without a terminal"; else ok "  no progress without a terminal"; fi

# same LABEL ARGS...: the greedy text again
same() {
    local label=$1
    shift
    try "${run[@]}" --temp 0 "$@"
    if [ "$rc" -eq 0 ] && cmp -s out.txt greedy.txt; then ok "$label: the same text"; else fail "$label: exit $rc: $(tail -n 1 err.txt)"; fi
}
same "no cache" --cache 0
same "a cache that evicts" --cache "${demand}B" --force-cache
same "one lane, buffered" --io-threads 1 --no-direct-io --cache 0
expect "  says so" err.txt 'buffered'
same "by threads" --io pread --io-threads 3 --cache 0
expect "  says so" err.txt ', 3 lanes, lossless'
same "resident" --resident
expect "  says so" err.txt '^resident: '
same "by an option with =" --n-predict=12
same "quiet" --quiet
[ ! -s err.txt ] || fail "--quiet printed: $(cat err.txt)"
same "all experts but by number" --n-expert-used 2
expect "  which is not lossy" err.txt ', lossless$'
printf 'Once upon a time' >prompt.txt
try "$sluice" run -m "$model" -t 2 -c 512 -n 12 --temp 0 -f prompt.txt
if cmp -s out.txt greedy.txt; then ok "prompt from a file"; else fail "prompt from a file: $(tail -n 1 err.txt)"; fi
"$sluice" run -m "$model" -t 2 -c 512 -n 12 --temp 0 - <prompt.txt >out.txt 2>err.txt
if cmp -s out.txt greedy.txt; then ok "prompt from standard input"; else fail "from standard input: $(tail -n 1 err.txt)"; fi
try "$sluice" run -m "$WORK/shards-00001-of-00003.gguf" -t 2 -c 512 -p "Once upon a time" -n 12 --temp 0 --cache 0
if cmp -s out.txt greedy.txt; then ok "from three shards"; else fail "from three shards: $(tail -n 1 err.txt)"; fi

works "one expert per token" "${run[@]}" --temp 0 --n-expert-used 1
expect "  says lossy" err.txt ', lossy: 1 experts per token'
works "  JSON of it" "${run[@]}" --n-expert-used 1 --json
mv out.txt run.json
# 11 steps of 2 layers, each of which asks for one expert
if [ "$(sed -n '/"generation"/,/}/p' run.json | grep -oE '"routed": *[0-9]+')" = '"routed": 22' ]; then
    ok "  asks for one expert per layer"
else
    fail "--n-expert-used 1: $(grep '"routed"' run.json | tr '\n' ' ')"
fi
works "nothing to generate" "${run[@]}" -n 0
[ ! -s out.txt ] || fail "-n 0 generated text"
works "until the context is full" "$sluice" run -m "$model" -c 256 -p Hello -n -1 --temp 0
expect "  says why it ended" err.txt 'tokens generated \((context full|end of text)\)'

works "seeded" "${run[@]}" --seed 7
cp out.txt seeded.txt
expect "  the seed is in the summary" err.txt ', seed 7$'
works "seeded again" "${run[@]}" --seed 7
if cmp -s out.txt seeded.txt; then ok "  the same text"; else fail "the same seed gave another text"; fi
works "another seed" "${run[@]}" --seed 8
if cmp -s out.txt seeded.txt; then fail "another seed gave the same text"; else ok "  another text"; fi

# Budgets that cannot work are refused with the numbers.
refused 1 "less than one layer needs" "a cache under a layer's demand" "${run[@]}" -q --cache 1KiB
refused 1 "less than one token needs" "a cache under a token's demand" "${run[@]}" -q --cache-policy lru --cache "$((demand * 3 / 4))B"

for settings in "--cache 0" "--cache ${demand}B --force-cache --ubatch 3" "--seed 5 --n-expert-used 1"; do
    # shellcheck disable=SC2086 # words
    works "--compare-resident $settings" "${run[@]}" --compare-resident $settings
    expect "  is identical" err.txt '^identical to resident: yes$'
done
TMPDIR=$dir/nothing refused 1 "no temporary file" "no place for the logits" "${run[@]}" -q --compare-resident

works "JSON" "${run[@]}" --json --seed 7 --compare-resident --cache 0
cp out.txt run.json
expect "  starts with a brace" <(head -n 1 run.json) '^\{$'
for key in sluice llama_cpp architecture mode streaming lossless text stop tokens_generated seed load_seconds \
    first_token_seconds prompt generation tokens_per_second mib_per_token hit_rate wait_seconds read_bytes \
    peak_memory_bytes cgroup_peak_bytes cache plan compared; do
    grep -q "\"$key\":" run.json || fail "the JSON object has no $key"
done
# is KEY VALUE
is() { if [ "$(value run.json "$1")" = "$2" ]; then ok "  $1 is $2"; else fail "$1 is $(value run.json "$1"), not $2"; fi; }
is tokens_generated 12
is seed 7
is streaming true
is lossless true
is identical true
is stop '"length"'
if command -v python3 >/dev/null; then
    if python3 - run.json seeded.txt <<'PY'
import json, sys
o = json.load(open(sys.argv[1], encoding="utf-8"))
text = open(sys.argv[2], "rb").read().decode("utf-8", "replace")
assert "".join(o["text"].split("\ufffd")) == "".join(text.split("\ufffd")), (o["text"], text)
assert o["generation"]["tokens"] == 11 and o["prompt"]["tokens"] > 0 and o["cache"]["bank_bytes"] > 0
assert o["generation"]["hits"] + o["generation"]["misses"] == o["generation"]["routed"] > 0
PY
    then ok "  it parses, its text is the text, its numbers agree"; else fail "the JSON object is wrong"; fi
fi

# One micro-batch for a prompt that fits; fewer tokens when told so, or when memory is short. In the last layer, and
# only there, one row per micro-batch: the others' logits are not needed.
seq 200 >long.txt
# trace_rows LABEL UBATCH BATCHES OPTION...: the prompt's micro-batches, as JSON and route trace tell them
micro_batches() {
    local label=$1 size=$2 batches=$3
    shift 3
    rm -f t.csv
    works "$label" "$sluice" run -m "$model" -t 2 -c 2048 -f long.txt -n 1 --temp 0 --json -q --route-trace t.csv "$@"
    [ "$(value out.txt ubatch)" = "$size" ] || fail "$label: ubatch $(value out.txt ubatch), not $size"
    [ "$(value <(sed -n '/"prompt": {/,/}/p' out.txt) steps)" = "$batches" ] || fail "$label: not $batches steps"
    awk -F, -v batches="$batches" '
        /^#/ { next }
        !seen++ { for (i = 1; i <= NF; i++) col[$i] = i; next }
        { rows[$col["layer"]]++ }
        END { exit !(rows[1] == 2 * batches && rows[0] > 100 * rows[1]) }' t.csv ||
        fail "$label: other rows than the last have logits"
}
tokens=$("$sluice" run -m "$model" -c 2048 -f long.txt -n 0 --json -q | sed -n '/"prompt": {/,/}/p' | grep -oE '"tokens": *[0-9]+' | grep -oE '[0-9]+')
micro_batches "a prompt of $tokens tokens" $(((tokens + 31) / 32 * 32)) 1
is_true=$(value out.txt ubatch_chosen)
[ "$is_true" = true ] || fail "ubatch_chosen is $is_true"
micro_batches "by 300" 300 $(((tokens + 299) / 300)) --ubatch 300
[ "$(value out.txt ubatch_chosen)" = false ] || fail "--ubatch 300 was chosen?"

works "info" "$sluice" info "$model"
for line in '^  architecture +qwen3moe' '^  layers +2$' '^  experts +8 in each of 2 layers, 2 per token$' \
    '^  one expert +[0-9]+ bytes$' '^  demand per layer' '^  demand per token' '^  expert weights' '^  dense weights' \
    '^  types ' '^  shards +1$'; do
    expect "  $line" out.txt "$line"
done
works "info --json" "$sluice" info --json "$model"
cp out.txt info.json
got=$(($(value info.json expert_bytes) * 2 * 2))
if [ "$got" -eq "$demand" ]; then ok "  the demand is layers x top-k x one expert"; else fail "demand $demand, not $got"; fi
if [ "$(value info.json bank_bytes)" = "$(value run.json bank_bytes)" ] &&
    [ "$(value info.json token_demand_bytes)" = "$(value run.json token_bytes)" ]; then
    ok "  names and shapes say what the running backend says"
else
    fail "info: bank $(value info.json bank_bytes), run: bank $(value run.json bank_bytes)"
fi
works "info --json of three shards" "$sluice" info --json "$WORK/shards-00001-of-00003.gguf"
for key in bank_bytes dense_bytes token_demand_bytes; do
    [ "$(value out.txt $key)" = "$(value info.json $key)" ] || fail "three shards: $key differs"
done

# A terminal sees the progress of a long prompt, and the line goes away.
printf 'wait \033[Kprompt \nwait  tokens, \nwait  tok/s, \nwait  s left\nwait \r\033[K\nwait sluice: 1 tokens generated\nexit 0\n' |
    "$BIN/cli-terminal" "$sluice" run -m "$model" -p "$(seq 300)" -n 1 -c 2048 --ubatch 2 --temp 0 >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "progress on a terminal"; else fail "progress: $(cat err.txt)"; fi

# On a terminal, Ctrl-C ends the run with its summary.
printf 'pause\nwait streaming\npause\nkey c\nwait (interrupted)\nexit signal 2\n' |
    "$BIN/cli-terminal" "$sluice" run -m "$model" -p Hello -n -1 --ignore-eos -c 131072 --temp 0 >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "Ctrl-C: the summary, then death by the signal"; else fail "Ctrl-C: $(cat err.txt)"; fi
finish
