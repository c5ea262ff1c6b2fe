#!/usr/bin/env bash
# memory.sh - the memory plan: --memory, --dense, what is refused with which numbers, and that the kernel's own
# peaks stay within what was announced, also inside a control group.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

# 160 MiB of experts, so that a plan is about them and not about the program.
big=$WORK/memory/big.gguf
works "a model with many experts" "$BIN/sluice-mkmoe" --out "$big" --layers 4 --experts 64 --top-k 4 --ff 1024 --embd 512 \
    --vocab-from "$vocab_model" --fill fast
bank=$("$sluice" info --json "$big" | grep -oE '"bank_bytes": *[0-9]+' | grep -oE '[0-9]+$')
[ "${bank:-0}" -gt $((120 << 20)) ] || fail "the model has ${bank:-no} bytes of experts"
run=("$sluice" run -m "$big" -t 2 -c 512 --ubatch 64 -p "Once upon a time" -n 8 --temp 0)

# plan KEY: a number of the plan in out.txt
plan() { sed -n '/"plan": {/,/}/p' out.txt | grep -oE "\"$1\": *[0-9a-z]+" | grep -oE '[0-9a-z]+$'; }

# sound LABEL: the rows add up, the sum is within the limit, and the process's peak within the sum and 2 %
sound() {
    local sum=0 key total limit peak
    for key in process files untouched dense cache scratch; do sum=$((sum + $(plan ${key}_bytes))); done
    total=$(plan total_bytes) limit=$(plan limit_bytes) peak=$(value out.txt peak_memory_bytes)
    if [ "$sum" -ne "$total" ]; then
        fail "$1: the rows are $sum, the plan says $total"
    elif [ "$total" -gt "$limit" ]; then
        fail "$1: a plan of $total with a limit of $limit"
    elif [ "$peak" -gt $((total + total / 50)) ]; then
        fail "$1: a peak of $peak with a plan of $total"
    else
        ok "$1: peak $((peak >> 20)), plan $((total >> 20)), limit $((limit >> 20)) MiB"
    fi
}

# ---- where dense weights live -----------------------------------------------------------------
for where in anon:false mmap:true lock:false; do
    works "--dense ${where%:*}" "${run[@]}" --json --dense "${where%:*}" --cache 20MiB --compare-resident
    [ "$(value out.txt identical)" = true ] || fail "--dense ${where%:*}: other bytes than resident"
    [ "$(plan dense_mapped)" = "${where#*:}" ] || fail "--dense ${where%:*}: dense_mapped is $(plan dense_mapped)"
    [ "$(plan dense_bytes)" -gt $((1 << 20)) ] || fail "--dense ${where%:*}: $(plan dense_bytes) dense bytes"
    [ "${where%:*}" = mmap ] || sound "  --dense ${where%:*}"
    expect "  the plan is announced" err.txt '^memory: plan [0-9]+ MiB of [0-9]+ \(machine or cgroup\): dense [0-9]+'
done
SLUICE_DENSE=mmap works "SLUICE_DENSE=mmap" "${run[@]}" --json
[ "$(plan dense_mapped)" = true ] || fail "SLUICE_DENSE=mmap: dense_mapped is $(plan dense_mapped)"
refused 2 "--dense ram: must be anon, mmap or lock" "--dense ram" "${run[@]}" --dense ram

# Locking is refused to whoever has neither the right nor the limit. Root has the right: take it away.
# Where that cannot be done there is nothing to see.
unlocked=(prlimit --memlock=65536:65536)
[ "$(id -u)" -ne 0 ] || unlocked+=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock)
if "${unlocked[@]}" true 2>/dev/null; then
    refused 1 "RLIMIT_MEMLOCK is 0.1 MiB" "--dense lock without the right" "${unlocked[@]}" "${run[@]}" --dense lock -q
    works "  and --dense anon there" "${unlocked[@]}" "${run[@]}" --dense anon
else
    echo "note: the right to lock memory cannot be given up here; its refusal is not tested"
fi

# ---- a ceiling --------------------------------------------------------------------------------
for bad in 0 auto -1 12x ""; do
    refused 2 "--memory $bad: must be a size" "--memory '$bad'" "${run[@]}" --memory "$bad"
done
SLUICE_MEMORY=3x refused 2 "SLUICE_MEMORY" "SLUICE_MEMORY=3x" "${run[@]}"
refused 1 "of 10 MiB that memory allows" "--memory too small for anything" "${run[@]}" --memory 10MiB
expect "  with every row" err.txt 'even without a cache.*dense [0-9]+.*cache [0-9]+.*process [0-9]+.*untouched [0-9]+.*files [0-9]+.*scratch [0-9]+'
refused 1 "the cache does not fit" "a fixed cache that does not fit" "${run[@]}" --memory 200MiB --cache 150MiB
expect "  with every row" err.txt 'of 200 MiB that memory allows.*dense [0-9]+.*cache 1[0-9]+.*process [0-9]+'
works "a fixed cache that fits" "${run[@]}" --json --memory 600MiB --cache 100MiB
sound "  "
[ "$(plan limit_by_setting)" = true ] || fail "the limit is not the ceiling"
works "no ceiling: auto takes all experts" "${run[@]}" --json
sound "  "
all=$(plan cache_bytes)
need=$(($(plan total_bytes) - all))
# Half of the experts fit.
works "a ceiling: auto shrinks" "${run[@]}" --json --memory $((need + all / 2 + (48 << 20)))B --compare-resident
sound "  "
[ "$(plan cache_bytes)" -lt $((all * 3 / 4)) ] && [ "$(plan cache_bytes)" -gt $((all / 4)) ] ||
    fail "a cache of $(plan cache_bytes) bytes, with room for half of $all"
[ "$(value out.txt identical)" = true ] || fail "a ceiling changes bytes"
# The floor is left free.
works "a floor of the ceiling" "${run[@]}" --json --memory $((need + all))B --cache-floor 60MiB
[ $(($(plan total_bytes) + (60 << 20))) -le "$(plan limit_bytes)" ] || fail "no floor: $(plan total_bytes) of $(plan limit_bytes)"
SLUICE_MEMORY=$((need + all))B works "SLUICE_MEMORY" "${run[@]}" --json
[ "$(plan limit_by_setting)" = true ] || fail "SLUICE_MEMORY does not limit"

# ---- in a control group -----------------------------------------------------------------------
group=
v1=/sys/fs/cgroup/memory/sluice-test-$$
v2=/sys/fs/cgroup/sluice-test-$$
if [ -d /sys/fs/cgroup/memory ] && mkdir "$v1" 2>/dev/null; then
    group=$v1 limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && mkdir "$v2" 2>/dev/null; then
    group=$v2 limit=memory.max peak=memory.peak
    [ -f "$v2/$peak" ] || { rmdir "$v2"; group=; }
fi
grouped() { # LIMIT COMMAND...: run it in the group
    echo "$1" >"$group/$limit" || return 1
    shift
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}
if [ -n "$group" ] && [ -w "$group/$limit" ]; then
    trap 'rmdir "$group" 2>/dev/null' EXIT
    for size in $((need + all / 3 + (256 << 20))) $((need + (110 << 20))); do
        [ ! -w "$group/$peak" ] || echo 0 >"$group/$peak"
        works "in a cgroup of $((size >> 20)) MiB" grouped "$size" "${run[@]}" --json
        got=$(cat "$group/$peak")
        total=$(plan total_bytes)
        if [ "$(plan limit_bytes)" -le "$size" ] && [ "$total" -le "$size" ]; then
            ok "  a plan of $((total >> 20)) MiB"
        else
            fail "  a plan of $total, a limit of $(plan limit_bytes)"
        fi
        if [ "$got" -gt 0 ] && [ "$got" -le $((total + total / 50)) ]; then
            ok "  the group's peak: $((got >> 20)) MiB"
        else
            fail "  the group's peak is $got, the plan $total"
        fi
    done
    refused 1 "that machine and cgroup leave" "in a cgroup that is too small" grouped $((need / 2)) "${run[@]}"
else
    echo "note: no control group can be made here; plans inside one are not tested"
fi
rm -f "$big"
finish
