#!/usr/bin/env bash
# soak.sh [TOKENS [SEED]] - soak.c on a small model, with each of the policies, TOKENS each.
#
# Environment: BIN (our programs), WORK (to write in), SOAK_TOKENS (instead of TOKENS). The seed is printed; the same one draws the same
# budgets, cancellations and faults, though not at the same moments.
set -euo pipefail
: "${BIN:?}" "${WORK:?}"
export LC_ALL=C OMP_WAIT_POLICY=passive
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH v
tokens=${SOAK_TOKENS:-${1:-2000}}
seed=${2:-${SOAK_SEED:-$(date +%s)}}
mkdir -p "$WORK"
model=$WORK/soak.gguf
"$BIN/sluice-mkmoe" --out "$model" --layers 3 --experts 16 --top-k 3 --vocab 128 --noise 1 --embd 128 --ff 96 \
    --type-gate-up MXFP4 --type-down Q8_0 --type-dense Q8_0 --misalign 32 >"$WORK/mkmoe.log" 2>&1 ||
    { echo "FAIL sluice-mkmoe: $(tail -n 1 "$WORK/mkmoe.log")"; exit 1; }
status=0
soak() { # LABEL OPTIONS...
    local label=$1
    shift
    if "$BIN/sluice-soak" --tokens "$tokens" --seed "$seed" "$@" "$model"; then
        echo "ok   $label"
    else
        echo "FAIL $label (tests/soak/soak.sh $tokens $seed)"
        status=1
    fi
}
soak "cycle" --set cache_policy=cycle
soak "lru" --set cache_policy=lru
exit $status
