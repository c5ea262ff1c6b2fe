#!/usr/bin/env bash
# Fetch and build a pinned, unmodified llama.cpp, and cache both.
#
#   scripts/llama.sh lib [KIND [RELEASE]]     build libllama and ggml        (about 5 minutes on two cores)
#   scripts/llama.sh server [KIND [RELEASE]]  also llama-server, for `sluice serve`
#   scripts/llama.sh tools [KIND [RELEASE]]   also the programs the tests use (about as long again)
#   scripts/llama.sh source [RELEASE]         only the source
#   scripts/llama.sh node npm [RELEASE]       npm's node-llama-cpp and its prebuilt libraries, for a test
#
# Prints `source=DIR`, `build=DIR` and `version=V` (with `node` only `node=DIR`, which holds the packages) on standard output; everything else goes to standard error.
# KIND is `native` (upstream's default: shared, CPU backend linked in) or `dl` (backends loaded at
# run time, as upstream's release binaries and npm's prebuilt set are) or `tsan` (libraries only,
# built with ThreadSanitizer and without OpenMP, whose barriers the sanitizer cannot see) or `arm64`
# (libraries only, for 64-bit ARM by the cross compiler; scripts/aarch64.sh) or `npm`:
# nothing is compiled, the libraries are those that node-llama-cpp ships prebuilt (of kind dl, without OpenMP, with a
# CPU backend per processor; x86-64 only; `lib` only).
# RELEASE is one of those in `pin` below; the first is what sluice builds against, the others are tested
# (docs/ggml.md). SLUICE_LLAMA_SOURCE=DIR uses that checkout instead of the fetched one.
#
# The source comes from the npm package node-llama-cpp: it carries a git bundle of the release, and
# the package manager's published sha512 pins every byte. Cached under
# ${XDG_CACHE_HOME:-~/.cache}/sluice/, keyed by version, options, compiler and (for native builds)
# the processor, so that a second clone builds in seconds and a moved home directory does not run
# code for another processor.
set -euo pipefail

LLAMA_DEFAULT=v0.5.0

# What a release is: its commit, the version of the npm packages that carry it, and their checksums as npm states them
# (node-llama-cpp with the source, @node-llama-cpp/linux-x64 with the prebuilt libraries).
pin() { # RELEASE
    LLAMA_VERSION=$1
    case $1 in
    v0.5.0)
        LLAMA_COMMIT=de3ff815ea7d559ee917f063901b8986f038abc6
        NPM_VERSION=3.22.1
        NPM_SHA512='bltIipuWmc123H7tMIgDGKSsSrhmhlQYeVUC48XTjVW7XGJJiJJyCdlTMzQ/LiWoPkGDpcL4FviDpgw7qfTiDw=='
        PREBUILT_SHA512='5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==' ;;
    v0.4.0)
        LLAMA_COMMIT=80fb11ac73e66d89eae2c6a91d8a77428fa733ed
        NPM_VERSION=3.21.1
        NPM_SHA512='E3N0Ev2Va0wzydvXYFwM9Hvyo07PoWjt8T/9GMc43Cvt8YkV/NU/tYUgEMC1grTPv2o9PRjQi0G3Wb5P/awiMg=='
        PREBUILT_SHA512='Totj6RTDMGo3FoK2yNUaz/oGmZD0olAqTrRluFUWmu0kW2i9TOzHSW0OWCAiGkzRCVX0WsU2CyUQo/W2NYtdPA==' ;;
    *) die "unknown release $1: v0.5.0 or v0.4.0" ;;
    esac
}

LIB_TARGETS=(llama ggml-cpu) # a `dl` build does not link the CPU backend, so it is named
TOOL_TARGETS=(llama-server llama-bench llama-perplexity llama-completion llama-quantize
              llama-gguf-split test-llama-archs)

say() { printf 'llama.cpp: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9

fetch_package() { # PACKAGE SHA512 DIR: its one archive, checked
    command -v npm >/dev/null || die "npm is needed to fetch llama.cpp $LLAMA_VERSION: apt-get install npm"
    say "fetching $LLAMA_VERSION (npm package $1)"
    (cd "$3" && npm pack --silent "$1" >/dev/null) || die "npm could not fetch $1"
    local got
    got=$(openssl dgst -sha512 -binary "$3"/*.tgz | base64 -w0)
    [ "$got" = "$2" ] || die "sha512 of $1 is $got, expected $2"
}

fetch_source() {
    if [ -n "${SLUICE_LLAMA_SOURCE:-}" ]; then
        [ -f "$SLUICE_LLAMA_SOURCE/include/llama.h" ] || die "no llama.cpp in $SLUICE_LLAMA_SOURCE"
        source_dir=$(cd "$SLUICE_LLAMA_SOURCE" && pwd)
        local part found="" # what it says it is: settings and tests depend on it
        for part in MAJOR MINOR PATCH; do
            found=$found${found:+.}$(sed -nE "s/^set\(LLAMA_VERSION_$part ([0-9]+)\).*/\1/p" "$source_dir/CMakeLists.txt")
        done
        [[ $found =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] && LLAMA_VERSION=v$found || LLAMA_VERSION=unknown
        return
    fi
    source_dir=$cache/llama.cpp-$LLAMA_VERSION
    if [ -f "$source_dir/.git/HEAD" ]; then
        [ "$(git -C "$source_dir" rev-parse HEAD)" = "$LLAMA_COMMIT" ] &&
            [ -z "$(git -C "$source_dir" status --porcelain --untracked-files=no)" ] ||
            die "$source_dir is not the unmodified $LLAMA_VERSION: remove it and run again"
        return
    fi
    local tmp
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' RETURN
    fetch_package "node-llama-cpp@$NPM_VERSION" "$NPM_SHA512" "$tmp"
    tar -C "$tmp" -xf "$tmp"/*.tgz package/llama/gitRelease.bundle
    git -c advice.detachedHead=false clone -q "$tmp/package/llama/gitRelease.bundle" "$tmp/src"
    [ "$(git -C "$tmp/src" rev-parse HEAD)" = "$LLAMA_COMMIT" ] || die "the bundle holds another commit"
    mv "$tmp/src" "$source_dir"
}

# GCC 12's _tile_loadconfig tells the compiler that it reads 8 of its 64 bytes, so the rest of the tiles' shapes is
# optimised away, and the first tile instruction of a build for this processor is an illegal one: every llama.cpp program
# with repacked weights then dies at its first prompt (seen with GCC 12.2 on a Xeon with AMX, 2026-11-30). True: that is so here.
tiles_are_broken() {
    grep -qw amx_int8 /proc/cpuinfo 2>/dev/null || return 1
    local dir rc=0
    dir=$(mktemp -d)
    cat >"$dir/tiles.c" <<'C'
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
struct tiles { unsigned char palette, start, reserved[14]; unsigned short colsb[16]; unsigned char rows[16]; };
int main(void) {
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 0; /* not allowed to use them: ggml asks as well */
    _Alignas(64) struct tiles t = {0};
    t.palette = 1;
    t.rows[0] = 8, t.colsb[0] = 64;
    t.rows[4] = 16, t.colsb[4] = 64;
    _tile_loadconfig(&t);
    _tile_zero(4);
    return 0;
}
C
    if ${CC:-cc} -O2 -march=native -o "$dir/tiles" "$dir/tiles.c" 2>/dev/null; then
        bash -c '"$0"; exit' "$dir/tiles" >/dev/null 2>&1 || rc=$? # a shell of its own: it also says what killed it
    fi
    rm -rf "$dir"
    [ "$rc" -ne 0 ]
}

build() { # build KIND TARGET...
    local kind=$1
    shift
    local options=(-G Ninja -DBUILD_SHARED_LIBS=ON -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_TOOLS_INSTALL=OFF -DLLAMA_TESTS_INSTALL=OFF)
    case $kind in
    native) options+=(-DCMAKE_BUILD_TYPE=Release) ;;
    dl) options+=(-DCMAKE_BUILD_TYPE=Release -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_CPU_ALL_VARIANTS=OFF) ;;
    # What phones of the last years have. Without OpenMP, as many builds for phones are.
    arm64) options+=(-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16
        -DGGML_OPENMP=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF) ;;
    tsan) options+=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DGGML_OPENMP=OFF -DLLAMA_SANITIZE_THREAD=ON -DGGML_SANITIZE_THREAD=ON) ;;
    *) die "unknown kind $kind" ;;
    esac
    local compiler=${CC:-cc} toolchain=
    if [ "$kind" = arm64 ]; then
        compiler=aarch64-linux-gnu-gcc
        toolchain=$(cd "$(dirname "$0")/../cmake" && pwd)/aarch64.cmake
        command -v "$compiler" >/dev/null || die "$compiler is needed: apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu"
        unset SLUICE_SYSROOT
    elif [ "$kind" != dl ] && tiles_are_broken; then
        say "this compiler cannot use the processor's AMX tiles: built without them"
        options+=(-DCMAKE_C_FLAGS=-U__AMX_INT8__ -DCMAKE_CXX_FLAGS=-U__AMX_INT8__)
    fi
    local key
    key=$({
        echo "$LLAMA_VERSION $source_dir ${options[*]}"
        $compiler --version | head -n 1
        case $kind in dl | arm64) ;; *) $compiler -march=native -Q --help=target ;; esac
        [ -z "$toolchain" ] || cat "$toolchain"
    } | sha256sum | cut -c1-12)
    build_dir=$cache/build-$LLAMA_VERSION-$kind-$key
    exec 9>"$build_dir.lock" # the source is there; others need only wait for the same build
    flock 9
    if [ -n "$toolchain" ]; then
        # A copy beside the build, which outlives this checkout.
        cmp -s "$toolchain" "$build_dir.cmake" || cp "$toolchain" "$build_dir.cmake"
        options+=(-DCMAKE_TOOLCHAIN_FILE="$build_dir.cmake")
    fi
    local stamp
    for stamp in "$@"; do
        if [ ! -f "$build_dir/.built-$stamp" ]; then
            if [ ! -f "$build_dir/build.ninja" ]; then
                say "configuring ($kind)"
                cmake -S "$source_dir" -B "$build_dir" "${options[@]}" >"$build_dir.configure.log" 2>&1 ||
                    { tail -n 20 "$build_dir.configure.log" >&2; die "cmake failed: $build_dir.configure.log"; }
            fi
            say "building $* ($kind), some minutes the first time"
            local out=/dev/stderr
            [ -t 2 ] || out=$build_dir/build.log # a log file for machines, ninja's one moving line for people
            cmake --build "$build_dir" --target "$@" >"$out" 2>&1 ||
                { [ -t 2 ] || tail -n 30 "$out" >&2; die "the build failed"; }
            local done_target
            for done_target in "$@"; do : >"$build_dir/.built-$done_target"; done
            break
        fi
    done
}

# The prebuilt libraries, under the names that linkers look for as well; their own names, which programs then ask for,
# stay. They are the release's with the patches of node-llama-cpp's directory llama/patches (one in the model loader:
# llama.cpp's writer of test models does not work with them), and without programs.
prebuilt() {
    [ "$(uname -m)" = x86_64 ] || die "the prebuilt libraries are for x86-64, this is $(uname -m)"
    [ -z "${SLUICE_LLAMA_SOURCE:-}" ] || die "the prebuilt libraries belong to a release, not to SLUICE_LLAMA_SOURCE"
    build_dir=$cache/build-$LLAMA_VERSION-npm-$(sha256sum <<<"$PREBUILT_SHA512" | cut -c1-12)
    [ ! -d "$build_dir/linux-x64" ] || return 0
    local name tmp
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' RETURN
    fetch_package "@node-llama-cpp/linux-x64@$NPM_VERSION" "$PREBUILT_SHA512" "$tmp"
    tar -C "$tmp" -xf "$tmp"/*.tgz package
    for name in libggml libllama; do ln -s "$name.$LLAMA_VERSION.so" "$tmp/package/bins/linux-x64/$name.so"; done
    rm -rf "$build_dir"
    mkdir -p "$build_dir"
    mv "$tmp/package" "$build_dir/linux-x64"
    ln -s linux-x64/bins/linux-x64 "$build_dir/bin"
}

# node-llama-cpp itself beside them, without the source that it carries.
node_package() {
    [ ! -d "$build_dir/node-llama-cpp" ] || return 0
    local tmp
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' RETURN
    fetch_package "node-llama-cpp@$NPM_VERSION" "$NPM_SHA512" "$tmp"
    tar -C "$tmp" -xf "$tmp"/*.tgz --exclude=package/llama/gitRelease.bundle package
    mv "$tmp/package" "$build_dir/node-llama-cpp"
}

what=${1:-}
kind=${2:-native}
[ "$what" != source ] || set -- source - "${2:-}"
pin "${3:-$LLAMA_DEFAULT}"
case $what in
source) fetch_source; echo "source=$source_dir" ;;
node)
    [ "$kind" = npm ] || die "node-llama-cpp's libraries are of kind npm"
    prebuilt
    node_package
    echo "node=$build_dir"
    ;;
lib | server | tools)
    fetch_source
    if [ "$kind" = npm ]; then
        [ "$what" = lib ] || die "the prebuilt libraries come without programs"
        prebuilt
    else
        targets=("${LIB_TARGETS[@]}")
        [ "$what" != server ] || targets+=(llama-server)
        [ "$what" != tools ] || targets+=("${TOOL_TARGETS[@]}")
        build "$kind" "${targets[@]}"
    fi
    printf 'source=%s\nbuild=%s\nversion=%s\n' "$source_dir" "$build_dir" "$LLAMA_VERSION"
    ;;
*) sed -n '2,9p' "$0" >&2; exit 2 ;;
esac
