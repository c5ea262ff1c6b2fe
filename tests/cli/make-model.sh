#!/usr/bin/env bash
# make-model.sh - the model that the tests of the command share, and its three shards.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

rm -f "$model" "$WORK"/shards-0000*.gguf
shape=(--layers 2 --experts 8 --top-k 2 --vocab-from "$vocab_model")
works "one file" "$BIN/sluice-mkmoe" --out "$model" "${shape[@]}"
works "three shards" "$BIN/sluice-mkmoe" --out "$WORK/shards.gguf" "${shape[@]}" --shards 3
for file in "$model" "$WORK/shards-00003-of-00003.gguf"; do
    [ -f "$file" ] || fail "$file is not there"
done
finish
