#!/usr/bin/env bash
# mapping.sh - the preload library's mmap and posix_madvise (mapping.c), and the same calls without it.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

for kind in stock preloaded; do
    if [ "$kind" = stock ]; then
        "$BIN/cli-mapping" stock >out.txt 2>err.txt
    else
        LD_PRELOAD=$(realpath "$BIN/libsluice-preload.so") "$BIN/cli-mapping" >out.txt 2>err.txt
    fi
    rc=$?
    if [ "$rc" -eq 0 ] && [ "$(grep -c '^ok' out.txt)" -gt 20 ]; then
        ok "$kind: $(grep -c '^ok' out.txt) checks"
    else
        fail "$kind: exit $rc: $(grep FAIL out.txt | tr '\n' ';') $(cat err.txt)"
    fi
done
# A process without ggml: nothing happens, with or without a plug-in to register.
LD_PRELOAD=$(realpath "$BIN/libsluice-preload.so") works "a program without ggml" true
LD_PRELOAD=$(realpath "$BIN/libsluice-preload.so") SLUICE_PLUGIN=/nothing.so works "  and a plug-in named" true
finish
