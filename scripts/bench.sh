#!/usr/bin/env bash
# Measure generation at several cache sizes, interleaved, inside a memory limit.
#
#   scripts/bench.sh MODEL CACHE...        e.g. scripts/bench.sh model.gguf 2000 4000 (MiB)
#
#   MEMORY=6G   limit of a cgroup (v1, needs root); empty: none       RUNS=3  runs of each
#   TOKENS=48   tokens to generate     BUILD=build                    ARGS="" more options for sluice run
#
# Order is reversed on every second run, caches of the kernel are dropped before each where it may,
# and medians are printed: on shared machines a single figure means little.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?usage: scripts/bench.sh MODEL CACHE...}
shift
caches=("$@")
[ ${#caches[@]} -gt 0 ] || caches=(auto)
memory=${MEMORY-6G} runs=${RUNS:-3} tokens=${TOKENS:-48} sluice=${BUILD:-build}/bin/sluice
group=/sys/fs/cgroup/memory/sluice-bench
out=$(mktemp -d)
cleanup() { rm -rf "$out"; rmdir "$group" 2>/dev/null || true; }
trap cleanup EXIT

limited=no
if [ -n "$memory" ] && mkdir -p "$group" 2>/dev/null && echo "$memory" >"$group/memory.limit_in_bytes" 2>/dev/null; then
    limited=yes
fi

one() { # one CACHE FILE
    sync
    echo 3 2>/dev/null >/proc/sys/vm/drop_caches || true
    (
        if [ $limited = yes ]; then
            sh -c 'echo $PPID' >"$group/cgroup.procs"
            echo 0 >"$group/memory.max_usage_in_bytes"
        fi
        # shellcheck disable=SC2086
        exec "$sluice" run -m "$model" -p "The quick brown fox jumps over the lazy dog" -n "$tokens" --temp 0 \
            --cache "$1" --json ${ARGS:-}
    ) >"$2" 2>/dev/null || { echo "a run failed at cache $1" >&2; exit 1; }
    if [ $limited = yes ]; then
        echo "\"group_peak\": $(cat "$group/memory.max_usage_in_bytes")" >>"$2"
    fi
}

for ((r = 0; r < runs; r++)); do
    order=("${caches[@]}")
    if ((r % 2)); then
        for ((i = 0; i < ${#caches[@]}; i++)); do order[i]=${caches[${#caches[@]} - 1 - i]}; done
    fi
    for c in "${order[@]}"; do one "$c" "$out/$c.$r.json"; done
done

value() { # value KEY FILE [nth]: the nth occurrence of a number
    sed -n 's/.*"'"$1"'": *\([0-9.eE+-]*\).*/\1/p' "$2" | sed -n "${3:-1}p"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
column() { # column CACHE KEY NTH
    local r
    for ((r = 0; r < runs; r++)); do value "$2" "$out/$1.$r.json" "$3"; done | median
}

echo "$(date +%F), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), memory limit $([ $limited = yes ] && echo "$memory" || echo none), $runs runs, medians"
printf '%-10s %12s %12s %12s %8s %8s %10s %10s\n' cache 'gen tok/s' 'prompt tok/s' 'MiB/token' 'hit %' 'load s' 'wait s' 'peak MiB'
for c in "${caches[@]}"; do
    peak=$(column "$c" group_peak 1)
    [ -n "$peak" ] || peak=$(column "$c" peak_memory_bytes 1)
    printf '%-10s %12.2f %12.2f %12.1f %8.1f %8.2f %10.2f %10.0f\n' "$c" "$(column "$c" tokens_per_second 2)" \
        "$(column "$c" tokens_per_second 1)" "$(column "$c" mib_per_token 2)" \
        "$(column "$c" hit_rate 2 | awk '{ print $1 * 100 }')" "$(column "$c" load_seconds 1)" \
        "$(column "$c" wait_seconds 2)" "$(awk -v p="$peak" 'BEGIN { print p / 1048576 }')"
done
