#!/usr/bin/env bash
# prompt-cache.sh - `sluice run --prompt-cache`: the same prompt gives the same text without being read, a longer one is
# read from where the file ends, and a file that is damaged or of something else is refused and the prompt is read.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

prompt="Once upon a time there was a small house by the sea"
run=("$sluice" run -m "$model" -t 2 -c 512 -n 12 -q --json)
text() { value out.txt text; }
# prompt_is RESTORED READ LABEL: what the last run says about its prompt
prompt_is() {
    local restored read
    restored=$(value out.txt restored_tokens)
    read=$(value <(sed -n '/"prompt": {/,/}/p' out.txt) tokens)
    if [ "$rc" -eq 0 ] && [ "$restored" = "$1" ] && [ "$read" = "$2" ]; then
        ok "$3: $restored tokens restored, $read read"
    else
        fail "$3: exit $rc, $restored restored, $read read, not $1 and $2: $(head -c 300 err.txt)"
    fi
}
# same_text FILE LABEL
same_text() { if [ "$(text)" = "$(cat "$1")" ]; then ok "  $2"; else fail "$2: $(text), not $(cat "$1")"; fi; }

for sampling in "--temp 0" "--seed 7"; do
    # shellcheck disable=SC2206 # words
    args=("${run[@]}" $sampling)
    rm -f p.bin
    try "${args[@]}" -p "$prompt"
    text >plain.txt
    n=$(value <(sed -n '/"prompt": {/,/}/p' out.txt) tokens)
    prompt_is 0 "$n" "$sampling, without a file"
    try "${args[@]}" -p "$prompt" --prompt-cache p.bin
    prompt_is 0 "$n" "$sampling, first run with it"
    same_text plain.txt "the same text as without it"
    try "${args[@]}" -p "$prompt" --prompt-cache p.bin
    prompt_is "$n" 0 "$sampling, second run"
    same_text plain.txt "the same text"
    [ ! -s err.txt ] || fail "it complains: $(cat err.txt)"
    try "${args[@]}" -p "$prompt" --prompt-cache p.bin --resident
    prompt_is "$n" 0 "$sampling, resident"
    same_text plain.txt "the same text"
done
[ "$(stat -c %a p.bin)" = 600 ] || fail "others can read the file"
cp p.bin whole.bin

# A longer prompt is read from where the file ends; then the file holds it.
longer="$prompt, and in it lived an old man"
try "${run[@]}" --temp 0 -p "$longer" --prompt-cache p.bin
more=$(value <(sed -n '/"prompt": {/,/}/p' out.txt) tokens)
prompt_is "$n" "$more" "a longer prompt"
text >longer.txt
cmp -s p.bin whole.bin && fail "the longer prompt was not kept"
try "${run[@]}" --temp 0 -p "$longer" --prompt-cache p.bin
prompt_is $((n + more)) 0 "  again"
same_text longer.txt "the same text"
cp p.bin longer.bin
try "${run[@]}" --temp 0 -p "$prompt" --prompt-cache p.bin
prompt_is $((n - 1)) 1 "a shorter prompt computes its last token"
if cmp -s p.bin longer.bin; then ok "  the longer one stays"; else fail "a shorter prompt replaced a longer one"; fi
try "${run[@]}" --temp 0 -p "Once upon a time there was something else" --prompt-cache p.bin
if [ "$(value out.txt restored_tokens)" -gt 2 ] && [ "$(value out.txt restored_tokens)" -lt "$n" ]; then
    ok "another ending: what is common is restored"
else
    fail "another ending: $(value out.txt restored_tokens) restored"
fi
try "${run[@]}" --temp 0 -p "9 + 8" --prompt-cache p.bin
prompt_is 0 "$(value <(sed -n '/"prompt": {/,/}/p' out.txt) tokens)" "nothing in common"

# refused_file TEXT LABEL COMMAND...: the file is not used, one line says why, and the prompt is read
refused_file() {
    local text=$1 label=$2
    shift 2
    try "$@"
    prompt_is 0 "$n" "$label"
    if [ "$(wc -l <err.txt)" -eq 1 ] && grep -q "^sluice run: .*$text" err.txt; then
        ok "  it is said: $(cut -c1-120 err.txt)"
    else
        fail "$label: not one line with '$text': $(head -c 300 err.txt)"
    fi
}
same=("${run[@]}" --temp 0 -p "$prompt" --prompt-cache p.bin)
"${run[@]}" --temp 0 -p "$prompt" >out.txt 2>err.txt && text >plain.txt
size=$(stat -c %s whole.bin)
for at in 0 9 16 30 64 130 $((size / 2)) $((size - 1)); do
    cp whole.bin p.bin
    printf "$(printf '\\x%02x' $(($(od -An -tu1 -j "$at" -N 1 whole.bin) ^ 255)))" |
        dd of=p.bin bs=1 seek="$at" conv=notrunc status=none
    refused_file "p.bin: " "damaged at byte $at" "${same[@]}"
    same_text plain.txt "the right text"
    cmp -s p.bin whole.bin || fail "the damaged file was not replaced by a good one"
done
for bytes in 0 1 100 128 $((size / 2)) $((size - 1)); do
    head -c "$bytes" whole.bin >p.bin
    chmod 600 p.bin
    refused_file "p.bin: " "cut to $bytes bytes" "${same[@]}"
done
cp whole.bin p.bin
chmod 666 p.bin
refused_file "other users may have written it" "writable by all" "${same[@]}"
cp "$model" p.bin && chmod 600 p.bin
refused_file "not a prompt cache" "a model" "${same[@]}"
cp whole.bin p.bin
refused_file "another context size" "another context" "${same[@]}" -c 768
cp whole.bin p.bin
refused_file "another experts per token" "another number of experts" "${same[@]}" --n-expert-used 1
# A state with experts left out is not the lossless one, and the other way round; the same settings find it again.
lossy=(--drop-cold-experts 1 --drop-in-prefill --cache 0.3 --force-cache)
cp whole.bin p.bin
refused_file "another setting of --drop-cold-experts" "lossless, then lossy" "${same[@]}" "${lossy[@]}"
refused_file "another setting of --drop-cold-experts" "lossy, then lossless" "${same[@]}"
rm -f p.bin
try "${same[@]}" "${lossy[@]}"
try "${same[@]}" "${lossy[@]}"
prompt_is "$n" 0 "lossy twice"
# The same header, other weights: somewhere in so long a stretch one of the 64 samples lies.
cp "$model" other.gguf
dd if=/dev/zero of=other.gguf bs=4096 seek=$(($(stat -c %s "$model") / 8192)) count=$(($(stat -c %s "$model") / 64 / 4096 + 2)) conv=notrunc status=none
cp whole.bin p.bin
try "$sluice" run -m other.gguf -t 2 -c 512 -n 1 -q --json -p "$prompt" --temp 0 --prompt-cache p.bin
prompt_is 0 "$n" "another model"
expect "  it is said" err.txt 'made with another model$'

# Where no file can be.
refused 1 "no file can be written there" "a directory that is not there" "${run[@]}" -p "$prompt" --prompt-cache nothing/p.bin
refused 1 "not a regular file" "a directory" "${run[@]}" -p "$prompt" --prompt-cache .
refused 2 "cannot be combined" "with --compare-resident" "${run[@]}" -p "$prompt" --prompt-cache p.bin --compare-resident
if [ -c /dev/full ] && mkdir -p small && mount -t tmpfs -o size=16k tmpfs small 2>/dev/null; then
    try "${run[@]}" --temp 0 -p "$prompt" --prompt-cache small/p.bin
    umount small
    prompt_is 0 "$n" "a full disk"
    same_text plain.txt "the right text"
    expect "  it is said" err.txt '^sluice run: the prompt is not kept: .*No space left'
fi
ls p.bin.* >/dev/null 2>&1 && fail "temporary files are left: $(ls p.bin.*)"

# A model with recurrent state: all of a prompt, or nothing of it.
if "$LLAMA_BIN/test-llama-archs" -a qwen3next -o . >/dev/null 2>&1 && [ -f qwen3next-moe.gguf ]; then
    rec=("$sluice" run -m qwen3next-moe.gguf -t 2 -c 256 -n 4 --temp 0 -q --json --prompt-cache r.bin)
    try "${rec[@]}" -p "Hello there"
    text >recurrent.txt
    m=$(value <(sed -n '/"prompt": {/,/}/p' out.txt) tokens)
    try "${rec[@]}" -p "Hello there"
    prompt_is "$m" 0 "recurrent state"
    same_text recurrent.txt "the same text"
    try "${rec[@]}" -p "Hello you"
    if [ "$rc" -eq 0 ] && [ "$(value out.txt restored_tokens)" -eq 0 ]; then
        ok "recurrent state, another ending: read from the start"
    else
        fail "recurrent state, another ending: exit $rc: $(head -c 300 err.txt)"
    fi
else
    fail "no model with recurrent state"
fi
finish
