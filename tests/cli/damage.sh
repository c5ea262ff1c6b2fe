#!/usr/bin/env bash
# damage.sh - a few hundred damaged copies of a model's metadata: whatever the bytes are, no command is
# killed by a signal, hangs, or prints more than its one line. Bytes and places follow from a fixed seed.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

# A small model of its own: its metadata is 2 KB, so that every damage hits something that is parsed.
works "a small model" "$BIN/sluice-mkmoe" --out small.gguf --layers 1 --experts 4 --top-k 2 --vocab 64
size=$(stat -c %s small.gguf)
[ "$size" -gt 4096 ] || { fail "no model"; finish; }
meta=3000 # covers all of the metadata
[ "$meta" -lt "$size" ] || meta=$size

RANDOM=20260101
bad=0
refusals=0
for ((i = 0; i < 400; i++)); do
    cp small.gguf damaged.gguf
    # One to three bytes, each at a random place of the metadata: a high bit, zero, all ones, or anything.
    for ((k = 0; k <= RANDOM % 3; k++)); do
        at=$(((RANDOM * 32768 + RANDOM) % meta))
        case $((RANDOM % 4)) in
        0) byte=200 ;;
        1) byte=0 ;;
        2) byte=377 ;;
        *) byte=$(printf '%o' $((RANDOM % 256))) ;;
        esac
        # shellcheck disable=SC2059 # the byte is the format
        printf "\\$byte" | dd of=damaged.gguf bs=1 seek="$at" conv=notrunc status=none
    done
    timeout 60 "$sluice" info damaged.gguf >out.txt 2>err.txt
    rc=$?
    if [ "$rc" -gt 1 ] || { [ "$rc" -eq 1 ] && [ "$(wc -l <err.txt)" -ne 1 ]; }; then
        bad=$((bad + 1))
        cp damaged.gguf "bad-$i.gguf"
        echo "  copy $i: exit $rc: $(head -c 200 err.txt)"
    fi
    refusals=$((refusals + (rc == 1)))
done
if [ "$bad" -eq 0 ]; then ok "info: 400 damaged copies, $refusals refused"; else fail "info: $bad of 400 damaged copies"; fi
[ "$refusals" -gt 40 ] || fail "the damage did not hit: $refusals refusals"
finish
