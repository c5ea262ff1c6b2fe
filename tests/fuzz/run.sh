#!/usr/bin/env bash
# run.sh TARGET|all SECONDS [BUILD] - run a fuzz target (docs/fuzzing.md) for so long, or each of them.
#
# The targets are built by clang in BUILD (default build-fuzz). A run begins with the committed inputs of
# tests/fuzz/corpus/TARGET. Of one target, the inputs that reach something new are kept in BUILD/corpus/TARGET and the next run
# goes on from them; with `all` they are thrown away. An input that ends in a report is left in BUILD/found, and its
# report is printed.
#
# A line of figures per target: executions, seconds, edges that were reached, findings. Exit code 1: there was a finding; 77:
# there is no clang with libFuzzer here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
what=$1 seconds=$2 build=${3:-$root/build-fuzz}
export LC_ALL=C

mkdir -p "$build"
build=$(cd "$build" && pwd)
printf '#include <stddef.h>\nint LLVMFuzzerTestOneInput(const unsigned char *d, size_t n) { return d && n ? 0 : 0; }\n' >"$build/probe.c"
if ! clang -fsanitize=fuzzer,address,undefined "$build/probe.c" -o "$build/probe" 2>"$build/probe.log"; then
    echo "fuzz: clang with libFuzzer is not here (Debian: clang and libclang-rt-dev): nothing was run" >&2
    exit 77
fi
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DSLUICE_TESTS=OFF -DSLUICE_FUZZ=ON \
    >"$build/configure.log" 2>&1 || { tail -n 20 "$build/configure.log"; exit 1; }
cmake --build "$build" --target fuzz-targets >"$build/build.log" 2>&1 || { tail -n 40 "$build/build.log"; exit 1; }

# Scratch files in memory: each input is written to one, or to several.
scratch=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/sluice-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export SLUICE_FUZZ_DIR=$scratch
mkdir -p "$build/found"

run() { # TARGET DIR-FOR-NEW-INPUTS
    local target=$1 new=$2 log=$build/$1.log rc=0 dict=()
    mkdir -p "$new"
    [ ! -f "$here/$target.dict" ] || dict=(-dict="$here/$target.dict")
    "$build/bin/fuzz-$target" -max_total_time="$seconds" -max_len=16384 -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/found/$target-" "${dict[@]}" "$new" "$here/corpus/$target" >"$log" 2>&1 || rc=$?
    awk -v target="$target" -v rc="$rc" '
        /^#[0-9]+/ { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1) }
        /^Done / { seconds = $5 }
        /number_of_executed_units/ { runs = $2 }
        END { printf "%-8s %d executions, %s seconds, %d edges, %d findings\n", target, runs, seconds ? seconds : "?", edges, rc != 0 }
    ' "$log"
    [ $rc -eq 0 ] || { grep -avE '^#[0-9]+|^$' "$log" | head -n 60 | cut -c1-300; return 1; }
}

status=0
if [ "$what" = all ]; then
    for source in "$here"/fuzz_*.c; do
        target=$(basename "$source" .c)
        run "${target#fuzz_}" "$scratch/new/$target" || status=1
    done
else
    [ -f "$here/fuzz_$what.c" ] || { echo "fuzz: there is no target called $what" >&2; exit 2; }
    run "$what" "$build/corpus/$what" || status=1
fi
exit $status
