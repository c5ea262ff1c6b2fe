#!/usr/bin/env bash
# run.sh [TOKENS] - an endurance run: programs that stream from one disk for TOKENS tokens in all (100,000), while budgets
# change, reads fail, clients hang up and processes are killed. docs/endurance.md says what is asserted.
#
# Environment: BIN (our programs), LLAMA_BIN (llama.cpp's), WORK (to write in), ENDURANCE_SEED (the time),
# SANITIZED=1 (programs with a sanitizer: only the soaks and runs without a preloaded library, and memory is not judged).
# Without them those of ./build-tests are taken.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tokens=${1:-100000}
[[ $tokens =~ ^[0-9]+$ ]] && [ "$tokens" -ge 1000 ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
BIN=$(cd "${BIN:-$root/build-tests/bin}" && pwd)
# As the tests' own environment has them.
of() { sed -n "s/.*[;\"]$1=\([^;\"]*\).*/\1/p" "$root/build-tests/tests/CTestTestfile.cmake" | head -n 1; }
LLAMA_BIN=${LLAMA_BIN:-$(of LLAMA_BIN)}
WORK=${WORK:-$root/build-tests/endurance}
: "${LLAMA_BIN:?}"
for v in "${!SLUICE_@}" "${!FAULTY_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH LD_PRELOAD v
export LC_ALL=C OMP_WAIT_POLICY=passive

# A directory of its own: whoever runs this twice at once does not share.
mkdir -p "$WORK"
WORK=$(mktemp -d "$WORK/run.XXXXXX")
mkdir -m 700 "$WORK/xdg"
mkdir "$WORK/models" "$WORK/tmp"
export BIN LLAMA_BIN WORK TOKENS=$tokens DEMO=$root/models/demo.gguf SANITIZED=${SANITIZED:-}
export XDG_RUNTIME_DIR=$WORK/xdg TMPDIR=$WORK/tmp

# The models, in turn: the demo model; some of ours: few experts at odd offsets, many, gate and up in one tensor; and, for a
# long run, a few kinds that llama.cpp's own test writes (half a minute): attention and routers of several sorts.
mkmoe() { "$BIN/sluice-mkmoe" --out "$WORK/models/$1.gguf" --vocab 128 "${@:2}" >"$WORK/models.log" 2>&1 || { tail -n 3 "$WORK/models.log"; exit 1; }; }
mkmoe odd --layers 3 --experts 16 --top-k 3 --noise 1 --embd 128 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --type-dense Q8_0 --misalign 32
mkmoe many --layers 4 --experts 96 --top-k 6 --noise 2 --fill fast
mkmoe fused --arch hy_v3 --fused-gate-up --layers 3 --experts 16 --top-k 3 --noise 1
if [ "$tokens" -ge 20000 ]; then
    "$LLAMA_BIN/test-llama-archs" -s 20261130 -o "$WORK/tmp" >"$WORK/models.log" 2>&1 || { tail -n 3 "$WORK/models.log"; exit 1; }
    for kind in gpt-oss qwen3moe deepseek2 glm4moe dbrx; do mv "$WORK/tmp/$kind-moe.gguf" "$WORK/models/"; done
    rm -rf "${WORK:?}/tmp"/*
fi

rc=0
node "$here/endurance.mjs" || rc=$?
if [ "$rc" = 0 ] && [ "$tokens" -lt 20000 ]; then
    rm -rf "$WORK"
elif [ "$rc" = 0 ]; then
    rm -rf "$WORK/models" "$WORK/xdg" "$WORK/tmp"
else
    echo "what there is to look at: $WORK"
fi
exit $rc
