# shellcheck shell=bash
# Common part of the tests with other releases and builds of llama.cpp: build the plug-in, the command and the gates'
# programs against one of them. Sourced by few.sh, all.sh and the tests of tests/node. Environment: CMAKE, when cmake is not in
# the path.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# 77 is what ctest takes for a skipped test; the note is its reason.
skip() { echo "skipped: $*"; exit 77; }

# Build against llama.cpp RELEASE of KIND (see scripts/llama.sh). Sets $LLAMA_BIN, $LLAMA_SRC and $LLAMA_VERSION, and $BIN.
build_release() { # RELEASE KIND STAGE DIR TARGET...
    local release=$1 kind=$2 stage=$3 dir=$4 out log
    shift 4
    mkdir -p "$dir"
    log=$dir/build.log
    if [ "$kind" = npm ] && [ "$(uname -m)" != x86_64 ]; then skip "npm's prebuilt libraries are for x86-64 here"; fi
    if ! out=$("$root/scripts/llama.sh" "$stage" "$kind" "$release" 2>"$log"); then
        if grep -q "npm could not fetch" "$log"; then skip "$(tail -n 1 "$log")"; fi
        tail -n 20 "$log"
        exit 1
    fi
    LLAMA_BIN=$(sed -n 's/^build=//p' <<<"$out")/bin
    LLAMA_SRC=$(sed -n 's/^source=//p' <<<"$out")
    LLAMA_VERSION=$(sed -n 's/^version=//p' <<<"$out")
    BIN=$dir/build/bin
    export LLAMA_BIN LLAMA_SRC LLAMA_VERSION BIN
    if ! { "${CMAKE:-cmake}" -S "$root" -B "$dir/build" -G Ninja -DSLUICE_TESTS=ON -DSLUICE_LLAMA_KIND="$kind" \
        -DSLUICE_LLAMA_RELEASE="$release" && "${CMAKE:-cmake}" --build "$dir/build" --target "$@"; } >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "FAIL sluice does not build against llama.cpp $release ($kind): $log"
        exit 1
    fi
}

# The command itself with the demo model: streamed and resident logits are equal, byte by byte.
check_command() {
    local out
    if out=$("$BIN/sluice" run -m "$root/models/demo.gguf" -p $'Request: Tell me a story about a baker.\n\n' -n 24 --temp 0 \
        --cache 3MiB --force-cache --compare-resident 2>&1) && grep -q '^identical to resident: yes' <<<"$out" &&
        grep -qE '^streaming [1-9][0-9]* expert tensors' <<<"$out"; then
        echo "ok   sluice run: $(grep -E '^ +compared' <<<"$out" | tr -s ' ')"
    else
        echo "FAIL sluice run: $(tail -n 3 <<<"$out")"
        return 1
    fi
}

# Every gate but perplexity, whose program is llama-perplexity of the pinned release.
# shellcheck disable=SC2034 # for those who source this
all_gates=(subset few archs types layouts shapes waves slots concurrency dense matrix lossy cold stock-programs)

# Gates by name. One line each; what they say is in $WORK/GATE.log.
run_gates() { # GATE...
    local gate run word rc=0
    for gate in "$@"; do
        case $gate in
        '') continue ;;
        stock-programs) run=("$root/tests/gates/stock-programs.sh") ;;
        lossy) run=("$root/tests/gates/lossy.sh" archs shapes) ;;
        cold) run=("$root/tests/gates/cold.sh" archs types refused) ;;
        *) run=("$root/tests/gates/run-gates.sh" "$gate") ;;
        esac
        if "${run[@]}" >"$WORK/$gate.log" 2>&1; then word=ok; else word=FAIL rc=1; fi
        [ $word = ok ] || grep '^FAIL' "$WORK/$gate.log" | head -n 20 || true
        printf '%-4s %s: %s\n' "$word" "$gate" "$(tail -n 1 "$WORK/$gate.log")"
    done
    return $rc
}
