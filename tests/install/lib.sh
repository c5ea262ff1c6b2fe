# shellcheck shell=bash
# What the scripts of this folder share. Sourced. Environment: see install.cmake.
set -uo pipefail
: "${BUILD:?}" "${SRC:?}" "${LLAMA_BIN:?}" "${TREE:?}"
export LC_ALL=C
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH LD_PRELOAD LD_LIBRARY_PATH DESTDIR v

# shellcheck disable=SC2034 # used by the scripts that source this
demo=$SRC/models/demo.gguf
# shellcheck disable=SC2034
prompt=$'Request: Tell me a story about a baker.\n\n'
checks=0
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }

# works LABEL COMMAND...: exits 0; its output is in $work/out and $work/err
works() {
    local label=$1
    shift
    if "$@" >"$work/out" 2>"$work/err" </dev/null; then ok "$label"; else fail "$label: exit $?: $(tail -n 3 "$work/err" | head -c 500)"; fi
}

# same LABEL WANTED GOT
same() {
    if [ -n "$2" ] && [ "$2" = "$3" ]; then ok "$1"; else fail "$1: '$(head -c 200 <<<"$3")', not '$(head -c 200 <<<"$2")'"; fi
}

finish() {
    echo "$((checks - failures)) of $checks checks passed"
    [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
    exit
}
