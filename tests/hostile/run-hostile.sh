#!/usr/bin/env bash
# run-hostile.sh - crafted models (craft.c) and models at the edges of what is allowed, through every way in: `sluice
# info`, `plan`, `run` and a stock program with the plug-in. Each ends in one clear line, or computes the bytes of a
# resident run; none ends by a signal, unless the stock program without the plug-in does so too.
#
# Environment: BIN (our programs), LLAMA_BIN (llama.cpp's), LLAMA_SRC (its source, for a vocabulary), WORK (to write in).
# By hand also with a build with AddressSanitizer, which sees reads beyond an end (five minutes):
#   cmake -B build-asan -G Ninja -DSLUICE_SANITIZE=address && cmake --build build-asan
#   BIN=build-asan/bin LLAMA_BIN=... LLAMA_SRC=... WORK=/tmp/hostile tests/hostile/run-hostile.sh
set -uo pipefail
: "${BIN:?}" "${LLAMA_BIN:?}" "${LLAMA_SRC:?}" "${WORK:?}"
export LC_ALL=C
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH LD_PRELOAD v
# Signals stay signals, and what llama.cpp asks too much memory for is refused as it would be without.
export ASAN_OPTIONS="${ASAN_OPTIONS:-handle_segv=0:handle_abort=0:allocator_may_return_null=1}"
export GGML_NO_BACKTRACE=1 # a stock program that stops by an assertion need not start a debugger

bin=$(cd "$BIN" && pwd)
mkdir -p "$WORK"
cd "$WORK" || exit 1
rm -f ./*.gguf
checks=0
failures=0
ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }

works() { "$@" >log 2>&1 || { fail "$*: $(tail -n 1 log)"; exit 1; }; }

# Expert numbers at graph level: out of range, repeated, as many as there are.
for settings in SLUICE_CACHE=auto SLUICE_CACHE=off SLUICE_KERNEL=reference "SLUICE_CACHE=100KiB SLUICE_FORCE_CACHE=1"; do
    # shellcheck disable=SC2086 # settings are words
    if env $settings "$bin/hostile-ids" ids.bin >log 2>&1; then ok "ids [$settings]"; else fail "ids [$settings]: $(tail -n 3 log)"; fi
done
if "$bin/hostile-ids" ids.bin plain >log 2>&1; then ok "ids, weights that do not stream"; else fail "ids, plain: $(tail -n 3 log)"; fi

# Run COMMAND; sets $rc, out and err. A sanitizer's report is a failure of its own.
try() {
    timeout 120 "$@" >out 2>err </dev/null
    rc=$?
    if grep -aqE "AddressSanitizer|runtime error|LeakSanitizer" err; then
        fail "$*: $(grep -aE -m 1 'AddressSanitizer|runtime error|LeakSanitizer' err)"
    fi
}

# One line of ours on standard error, exit code 1, nothing on standard output.
one_line() { [ $rc -eq 1 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q '^sluice[ a-z]*: ' err && [ ! -s out ]; }

logits=(--prefill 7 --decode 3)

# The stock program with the plug-in does what it does without; where that is a signal, an error is better. (What the
# shell says of signals is of no interest.)
stock() { # FILE
    local with_rc
    local -x ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # llama.cpp leaks when a load fails, with the plug-in and without
    rm -f with without
    GGML_BACKEND_PATH=$bin/libggml-sluice.so try "$bin/sluice-logits" --out with "${logits[@]}" "$1" 2>/dev/null
    with_rc=$rc
    [ $with_rc -eq 0 ] || [ $with_rc -ge 124 ] || return 0 # an error, whatever it is without
    cp err err.with
    try "$bin/sluice-logits" --out without "${logits[@]}" "$1" 2>/dev/null
    if [ $with_rc -ge 124 ] && [ $rc -lt 124 ]; then
        bad="$bad; the stock program died with the plug-in ($with_rc): $(tail -n 1 err.with)"
    elif [ $with_rc -eq 0 ] && ! { [ $rc -eq 0 ] && [ -s with ] && cmp -s with without; }; then
        bad="$bad; other logits than without the plug-in (exit $rc)"
    fi
}

# Runs, as it does resident. A plan takes a second of computing, so not all get one.
same() { # LABEL FILE [plan]
    local bad=""
    for command in info ${3:+"plan --probe-seconds 0"}; do
        # shellcheck disable=SC2086 # words
        try "$bin/sluice" $command "$2"
        [ $rc -eq 0 ] || bad="$bad; $command: exit $rc: $(head -c 200 err)"
    done
    try "$bin/sluice" run -m "$2" -p Hello -n 3 --temp 0
    [ $rc -eq 0 ] || bad="$bad; run: exit $rc: $(head -c 200 err)"
    mv out streamed
    try "$bin/sluice" run -m "$2" -p Hello -n 3 --temp 0 --resident
    [ $rc -eq 0 ] && cmp -s out streamed || bad="$bad; other text than resident (exit $rc)"
    stock "$2"
    # A prompt that is nothing but NaN is an error of sluice-logits, with the plug-in and without.
    [ -s with ] || grep -q "not finite" err || bad="$bad; the stock program failed: $(head -c 200 err)"
    [ -z "$bad" ] && ok "same: $1" || fail "$1${bad/;/:}"
}

# Refused by `sluice run` with TEXT; by info too, unless only llama.cpp can know; a plan never ends by a signal.
refused() { # ours|llama TEXT LABEL FILE
    local bad="" line
    try "$bin/sluice" run -m "$4" -p Hello -n 3 --temp 0
    line=$(cat err)
    one_line || bad="$bad; run: exit $rc, not one line: $(head -c 200 err)"
    grep -qF -- "$2" err || bad="$bad; run: '$2' is not in: $(head -c 300 err)"
    try "$bin/sluice" info "$4"
    if [ "$1" = ours ]; then
        one_line && grep -qF -- "$2" err || bad="$bad; info: exit $rc: $(head -c 200 err)"
    else
        [ $rc -eq 0 ] || one_line || bad="$bad; info: exit $rc: $(head -c 200 err)"
    fi
    try "$bin/sluice" plan --probe-seconds 0 "$4"
    [ $rc -eq 0 ] || one_line || bad="$bad; plan: exit $rc: $(head -c 200 err)"
    stock "$4"
    [ -z "$bad" ] && ok "refused: $3: ${line:0:130}" || fail "$3${bad/;/:}"
}

shape=(--embd 32 --ff 32 --type-gate-up Q8_0 --type-down Q8_0 --type-dense Q8_0
    --vocab-from "$LLAMA_SRC/models/ggml-vocab-llama-spm.gguf")
works "$bin/sluice-mkmoe" --out model.gguf --layers 2 --experts 8 --top-k 2 "${shape[@]}"

craft() { works "$bin/hostile-craft" model.gguf c.gguf "$@"; }
as_is() { craft "$@" && same "$*" c.gguf; }
ours() { local text=$1; shift; craft "$@" && refused ours "$text" "$*" c.gguf; }
llama() { local text=$1; shift; craft "$@" && refused llama "$text" "$*" c.gguf; }
gate=blk.0.ffn_gate_exps.weight up=blk.0.ffn_up_exps.weight router=blk.0.ffn_gate_inp.weight
huge=9223372036854775807

# Routers that do not choose: no numbers, one too large, all alike.
as_is fill=$router:nan
as_is fillrow=$router:3:nan
as_is fillrow=$router:3:inf
as_is fill=$router:zero
# How many experts, and how many of them for a token.
as_is u32=qwen3moe.expert_used_count:1
as_is u32=qwen3moe.expert_used_count:8
ours "claims to use none of 8" u32=qwen3moe.expert_used_count:0
ours "claims to use 9 of 8" u32=qwen3moe.expert_used_count:9
ours "claims to use 2 of 0" u32=qwen3moe.expert_count:0
ours "supports 1024" u32=qwen3moe.expert_count:1025
ours "supports 1024" u32=qwen3moe.expert_count:4294967295
llama "wrong shape" u32=qwen3moe.expert_count:0 u32=qwen3moe.expert_used_count:0
llama "wrong shape" u32=qwen3moe.expert_count:16
llama "wrong shape" u32=qwen3moe.expert_count:4
# Shapes.
ours "impossible shape" dim=$gate:2:$huge
ours "impossible shape" dim=$gate:1:4611686018427387904
ours "impossible shape" dim=$gate:0:-32
ours "impossible shape" dim=$gate:1:4294967296 dim=$gate:2:4294967296 # the product is 0 in 64 bits
ours "impossible shape" type=$gate:10 dim=$gate:0:-256 # Q2_K: more values than fit, of fewer bytes
ours "impossible shape" type=$gate:10 dim=$gate:0:256 dim=$gate:1:$((1 << 54)) dim=$gate:2:4
ours "impossible shape" dim=$gate:0:0
ours "impossible shape" dim=$gate:1:0
ours "impossible shape" dim=$gate:2:0
ours "beyond the end" dim=$gate:1:1099511627776
ours "impossible shape" ndims=$gate:0
ours "dimensions" ndims=$gate:5
ours "dimensions" ndims=$gate:64
ours "dimensions" ndims=$gate:4294967295
as_is ndims=$gate:4
llama "wrong shape" ndims=$gate:4 dim=$gate:2:4 dim=$gate:3:2
llama "wrong shape" ndims=$gate:2 dim=$gate:1:256
# Types: unknown ones, ones that are gone, and ones that are there but not for weights, in a file that is else whole.
ours "does not know" type=$gate:4096
ours "does not know" type=$gate:-1
ours "impossible shape" type=$gate:4
ours "nothing can be multiplied" type=$gate:9 bytes=$gate:$((32 * 32 * 8 / 32 * 36)) layout=32
ours "nothing can be multiplied" type=$gate:26 bytes=$gate:$((32 * 32 * 8 * 4)) layout=32
ours "nothing can be multiplied" type=blk.0.attn_q.weight:26 bytes=blk.0.attn_q.weight:$((32 * 128 * 4)) layout=32
as_is type=$gate:1 bytes=$gate:$((32 * 32 * 8 * 2)) layout=32
# Offsets: beyond the end, around it, on another tensor, between alignments.
ours "beyond the end" offset=$gate:1000000000000
ours "beyond the end" offset=$gate:-32
llama "offset" over=$gate:$up
llama "offset" over=$up:$gate
llama "offset" offset=$gate:1
# Alignments.
ours "alignment 0" u32=general.alignment:0
ours "alignment 3" u32=general.alignment:3
ours "beyond the end" u32=general.alignment:2147483648
ours "not a 32-bit number" u64=general.alignment:32
as_is layout=32
as_is layout=65536
llama "TENSOR_ALIGNMENT" layout=1
# Names and counts.
llama "duplicate tensor" name=$gate:$up
llama "duplicate key" twice=qwen3moe.expert_count
ours "damaged" tensors=28
llama "not found" tensors=26
ours "cannot hold" tensors=4611686018427387904
ours "truncated" pairs=100
ours "beyond the end" cut=1

# A model with one expert has nothing to choose and nothing to stream; a dense one has none.
works "$bin/sluice-mkmoe" --out one.gguf --layers 2 --experts 1 --top-k 1 "${shape[@]}"
same "one expert" one.gguf plan
"$LLAMA_BIN/test-llama-archs" -a qwen3 -o . >/dev/null 2>&1
same "no experts (dense)" qwen3-dense.gguf plan

# As many experts as llama.cpp allows.
works "$bin/sluice-mkmoe" --out model.gguf --layers 2 --experts 1024 --top-k 8 "${shape[@]}"
same "1024 experts, 8 of them" model.gguf plan
for k in 1 64 128; do
    craft u32=qwen3moe.expert_used_count:$k
    same "1024 experts, $k of them" c.gguf
done
# A node per expert of a token does not fit into llama.cpp's graph of two layers; it stops by an assertion.
llama "llama.cpp stopped" u32=qwen3moe.expert_used_count:1024

# 130 shards, most with one tensor; then with more shards than tensors.
works "$bin/sluice-mkmoe" --out whole.gguf --layers 12 --experts 8 --top-k 2 "${shape[@]}"
works "$bin/sluice-mkmoe" --out s.gguf --layers 12 --experts 8 --top-k 2 "${shape[@]}" --shards 130
works "$bin/sluice-mkmoe" --out few.gguf --layers 2 --experts 8 --top-k 2 "${shape[@]}" --shards 130
first=s-00001-of-00130.gguf
shard() { printf 's-%05d-of-00130.gguf' "$1"; }
same "130 shards" $first plan
mv with with.shards
GGML_BACKEND_PATH=$bin/libggml-sluice.so "$bin/sluice-logits" --out with "${logits[@]}" whole.gguf >/dev/null 2>&1
if cmp -s with with.shards; then ok "130 shards: as in one file"; else fail "130 shards: other logits than in one file"; fi
same "130 shards, some without tensors" few-00001-of-00130.gguf plan
mv "$(shard 77)" away
refused ours "shard 77 of 130 is missing" "a missing shard" $first
cp "$(shard 78)" "$(shard 77)"
refused ours "is shard 78 of 130, but shard 77" "a shard twice" $first
cp away "$(shard 77)"
mv "$(shard 10)" away && mv "$(shard 11)" "$(shard 10)" && mv away "$(shard 11)"
refused ours "is shard 11 of 130, but shard 10" "two shards changed places" $first
mv "$(shard 10)" away && mv "$(shard 11)" "$(shard 10)" && mv away "$(shard 11)"
refused ours "name the first shard" "a later shard" "$(shard 2)"
cp $first away
for count in 129 131 1000 65535; do
    works "$bin/hostile-craft" away $first u16=split.count:$count
    refused ours "" "the first shard says that there are $count" $first
done
works "$bin/hostile-craft" away $first u64=split.count:130
refused ours "not a 16-bit number" "a count of 64 bits" $first
for count in 0 1; do # one file, with a thirtieth of the tensors
    works "$bin/hostile-craft" away $first u16=split.count:$count
    refused llama "" "the first shard says that there are $count" $first
done
cp away $first
cp "$(shard 50)" away
works "$bin/hostile-craft" away "$(shard 50)" u16=split.count:129
refused ours "is shard 50 of 129, but shard 50 of 130" "a shard of another set" $first
works "$bin/hostile-craft" away "$(shard 50)" u16=split.no:65535
refused ours "is shard 65536 of 130, but shard 50" "a shard with an absurd number" $first
cp away "$(shard 50)"
works "$bin/hostile-craft" away "$(shard 50)" "name=$(strings -n 12 away | grep -m 1 '^blk'):blk.0.attn_q.weight"
refused llama "" "a shard with a tensor that another has" $first
cp away "$(shard 50)"
same "130 shards, put back" $first

echo "$((checks - failures)) of $checks checks passed"
if [ "$failures" -eq 0 ]; then rm -f ./*.gguf away with without with.shards streamed; fi
[ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
