#!/usr/bin/env bash
# plan.sh - `sluice plan`: what fits and what does not, whole models, shards and unfinished downloads, that its memory is what
# run then takes, that its command works, and that what is not known is said. No check looks at a speed.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

export TMPDIR=$dir/tmp
mkdir -p "$TMPDIR"
plan=("$sluice" plan --probe-seconds 0.2 -t 2)
json=("${plan[@]}" --json)

# sound LABEL: out.txt is an object as documented: values with a source, or null with a reason; ranges in order
sound() {
    if ! command -v python3 >/dev/null; then
        echo "note: no python3: $1 is not parsed"
    elif python3 - out.txt <<'PY'; then
import json, math, sys
p = json.load(open(sys.argv[1]))
assert p["mode"] in ("resident", "streaming", "none", None), p["mode"]
assert p["why"]
for key, f in p["facts"].items():
    assert f["source"] in ("measured", "derived", "assumed", "unknown"), key
    assert (f["value"] is None) == (f["source"] == "unknown"), key
    assert f["reason"] if f["value"] is None else f["how"], key
    assert f["value"] is None or f["value"] >= 0 and math.isfinite(f["value"]), key
def ordered(r):
    assert r is None or 0 <= r["low"] <= r["mid"] <= r["high"], r
assert (p["disk"] is None) == bool(p["disk_reason"])
for lanes in p["disk"] or []:
    ordered(lanes["bytes_per_second"])
    assert lanes["bytes_per_second"]["low"] > 0
rows = p["budgets"]
for r in rows + [p["resident"]]:
    ordered(r["tokens_per_second"])
    assert (r["tokens_per_second"] is None) == (r["reason"] is not None), r
for r in rows:
    ordered(r["read_bytes_per_token"])
    assert r["fits"] is not False or r["why_not"], r
    assert (r["peak_bytes"] or 0) <= (r["memory_bytes"] or 0), r
assert sum(r["auto"] for r in rows) <= 1
m = p["memory"]
if m:
    parts = ("process", "files", "untouched", "dense", "cache", "scratch")
    assert sum(m[k + "_bytes"] for k in parts) == m["total_bytes"]
PY
        ok "  $1: sound JSON"
    else
        fail "  $1: not as documented: $(head -c 400 out.txt)"
    fi
}

# fact KEY: the value of a fact in out.txt
fact() { sed -n "/\"$1\": {/,/}/p" out.txt | sed -n 's/.*"value": *\([-0-9.e+a-z]*\).*/\1/p' | head -n 1; }

# memory KEY FILE: a number of the memory plan
memory() { sed -n '/"\(memory\|plan\)": {/,/}/p' "$2" | grep -oE "\"$1\": *[0-9a-z]+" | grep -oE '[0-9a-z]+$' | head -n 1; }

# near A B: within 5 %
near() { [ -n "$1" ] && [ -n "$2" ] && [ "$2" -gt 0 ] && [ $((($1 - $2) * 20)) -le "$2" ] && [ $((($2 - $1) * 20)) -le "$2" ]; }

# 160 MiB of experts, so that memory is about them and not about the program.
big=$dir/big.gguf
works "a model with many experts" "$BIN/sluice-mkmoe" --out "$big" --layers 4 --experts 64 --top-k 4 --ff 1024 --embd 512 \
    --vocab-from "$vocab_model" --fill fast

# ---- it fits --------------------------------------------------------------------------------------
works "a model that fits" "${plan[@]}" "$big"
expect "  mode" out.txt '^resident: '
for line in 'KV cache +[0-9.]+ MiB +derived' 'compute buffers +[0-9.]+ MiB +derived' 'other weights +[0-9.]+ MiB +derived' \
    'experts of a token +[0-9.]+ MiB +derived' 'computing a token +[0-9.]+ ms +measured' 'context +4096 tokens +assumed' '^  all +' '^  --resident '; do
    expect "  has a line" out.txt "$line"
done
expect "  a command to copy" out.txt "^  sluice run -m $big -t 2 -p 'Why is the sky blue\\?'$"
works "as JSON" "${json[@]}" "$big"
sound "a model that fits"
[ "$(value out.txt mode)" = '"resident"' ] || fail "mode $(value out.txt mode)"
cp out.txt whole.json

works "with a window in the environment that cannot be had: plan opens none" env SLUICE_WINDOW=192.0.2.1:8090 SLUICE_WINDOW_ALLOW_REMOTE=1 \
    "${json[@]}" "$big"
[ "$(value out.txt mode)" = '"resident"' ] || fail "mode $(value out.txt mode)"

# ---- the same numbers as the run that follows -------------------------------------------------------
# compare LABEL ARGS...: the plan for these arguments against what run says and what the kernel counts
compare() {
    local label=$1 planned peak
    shift
    works "$label: plan" "${json[@]}" "$big" --prompt-tokens 300 "$@"
    sound "$label"
    cp out.txt planned.json
    works "$label: run" "$sluice" run -m "$big" -t 2 -f "$here/../../models/demo-heldout.txt" --prompt-tokens 300 -n 4 --temp 0 --json "$@"
    cp out.txt ran.json
    planned=$(memory total_bytes planned.json) peak=$(value ran.json peak_memory_bytes)
    for key in total process dense cache; do
        if near "$(memory ${key}_bytes planned.json)" "$(memory ${key}_bytes ran.json)"; then
            ok "  $key: $(memory ${key}_bytes planned.json) planned, $(memory ${key}_bytes ran.json) in the run"
        elif [ $key = process ] && # what it has touched is not untouched any more
            near $(($(memory process_bytes planned.json) + $(memory untouched_bytes planned.json))) \
                $(($(memory process_bytes ran.json) + $(memory untouched_bytes ran.json))); then
            ok "  process and untouched together"
        else
            fail "  $key: $(memory ${key}_bytes planned.json) planned, $(memory ${key}_bytes ran.json) in the run"
        fi
    done
    if [ "$peak" -le $((planned + planned / 20)) ]; then ok "  peak $((peak >> 20)) of $((planned >> 20)) MiB"; else fail "  a peak of $peak, planned $planned"; fi
    cp planned.json out.txt
    if [ "$(fact micro_batch)" = "$(value ran.json ubatch)" ]; then
        ok "  micro-batch $(fact micro_batch)"
    else
        fail "  micro-batch $(fact micro_batch) planned, $(value ran.json ubatch) in the run"
    fi
}
compare "no limit"
total=$(memory total_bytes planned.json) cache=$(memory cache_bytes planned.json)
compare "room for half of the experts" --memory $((total - cache / 2))B
[ "$(value planned.json mode)" = '"streaming"' ] || fail "mode $(value planned.json mode)"
if [ "$(memory cache_bytes planned.json)" -lt $((cache * 3 / 4)) ] && [ "$(memory cache_bytes planned.json)" -gt $((cache / 4)) ]; then
    ok "  the cache is about half"
else
    fail "  a cache of $(memory cache_bytes planned.json), half of $cache"
fi

# ---- the command works ------------------------------------------------------------------------------
command=$(sed -n 's/.*"command": "\(.*\)",\{0,1\}$/\1/p' planned.json)
case $command in
"sluice run -m "*" --memory "*) ok "  a command: ${command#*gguf}" ;;
*) fail "  the command is '$command'" ;;
esac
PATH=$BIN:$PATH works "the recommended command" bash -c "$command -n 4 -q"
odd="$dir/a model's \$HOME.gguf"
ln -s "$big" "$odd"
works "a name that a shell would change" "${plan[@]}" "$odd"
command=$(sed -n 's/^  \(sluice run .*\)$/\1/p' out.txt)
PATH=$BIN:$PATH works "  its command" bash -c "$command -n 2 -q"

# ---- it does not fit --------------------------------------------------------------------------------
works "no room" "${json[@]}" "$big" --memory 40MiB
sound "no room"
[ "$(value out.txt mode)" = '"none"' ] || fail "mode $(value out.txt mode)"
expect "  with the numbers" out.txt '"why": ".*does not fit: [0-9]+ MiB of 40 MiB'
expect "  no command" out.txt '"command": null'
works "no room for that context" "${json[@]}" "$big" --memory 250MiB --ctx 131072
sound "no room for that context"
[ "$(value out.txt mode)" = '"none"' ] || fail "mode $(value out.txt mode)"
smaller=$(value out.txt smaller_context)
if [ "${smaller:-null}" != null ] && [ "$smaller" -lt 131072 ]; then ok "  $smaller fits"; else fail "  no smaller context"; fi
works "  indeed" "${json[@]}" "$big" --memory 250MiB --ctx "$smaller"
[ "$(value out.txt mode)" = '"streaming"' ] || [ "$(value out.txt mode)" = '"resident"' ] || fail "mode $(value out.txt mode)"

# ---- caches that were asked for ---------------------------------------------------------------------
works "--budgets" "${json[@]}" "$big" --budgets 0,20,40MiB,all,auto
sound "--budgets"
[ "$(grep -c '"cache_bytes"' out.txt)" -ge 4 ] || fail "--budgets: $(grep -c '"cache_bytes"' out.txt) caches"
for name in 0 20 40MiB all; do expect "  has $name" out.txt "\"name\": \"$name\""; done

# ---- shards -----------------------------------------------------------------------------------------
works "one file" "${json[@]}" "$model"
weights=$(fact expert_weights) needed=$(fact memory_needed)
works "three shards" "${json[@]}" "$WORK/shards-00001-of-00003.gguf"
sound "three shards"
[ "$(fact expert_weights)" = "$weights" ] || fail "shards: $(fact expert_weights) of experts, in one file $weights"
near "$(fact memory_needed)" "$needed" || fail "shards: $(fact memory_needed) needed, in one file $needed"
mkdir -p parts
cp "$WORK"/shards-0000*.gguf parts/
rm parts/shards-00002-of-00003.gguf
refused 1 "shard 2 of 3 is missing" "a shard that has not begun" "${plan[@]}" parts/shards-00001-of-00003.gguf
refused 1 "name the first shard" "a later shard" "${plan[@]}" "$WORK/shards-00002-of-00003.gguf"

# ---- downloads that have not ended ------------------------------------------------------------------
# unfinished LABEL FILE: its plan is that of the whole file, without a disk
unfinished() {
    works "$1" "${json[@]}" "$2"
    sound "$1"
    for key in layers experts top_k expert_weights dense_weights expert_bytes_per_token kv_cache compute_buffers micro_batch; do
        local now
        now=$(fact $key)
        cp out.txt part.json
        cp whole.json out.txt
        if [ "$now" = "$(fact $key)" ]; then ok "  $key: $now"; else fail "  $key: $now, of the whole file $(fact $key)"; fi
        cp part.json out.txt
    done
    [ -z "$(ls -A "$TMPDIR")" ] || fail "  left behind: $(ls "$TMPDIR")"
}
size=$(stat -c %s "$big")
header=$(grep -abo blk.3.ffn_up_exps "$big" | tail -n 1 | cut -d: -f1)
header=$((header + 65536)) # beyond the last description, whichever that is
head -c $header "$big" >part.gguf
unfinished "only the header" part.gguf
expect "  no disk" out.txt '"disk": null'
expect "  why" out.txt '"disk_reason": ".*has no experts to read"'
[ "$(fact disk)" = null ] || fail "  disk $(fact disk)"
[ "$(fact file_present)" = $header ] || fail "  $(fact file_present) bytes present, of $header"
head -c $((size / 2)) "$big" >half.gguf
unfinished "half of the file" half.gguf
if python3 - "$dir" <<'PY' 2>/dev/null; then
import os, sys
fd = os.open(sys.argv[1] + "/hole", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 24)
sys.exit(os.lseek(fd, 0, os.SEEK_HOLE) >= 1 << 24)
PY
    cp part.gguf hole.gguf
    truncate -s "$size" hole.gguf
    unfinished "a file that is made as long as it will be" hole.gguf
    expect "  holes are not read" out.txt '"disk_reason": ".*has no experts to read"'
else
    echo "note: holes of files are not told here; reading them is not tested"
fi
cp "$WORK"/shards-00002-of-00003.gguf parts/
truncate -s -1000 parts/shards-00003-of-00003.gguf
works "a shard that has not ended" "${json[@]}" parts/shards-00001-of-00003.gguf
sound "a shard that has not ended"
[ "$(fact expert_weights)" = "$weights" ] || fail "shards: $(fact expert_weights) of experts, in one file $weights"
TMPDIR=$dir/nowhere works "nowhere to put a header" "${json[@]}" part.gguf
sound "nowhere to put a header"
[ "$(fact kv_cache)" = null ] || fail "  a KV cache of $(fact kv_cache) from nothing"
expect "  mode" out.txt '"mode": null'
refused 1 "lies beyond the end" "and run does not take it" "$sluice" run -m half.gguf -p Hello

# ---- what is refused --------------------------------------------------------------------------------
head -c 20000 "$big" >cut.gguf
refused 1 "truncated or damaged" "a header that is cut" "${plan[@]}" cut.gguf
: >empty.gguf
refused 1 "the file is empty" "an empty file" "${plan[@]}" empty.gguf
head -c 100000 /dev/urandom >noise.gguf
refused 1 "not a GGUF file" "noise" "${plan[@]}" noise.gguf
refused 1 "No such file" "no file" "${plan[@]}" nothing.gguf
refused 1 "holds no tensors" "a vocabulary" "${plan[@]}" "$vocab_model"
refused 2 "--memory 0: must be a size" "--memory 0" "${plan[@]}" "$big" --memory 0
refused 2 "must be 0..16777216" "--ctx -1" "${plan[@]}" "$big" --ctx -1
refused 2 "must be 0..60" "--probe-seconds 61" "${plan[@]}" "$big" --probe-seconds 61
refused 2 "must be 1.." "--prompt-tokens 0" "${plan[@]}" "$big" --prompt-tokens 0
refused 2 "neither a size" "--budgets many" "${plan[@]}" "$big" --budgets 0,many
refused 2 "neither a size" "--budgets with an end" "${plan[@]}" "$big" --budgets 0,
refused 2 "more than 24 caches" "--budgets without an end" "${plan[@]}" "$big" --budgets "$(seq -s, 25)"
refused 2 "unexpected argument" "two models" "${plan[@]}" "$big" "$big"
SLUICE_CACHE=12x refused 2 "SLUICE_CACHE" "a bad environment" "${plan[@]}" "$big"
works "--probe-seconds 0" "${json[@]}" "$big" --probe-seconds 0
sound "--probe-seconds 0"
expect "  says why" out.txt '"disk_reason": "not measured'

rm -f "$big" half.gguf part.gguf hole.gguf
finish
