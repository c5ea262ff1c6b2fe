#!/usr/bin/env bash
# bad-input.sh - files that are no models, or not whole: one clear line and exit 1, from every command that
# opens a model.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

# everywhere CODE TEXT LABEL FILE
everywhere() {
    refused "$1" "$2" "$3 (info)" "$sluice" info "$4"
    refused "$1" "$2" "$3 (run)" "$sluice" run -m "$4" -p Hello -n 1
    refused "$1" "$2" "$3 (chat)" "$sluice" chat -m "$4"
}

everywhere 1 "No such file" "no file" "$dir/nothing.gguf"
everywhere 1 "is a directory" "a directory" "$dir"
everywhere 1 "not a regular file" "a device" /dev/null
mkfifo fifo.gguf
everywhere 1 "not a regular file" "a pipe" fifo.gguf
: >empty.gguf
everywhere 1 "the file is empty" "an empty file" empty.gguf
printf 'GGU' >short.gguf
everywhere 1 "not a GGUF file" "three bytes" short.gguf
head -c 100000 "$sluice" >program.gguf
everywhere 1 "not a GGUF file" "a program" program.gguf
yes 'GGUF is not what this is' | head -n 5000 >text.gguf
everywhere 1 "is not supported" "a text that starts with the magic" text.gguf
printf 'GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >version1.gguf
everywhere 1 "version 1 is not supported" "version 1" version1.gguf
printf 'GGUF\3\0\0\0\377\377\377\377\377\377\377\177\1\0\0\0\0\0\0\0' >counts.gguf
everywhere 1 "cannot hold" "impossible counts" counts.gguf
everywhere 1 "no tensors" "a vocabulary only" "$vocab_model"
if [ "$(id -u)" -ne 0 ]; then
    cp "$model" secret.gguf && chmod 0 secret.gguf
    everywhere 1 "Permission denied" "a file that must not be read" secret.gguf
fi
newline=$'two\nlines.gguf'
everywhere 1 "No such file" "a name with a newline" "$newline"

# Truncated: in the header, at every stage of the metadata, in the data, and by the very last byte.
size=$(stat -c %s "$model")
for cut in 4 8 16 23 24 25 31 40 100 1000 5000 100000 1000000 2000000 $((size / 2)) $((size - 4096)) $((size - 1)); do
    [ "$cut" -lt "$size" ] || continue
    head -c "$cut" "$model" >cut.gguf
    refused 1 "cut.gguf: truncated" "cut after $cut of $size bytes (run)" "$sluice" run -m cut.gguf -p Hello -n 1
    refused 1 "cut.gguf: truncated" "cut after $cut of $size bytes (info)" "$sluice" info cut.gguf
done

# Shards.
cp "$WORK"/shards-0000?-of-00003.gguf .
first=shards-00001-of-00003.gguf
works "three shards (info)" "$sluice" info "$first"
expect "  counts them" out.txt '^  shards +3$'
works "three shards (run)" "$sluice" run -m "$first" -p Hello -n 2
for n in 2 3; do
    everywhere 1 "is shard $n of 3: name the first shard" "shard $n given" shards-0000$n-of-00003.gguf
    mv shards-0000$n-of-00003.gguf away
    everywhere 1 "shards-0000$n-of-00003.gguf: shard $n of 3 is missing" "shard $n missing" "$first"
    head -c 300 away >shards-0000$n-of-00003.gguf
    everywhere 1 "shards-0000$n-of-00003.gguf: truncated" "shard $n truncated" "$first"
    mv away shards-0000$n-of-00003.gguf
done
mv shards-00002-of-00003.gguf away
cp shards-00003-of-00003.gguf shards-00002-of-00003.gguf
everywhere 1 "is shard 3 of 3, but shard 2 of 3 belongs here" "shard 3 in the place of shard 2" "$first"
mv away shards-00002-of-00003.gguf
cp "$first" renamed.gguf
everywhere 1 "its name must end in -00001-of-00003.gguf" "a first shard by another name" renamed.gguf

# An architecture that llama.cpp does not know: it says so itself, we make it one line.
sed 's/qwen3moe/qwen9moe/g' "$model" >unknown.gguf
refused 1 "qwen9moe" "an unknown architecture" "$sluice" run -m unknown.gguf -p Hello -n 1

# Expert numbers that llama.cpp would assert on.
sed 's/qwen3moe\.expert_count/qwen3moo.expert_count/' "$model" >experts.gguf
everywhere 1 "claims to use 2 of 0 experts" "a number of experts by another name" experts.gguf

# A dense model is no error: it runs, and says that nothing streams.
if "$LLAMA_BIN/test-llama-archs" -a qwen3 -o . >/dev/null 2>&1 && [ -f qwen3-dense.gguf ]; then
    works "a dense model (info)" "$sluice" info qwen3-dense.gguf
    expect "  says so" out.txt '^  experts +none: '
    works "a dense model (run)" "$sluice" run -m qwen3-dense.gguf -p Hello -n 2
    expect "  says so" err.txt '^resident: '
    refused 2 "no experts" "a dense model, fewer experts" "$sluice" run -m qwen3-dense.gguf -p Hello --n-expert-used 1
else
    fail "no dense model"
fi
finish
