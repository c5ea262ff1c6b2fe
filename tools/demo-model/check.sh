#!/bin/bash
# check.sh tests the shipped demo model with an unmodified llama.cpp: it loads, its held-out perplexity is
# within 2 % of the one stated in models/demo.json, and greedy output from a fixed prompt equals
# models/demo-expected.txt. Exits non-zero on a failure.
#
#   tools/demo-model/check.sh LLAMA_BIN
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
models=${MODELS:-$here/../../models}
bin=$(cd "${1:?usage: check.sh LLAMA_BIN}" && pwd) || exit 2
. "$here/common.sh"
failed=0

size=$(stat -c %s "$models/demo.gguf")
if [ "$size" -le $((24 * 1024 * 1024)) ]; then echo "ok: $size bytes, at most 24 MiB"; else echo "FAILED: $size bytes, more than 24 MiB"; failed=1; fi

stated=$(sed -n 's/.*"perplexity": \([0-9.]*\).*/\1/p' "$models/demo.json")
measured=$(perplexity "$models/demo.gguf" "$models/demo-heldout.txt")
if [ -z "$measured" ]; then
    echo "FAILED: llama-perplexity gave no number (does the model load?)"; failed=1
elif awk -v a="$measured" -v b="$stated" 'BEGIN { d = a / b - 1; exit !(d < 0.02 && d > -0.02) }'; then
    echo "ok: held-out perplexity $measured, stated $stated"
else
    echo "FAILED: held-out perplexity $measured, stated $stated"; failed=1
fi

if difference=$(greedy "$models/demo.gguf" | diff - "$models/demo-expected.txt"); then
    echo "ok: greedy text equals demo-expected.txt"
else
    echo "FAILED: greedy text differs from demo-expected.txt"; echo "$difference"; failed=1
fi
exit $failed
