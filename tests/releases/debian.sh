#!/usr/bin/env bash
# debian.sh [GATE...] - llama.cpp as the newest Debian (sid) has it: sluice is built against its packages as a user of
# Debian would (SLUICE_LLAMA_SYSTEM), and Debian's own libraries and programs are run with it, not rebuilt ones.
#
# They want a newer C library than Debian 12 has, so everything of theirs is unpacked into a directory, C library
# included, and run by the program loader that is there (small scripts of the programs' names; nothing is installed).
# libggml-dev lacks ggml-backend-impl.h, the header that plug-ins need: it comes from the source package of ggml. Where the
# archive that apt uses does not give that, the test is skipped, unless DEBIAN_GGML=DIR names a directory with that header
# of the same version. Gates: those of all.sh; `subset few` when none is named. Environment: WORK, a directory.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/releases/lib.sh
. "$here/lib.sh"
: "${WORK:?}"
gates=("$@")
[ ${#gates[@]} -gt 0 ] || gates=(subset few)

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this is not a Debian system"
[ "$(dpkg --print-architecture)" = amd64 ] || skip "Debian's libraries are tried on amd64 only"
WORK=$WORK/debian
export WORK
mkdir -p "$WORK/apt/lists/partial" "$WORK/apt/cache/archives/partial" "$WORK/packages"
cd "$WORK"

# The archive is the one that this machine uses, in another suite, with lists of our own.
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1)
[ -n "$archive" ] || skip "apt knows no archive of Debian here (apt-get update?)"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f $keys ] || skip "debian-archive-keyring is not installed"
apt=(-o Dir::Etc::sourcelist="$WORK/apt/sid.sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$WORK/apt/lists"
    -o Dir::Cache="$WORK/apt/cache" -o APT::Sandbox::User= -qq)
index() { # TYPES
    printf 'Types: %s\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: %s\n' "$1" "$archive" $keys >apt/sid.sources
    apt-get "${apt[@]}" update >apt.log 2>&1 || skip "the index of Debian sid cannot be had: $(tail -n 1 apt.log | sed -E 's,[a-z]+://[^ ]*,,')"
}
version() { apt-cache "${apt[@]}" showsrc --only-source "$1" 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1; }

index deb-src
ggml=$(version ggml)
llama=$(version llama.cpp)
[ -n "$ggml" ] && [ -n "$llama" ] || skip "Debian sid has no llama.cpp or no ggml"
echo "note Debian sid has llama.cpp $llama and ggml $ggml"
if [ -z "${DEBIAN_GGML:-}" ]; then
    DEBIAN_GGML=$WORK/ggml-$ggml
    if [ ! -f "$DEBIAN_GGML/ggml-backend-impl.h" ]; then
        rm -rf source && mkdir source
        (cd source && apt-get "${apt[@]}" source --download-only "ggml=$ggml") >apt.log 2>&1 ||
            skip "the archive that apt uses here does not give the source package of ggml $ggml, which alone holds ggml-backend-impl.h"
        mkdir -p "$DEBIAN_GGML"
        tar -xf source/*.orig.tar.* --wildcards --no-anchored --to-stdout 'src/ggml-backend-impl.h' >"$DEBIAN_GGML/header"
        mv "$DEBIAN_GGML/header" "$DEBIAN_GGML/ggml-backend-impl.h"
    fi
fi

# Unpacked once for each version.
root_dir=$WORK/root-$(printf '%s %s' "$llama" "$ggml" | sha256sum | cut -c1-12)
multi=$(gcc -print-multiarch)
lib=$root_dir/usr/lib/$multi
if [ ! -f "$root_dir/.complete" ]; then
    index "deb deb-src"
    rm -rf "$root_dir" packages && mkdir -p packages "$root_dir"
    (cd packages && apt-get "${apt[@]}" download libggml0 libggml-dev libllama0 libllama-dev llama.cpp-tools llama.cpp-tools-extra \
        llama.cpp-tests libc6 libstdc++6 libgcc-s1 libgomp1 libssl3t64 libzstd1 zlib1g) >apt.log 2>&1 ||
        skip "Debian sid's packages cannot be had: $(tail -n 1 apt.log | sed -E 's,[a-z]+://[^ ]*,,')"
    for p in packages/*.deb; do dpkg-deb -x "$p" "$root_dir"; done
    (cd "$lib" && ln -sf ggml/backends*/*.so .) # programs that lie elsewhere look beside libggml
    : >"$root_dir/.complete"
fi

# What SLUICE_LLAMA_SOURCE must hold beside an installed llama.cpp: the public headers and the one that is not installed.
rm -rf headers && mkdir -p headers/include headers/ggml/include headers/ggml/src
cp "$root_dir"/usr/include/llama*.h headers/include/
cp "$root_dir"/usr/include/ggml*.h "$root_dir"/usr/include/gguf.h headers/ggml/include/
cp "$DEBIAN_GGML/ggml-backend-impl.h" headers/ggml/src/

if ! { "${CMAKE:-cmake}" -S "$root" -B build -G Ninja -DSLUICE_TESTS=ON -DSLUICE_LLAMA_SYSTEM=ON -DSLUICE_LLAMA_SOURCE="$WORK/headers" \
    -Dllama_DIR="$lib/cmake/llama" -Dggml_DIR="$lib/cmake/ggml" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined &&
    "${CMAKE:-cmake}" --build build --target ggml-sluice sluice sluice-logits sluice-mkmoe sluice-residency sluice-backends; } >build.log 2>&1; then
    tail -n 40 build.log
    echo "FAIL sluice does not build against Debian sid's llama.cpp: $WORK/build.log"
    exit 1
fi

# Programs by their names, run with the libraries above; those of this machine come last.
rm -rf bin llama && mkdir bin llama
run_as() { # NAME PROGRAM LINES...: a script, after LINES
    local name=$1 program=$2 options=${4:-}
    printf '#!/bin/sh\n%s\nexec "%s"/ld-linux*.so* %s --library-path "%s:%s:/usr/lib/%s:/lib/%s" "%s" "$@"\n' "${3:-}" "$lib" "$options" \
        "$lib:$lib/llama" "$WORK/build/bin" "$multi" "$multi" "$program" >"$name"
    chmod +x "$name"
}
for p in sluice sluice-logits sluice-mkmoe sluice-residency; do run_as "bin/$p" "$WORK/build/bin/$p"; done
ln -s "$WORK/build/bin/libggml-sluice.so" bin/
for p in "$root_dir"/usr/bin/llama-*; do
    run_as "llama/${p##*/}" "$p" "cd '$lib'" # they look for their backends there
done
run_as llama/test-llama-archs "$root_dir/usr/libexec/$multi/llama.cpp-tests/test-llama-archs" "" "--preload '$WORK/build/bin/libsluice-backends.so'"
ln -s "$lib/libllama.so" llama/

BIN=$WORK/bin LLAMA_BIN=$WORK/llama ARCHS_BIN=$WORK/llama
LLAMA_VERSION=v$(sed -E 's/^[0-9]+://; s/[-+~].*//' <<<"$llama")
LLAMA_SRC=$("$root/scripts/llama.sh" source | sed -n 's/^source=//p')
unset FIXTURES
export BIN LLAMA_BIN LLAMA_SRC LLAMA_VERSION ARCHS_BIN
rc=0
check_command || rc=1
run_gates "${gates[@]}" || rc=1
exit $rc
