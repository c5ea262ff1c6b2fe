#!/bin/bash
# ship.sh turns WORKDIR/checkpoint.pt into what models/ holds and measures it: the second half of make.sh,
# also useful while a training run is still going on.
#
#   tools/demo-model/ship.sh LLAMA_BIN WORKDIR [QUANT]
#
# Writes models/demo.gguf, demo-expected.txt, demo.json and prints every number of models/README.md;
# the F16 model stays in WORKDIR.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
models=${MODELS:-$here/../../models}
bin=$(cd "${1:?usage: ship.sh LLAMA_BIN WORKDIR [QUANT]}" && pwd)
work=$2
quant=${3:-Q8_0}
python="nice -n 19 /usr/bin/python3 -B"
. "$here/common.sh"

cp "$work/checkpoint.pt" "$work/shipped.pt"
$python "$here/export_gguf.py" "$work/shipped.pt" "$work/tokenizer.json" "$work/demo-f16.gguf"
"$bin/llama-quantize" "$work/demo-f16.gguf" "$work/demo.gguf" "$quant" > "$work/quantize.log" 2>&1
cp "$work/demo.gguf" "$models/demo.gguf"
size=$(stat -c %s "$models/demo.gguf")
echo "demo.gguf: $size bytes ($quant)"
[ "$size" -le $((24 * 1024 * 1024)) ] || { echo "larger than 24 MiB"; exit 1; }

f16=$(perplexity "$work/demo-f16.gguf" "$models/demo-heldout.txt")
shipped=$(perplexity "$models/demo.gguf" "$models/demo-heldout.txt")
echo "held-out perplexity: F16 $f16, $quant $shipped"
greedy "$models/demo.gguf" > "$models/demo-expected.txt"
printf '{\n  "file": "demo.gguf",\n  "bytes": %d,\n  "quantisation": "%s",\n  "perplexity": %s,\n  "perplexity_f16": %s,\n  "tolerance": 0.02\n}\n' \
    "$size" "$quant" "$shipped" "$f16" > "$models/demo.json"
cat "$models/demo-expected.txt"

check=()
if [ -n "${LLAMA_SRC:-}" ]; then
    cc -O1 -Wall "$here/tokens.c" -I "$LLAMA_SRC/include" -I "$LLAMA_SRC/ggml/include" -L "$bin" -lllama \
        -Wl,-rpath,"$bin" -Wl,-rpath-link,"$bin" -o "$work/tokens"
    "$work/tokens" "$models/demo.gguf" "$models/demo-heldout.txt" > "$work/heldout.ids"
    check=(--tokens "$work/heldout.ids")
fi
$python "$here/evaluate.py" "$work/shipped.pt" "$work/tokenizer.json" "$models/demo-heldout.txt" --trace "$work/trace.txt" "${check[@]}"
