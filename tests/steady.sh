#!/usr/bin/env bash
# steady.sh [-n TIMES] [-b BUILD] [CTEST OPTION...] - run tests again and again on a machine that has no time for them.
#
# No verdict may depend on how fast or how busy the machine is. So the tests run TIMES (5) times, one after another, beside
# eight busy loops and a reader that takes what the disk gives. For each test it prints how often it passed, and it ends with 1
# when any of them failed once. Options choose tests as ctest's do: -R '^faults-' for example; without any, those of `make test`.
# BUILD (build-tests) must be built. What a failed test said is in BUILD/steady/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
times=5
build=$root/build-tests
while [ $# -gt 1 ]; do
    case $1 in
    -n) times=$2 ;;
    -b) build=$(cd "$2" && pwd) ;;
    *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || set -- -LE long
[ -f "$build/CTestTestfile.cmake" ] || { echo "steady: no tests in $build: run make test first" >&2; exit 2; }
logs=$build/steady
rm -rf "$logs"
mkdir -p "$logs"

load=()
trap 'kill "${load[@]}" 2>/dev/null || true; rm -f "$logs/data"' EXIT
for _ in 1 2 3 4 5 6 7 8; do
    while :; do :; done &
    load+=($!)
done
head -c 512M /dev/urandom >"$logs/data"
direct=iflag=direct # past the page cache, where the file system allows it
dd if="$logs/data" of=/dev/null bs=1M count=1 $direct 2>/dev/null || direct=
# shellcheck disable=SC2086 # no word when it is empty
while :; do dd if="$logs/data" of=/dev/null bs=1M $direct 2>/dev/null; done &
load+=($!)

for ((i = 1; i <= times; i++)); do
    echo "steady: run $i of $times"
    ctest --test-dir "$build" --no-tests=error --output-on-failure -j 2 "$@" >"$logs/run-$i.log" 2>&1 || true
    grep -E '^ *[0-9]+/[0-9]+ Test .*(\*\*\*|Not Run)' "$logs/run-$i.log" | grep -v 'Skipped' || true
done
# "  3/75 Test  #3: unit-file ....   Passed    0.14 sec"
awk -v times="$times" '
    match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: [^ ]+/) {
        name = substr($0, RSTART, RLENGTH)
        sub(/.*: /, "", name)
        if (!(name in ran)) order[++n] = name
        ran[name]++
        if (/ Passed /) passed[name]++
        if (/\*\*\*Skipped/) skipped[name]++
    }
    END {
        for (i = 1; i <= n; i++) {
            name = order[i]
            printf "%2d of %d%s  %s\n", passed[name], times, skipped[name] ? " (" skipped[name] " skipped)" : "", name
            if (passed[name] + skipped[name] < times) failed++
        }
        printf "steady: %d tests, %d of them failed\n", n, failed
        exit n == 0 || failed > 0
    }' "$logs"/run-*.log
