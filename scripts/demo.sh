#!/usr/bin/env bash
# `make demo`: install what is missing, build, and run the main job on the demo model: text is
# generated with room in the cache for a quarter of the experts, then the same run is repeated
# fully resident and every logit compared.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

scripts/setup.sh build
cmake -S . -B "$build" -G Ninja -DSLUICE_TESTS=OFF >/dev/null
cmake --build "$build" | tail -n 1

model=models/demo.gguf
prompt=$'Request: Tell me a story about a baker.\n\n'
if [ ! -f "$model" ]; then
    # Until the trained demo model is there: random weights, so the text means nothing.
    model=$build/demo.gguf
    vocab=$(scripts/llama.sh source | sed 's/source=//')/models/ggml-vocab-gpt-2.gguf
    [ -f "$model" ] || "$build/bin/sluice-mkmoe" --out "$model" --layers 6 --embd 256 --ff 256 --experts 32 \
        --top-k 4 --vocab-from "$vocab"
fi

# A quarter of the experts, each of whose slices is rounded outward to disk blocks of 4 KiB.
fact() { "$build/bin/sluice" info --json "$model" | sed -n 's/.*"'"$1"'": *\([0-9]*\).*/\1/p' | head -n 1; }
slices=$(($(fact expert_tensors) * $(fact experts)))
cache=$(((($(fact bank_bytes) + slices * 8192) / 4 + 1023) / 1024))KiB

echo
exec "$build/bin/sluice" run -m "$model" -p "$prompt" -n 200 --temp 0.6 --top-p 0.9 --seed 2 --cache "$cache" --compare-resident
