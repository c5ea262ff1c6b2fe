#!/bin/bash
# samples.sh prints what models/README.md shows: three requests, sampled with fixed seeds by stock
# llama-completion and not edited.   tools/demo-model/samples.sh LLAMA_BIN [MODEL]
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:?usage: samples.sh LLAMA_BIN [MODEL]}
model=${2:-$here/../../models/demo.gguf}
seed=0
for request in "Tell me a story about a lost lantern." "Tell me a story about a baker." "Tell a story with a key, a map and a violin."; do
    seed=$((seed + 1))
    echo "=== seed $seed"
    "$bin/llama-completion" -m "$model" -p "Request: $request"$'\n\n' -n 400 -c 512 -s $seed --temp 0.6 --top-p 0.9 \
        -t 1 -no-cnv --no-warmup 2>/dev/null < /dev/null
done
