# shellcheck shell=bash
# What the scripts of this folder share. Sourced. Environment: see cli.cmake.
#
# A check runs a command and looks at its exit code and at what it printed. A user's mistake must be
# answered by exactly one line that starts with the command's name: a crash, a backtrace or llama.cpp's
# own log would not match.
set -uo pipefail
: "${BIN:?}" "${LLAMA_BIN:?}" "${LLAMA_SRC:?}" "${WORK:?}"
export LC_ALL=C
# Settings of the caller must not leak into the tests.
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH LD_PRELOAD v

# shellcheck disable=SC2034 # used by the scripts that source this
sluice=$BIN/sluice
# shellcheck disable=SC2034
model=$WORK/model.gguf         # made by make-model.sh: 2 layers, 8 experts, top-k 2, a real tokenizer
# shellcheck disable=SC2034
vocab_model=$LLAMA_SRC/models/ggml-vocab-gpt-2.gguf
checks=0
failures=0

dir=$WORK/$(basename "$0" .sh)
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir" || exit 1

ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }

finish() {
    echo "$((checks - failures)) of $checks checks passed"
    if [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]; then
        cd / && rm -rf "$dir"
        exit 0
    fi
    exit 1
}

# try COMMAND...: run it; sets $rc, out.txt and err.txt
try() {
    "$@" >out.txt 2>err.txt </dev/null
    rc=$?
}

# refused CODE TEXT LABEL COMMAND...: fails with CODE and exactly one line, which contains TEXT
refused() {
    local code=$1 text=$2 label=$3
    shift 3
    try "$@"
    if [ "$rc" -ne "$code" ]; then
        fail "$label: exit $rc, not $code: $(head -c 300 err.txt)"
    elif [ "$(wc -l <err.txt)" -ne 1 ] || ! grep -q '^sluice[ a-z]*: ' err.txt; then
        fail "$label: not one line of sluice's: $(head -c 300 err.txt)"
    elif ! grep -qF -- "$text" err.txt; then
        fail "$label: '$text' is not in: $(cat err.txt)"
    elif [ -s out.txt ]; then
        fail "$label: it printed to standard output: $(head -c 100 out.txt)"
    else
        ok "$label: $(cut -c1-150 err.txt)"
    fi
}

# works LABEL COMMAND...: exits 0
works() {
    local label=$1
    shift
    try "$@"
    if [ "$rc" -eq 0 ]; then ok "$label"; else fail "$label: exit $rc: $(head -c 300 err.txt)"; fi
}

# expect LABEL FILE REGEX: some line of the file matches
expect() {
    if grep -qE -- "$3" "$2"; then ok "$1"; else fail "$1: no line of $2 matches '$3': $(head -c 400 "$2")"; fi
}

# value FILE KEY: the first number, string, true or false of that key in a JSON file
value() {
    grep -oE "\"$2\": *(\"([^\"\\\\]|\\\\.)*\"|[-0-9.e+a-z]+)" "$1" | head -n 1 | sed 's/^"[^"]*": *//'
}
