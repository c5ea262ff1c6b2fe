#!/usr/bin/env bash
# exec.sh - `sluice exec` with a stock program, a program that opens ggml late, and a shell in between: each
# streams, none registers the device twice, and the output is that of the program alone.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

libggml=$LLAMA_BIN/libggml.so

# devices LABEL EXPECTED COMMAND...: what cli-devices says, on one line
devices() {
    local label=$1 expected=$2 got
    shift 2
    try "$@"
    got=$(grep -E '^(before|after|again) ' out.txt | tr '\n' ' ')
    if [ "$rc" -eq 0 ] && [ "$got" = "$expected " ]; then
        ok "$label: $got"
    else
        fail "$label: '$got', not '$expected': exit $rc: $(head -c 300 err.txt)"
    fi
}
exec=("$sluice" exec --cache 0 --)
devices "without exec" "before 0 after 0 again 0" "$BIN/cli-devices"
devices "linked" "before 1 after 1 again 1" "${exec[@]}" "$BIN/cli-devices"
devices "opened late" "before 0 after 1 again 1" "${exec[@]}" "$BIN/cli-devices-late" "$libggml"
devices "linked, from a shell" "before 1 after 1 again 1" "${exec[@]}" sh -c "$BIN/cli-devices; true"
devices "opened late, from a shell" "before 0 after 1 again 1" "${exec[@]}" sh -c "$BIN/cli-devices-late $libggml; true"
devices "exec in exec" "before 1 after 1 again 1" "${exec[@]}" "${exec[@]}" "$BIN/cli-devices"
GGML_BACKEND_PATH=$(realpath "$BIN/libggml-sluice.so") devices "linked, and the plug-in named as well" \
    "before 1 after 1 again 1" "${exec[@]}" "$BIN/cli-devices"
GGML_BACKEND_PATH=/nothing.so try "${exec[@]}" true
expect "another GGML_BACKEND_PATH is mentioned" err.txt '^sluice exec: GGML_BACKEND_PATH is set to /nothing\.so'
# The command itself has the device linked in: nothing may be added to it.
works "sluice run under exec" "${exec[@]}" "$sluice" run -m "$model" -p Hello -n 2 --temp 0
expect "  streams" err.txt '^streaming 6 expert tensors'

# What the program gets.
LD_PRELOAD=/nothing-here.so try "$sluice" exec --cache 3MiB --force-cache --io-threads 2 --no-direct-io -q -- env
for line in SLUICE_CACHE=3MiB SLUICE_FORCE_CACHE=1 SLUICE_IO_THREADS=2 SLUICE_DIRECT_IO=0 SLUICE_QUIET=1; do
    expect "sets $line" out.txt "^$line\$"
done
expect "sets SLUICE_PLUGIN" out.txt '^SLUICE_PLUGIN=/.*/libggml-sluice\.so$'
expect "prepends to LD_PRELOAD" out.txt '^LD_PRELOAD=/.*/libsluice-preload\.so:/nothing-here\.so$'
SLUICE_CACHE=5MiB try "$sluice" exec -- env
expect "keeps the environment's settings" out.txt '^SLUICE_CACHE=5MiB$'
SLUICE_CACHE=5MiB try "$sluice" exec --cache 0 -- env
expect "an option wins" out.txt '^SLUICE_CACHE=0$'
try "$sluice" exec -- sh -c 'exit 42'
if [ "$rc" -eq 42 ]; then ok "the exit code is the program's"; else fail "exit code $rc, not 42"; fi
try "$sluice" exec -- printf '%s|' -n --cache 'a b' --
expect "arguments arrive as they are" out.txt '^-n\|--cache\|a b\|--\|$'
try "$sluice" exec --cache 0 printf '%s|' --cache
expect "-- may be left out" out.txt '^--cache\|$'

# A stock program: the same text with and without. Repacking is off on both sides.
complete=("$LLAMA_BIN/llama-completion" -m "$model" -p "Hello there" -n 24 --temp 0 -no-cnv --no-repack -t 2 -c 256)
try "${complete[@]}"
mv out.txt plain.txt
if [ "$rc" -ne 0 ] || [ ! -s plain.txt ]; then fail "llama-completion alone: exit $rc: $(tail -n 1 err.txt)"; fi
for settings in "--cache 0" "--cache auto" "--cache 0 --no-direct-io --io-threads 1"; do
    # shellcheck disable=SC2086 # words
    try "$sluice" exec $settings -- "${complete[@]}"
    if [ "$rc" -eq 0 ] && cmp -s out.txt plain.txt; then
        ok "llama-completion, $settings: the same $(wc -c <plain.txt) bytes"
    else
        fail "llama-completion, $settings: exit $rc: $(tail -n 1 err.txt)"
    fi
    expect "  and it streams" err.txt '^sluice: streaming 6 expert tensors'
done
# shellcheck disable=SC2016 # for the inner shell
try "$sluice" exec --cache 0 -- sh -c '"$0" "$@"; true' "${complete[@]}"
if cmp -s out.txt plain.txt; then ok "the same from a shell"; else fail "from a shell: $(tail -n 1 err.txt)"; fi
expect "  and it streams" err.txt '^sluice: streaming 6 expert tensors'
finish
