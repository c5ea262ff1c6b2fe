#!/usr/bin/env bash
# run-selftest.sh - every assumption about ggml is broken once (broken.c): the self-test finds it under its name, and a
# program that loads a model then ends with that name, and computes nothing.
#
# Environment: BIN (our programs), LLAMA_SRC (llama.cpp's source, for a vocabulary), SOURCE (ours), WORK (to write in).
set -uo pipefail
: "${BIN:?}" "${LLAMA_SRC:?}" "${WORK:?}" "${SOURCE:?}"
export LC_ALL=C
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH LD_PRELOAD BROKEN v

bin=$(cd "$BIN" && pwd)
mkdir -p "$WORK"
cd "$WORK" || exit 1
checks=0
failures=0
ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }

broken() { # MODE COMMAND...: with that assumption broken; sets $rc, out and err
    local mode=$1
    shift
    LD_PRELOAD=$bin/libsluice-broken.so BROKEN=$mode "$@" >out 2>err </dev/null
    rc=$?
}

"$bin/sluice-mkmoe" --out model.gguf --layers 2 --experts 8 --top-k 2 --vocab-from "$LLAMA_SRC/models/ggml-vocab-gpt-2.gguf" >/dev/null ||
    { fail "no model"; exit 1; }
run=("$bin/sluice" run --model model.gguf --prompt "once upon a time" --n-predict 4 --temp 0)

# Nothing is broken: all hold, and the model runs. Packed ids are no less right.
"${run[@]}" >want 2>err || fail "sluice run: $(head -c 300 err)"
[ -s want ] || fail "sluice run printed nothing"
for mode in none contiguous; do
    broken $mode "$bin/selftest-check"
    if [ $rc -eq 0 ] && grep -q '^none ' out; then ok "$mode: $(cat out)"; else fail "$mode: exit $rc: $(head -c 300 out err)"; fi
    broken $mode "${run[@]}"
    if [ $rc -eq 0 ] && cmp -s out want; then ok "$mode: sluice run"; else fail "$mode: sluice run: exit $rc: $(head -c 300 err)"; fi
done

names=$(sed -nE 's/.*\[SELFTEST_[A-Z]+\] = \{"([a-z]+)".*/\1/p' "$SOURCE/src/selftest/selftest.c" | grep -v none)
[ "$(wc -w <<<"$names")" -ge 17 ] || fail "only these names are known: $names"
# No name without a line in the document, and none there that is not checked.
documented=$(sed -nE 's/^\| `([a-z]+)` \|.*/\1/p' "$SOURCE/docs/ggml.md")
if [ "$(sort <<<"$names")" = "$(sort <<<"$documented")" ]; then ok "docs/ggml.md has every name"; else fail "docs/ggml.md has other names: $documented"; fi

check() { # MODE NAME: broken so, it is found under that name, by itself and by a real program
    broken "$1" "$bin/selftest-check"
    if [ $rc -eq 1 ] && [ "$(cut -d' ' -f1 out)" = "$2" ]; then ok "$1: $(cat out)"; else fail "$1: exit $rc: $(head -c 300 out err)"; fi
    broken "$1" "${run[@]}"
    if [ $rc -eq 1 ] && [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "assumption '$2' does not hold" err; then
        ok "$1: sluice run: $(cut -c1-160 err)"
    else
        fail "$1: sluice run: exit $rc: $(head -c 300 out err)"
    fi
}
for name in $names; do
    check "$name" "$name"
done
for mode in layout-2 numbers-2 flags-2 strides-2 offload-2 rows-2 kernel-2; do
    check $mode "${mode%-2}"
done

# A stock program with the plug-in: the load fails, with the name on standard error.
export GGML_BACKEND_PATH=$bin/libggml-sluice.so
for name in rows kernel flags; do
    rm -f logits
    broken $name "$bin/sluice-logits" --out logits --prefill 8 --decode 2 model.gguf
    if [ $rc -ne 0 ] && [ $rc -lt 128 ] && grep -q "^sluice: assumption '$name' does not hold" err && [ ! -s logits ]; then
        ok "$name: a stock program ends with it"
    else
        fail "$name: a stock program: exit $rc: $(grep -a sluice err | head -c 300)"
    fi
done
# Without the kernel, what only the kernel rests on may be broken.
broken kernel env SLUICE_KERNEL=reference "$bin/sluice-logits" --out logits --prefill 8 --decode 2 model.gguf
if [ $rc -eq 0 ]; then ok "kernel: SLUICE_KERNEL=reference runs"; else fail "kernel: SLUICE_KERNEL=reference: exit $rc: $(tail -n 2 err)"; fi
# A program that streams nothing is not asked: with one expert there is nothing to stream.
"$bin/sluice-mkmoe" --out one.gguf --layers 1 --experts 1 --top-k 1 --vocab 256 >/dev/null || fail "no model of one expert"
broken rows "$bin/sluice-logits" --out logits --prefill 8 --decode 2 one.gguf
if [ $rc -eq 0 ]; then ok "a model without experts to stream is not checked"; else fail "a model of one expert: exit $rc: $(tail -n 2 err)"; fi
unset GGML_BACKEND_PATH
# A plan says that there is no way, and why.
broken cut "$bin/sluice" plan model.gguf
if grep -q "^none: assumption 'cut' does not hold" out; then ok "cut: sluice plan"; else fail "cut: sluice plan: exit $rc: $(head -c 300 out err)"; fi

echo "$((checks - failures)) of $checks checks passed"
[ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
