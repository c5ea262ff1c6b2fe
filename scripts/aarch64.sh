#!/usr/bin/env bash
# aarch64.sh [DIR] - sluice on 64-bit ARM: cross-build it, and run its tests under emulation.
#
# Builds llama.cpp (once, cached; about 6 minutes on two cores) and all of sluice with Debian's cross compiler
# in DIR (build-aarch64), then runs every unit test and a subset of the gates (tests/gates/run-gates.sh aarch64)
# by qemu-aarch64, both sides of each comparison on the same emulated processor. What emulation proves: the code
# compiles and computes the same bytes with ARM's kernels; it says nothing about speed.
#
# The libraries of that system lie in a directory under the cache, not in this system: no foreign architecture is
# added to dpkg, and packages that cannot be installed beside those of this machine do no harm. They are downloaded
# by apt from the sources that are configured here, with a state of its own.
#
# LLAMA_BIN  llama.cpp's programs for this machine, which write the models (scripts/llama.sh tools when not given)
# MKMOE      a sluice-mkmoe for this machine: writing quantised models takes ten times as long as running them here
# WORK       a directory for models and outputs (DIR/gates)
#
# Exit codes: 0 all passed, 1 not, 77 what is needed is not here and may not be installed: nothing was tested.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
dir=${1:-$root/build-aarch64}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
mkdir -p "$cache"

say() { printf 'aarch64: %s\n' "$*" >&2; }
skip() { say "SKIPPED: $*"; exit 77; }

for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64 dpkg-deb apt-get; do
    command -v "$tool" >/dev/null ||
        skip "no $tool here (apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user)"
done

# What sluice links, and what that links; apt finds out.
packages=(libc6-dev libstdc++6 libjansson-dev libmicrohttpd-dev libncurses-dev libxxhash-dev libcmocka-dev)

make_sysroot() { # sets $sysroot
    local key
    # shellcheck disable=SC1091
    key=$({ . /etc/os-release; echo "1 ${ID:-} ${VERSION_ID:-} ${packages[*]}"; } | sha256sum | cut -c1-12)
    sysroot=$cache/sysroot-arm64-$key
    exec 8>"$sysroot.lock"
    flock 8
    if [ ! -f "$sysroot/.complete" ]; then
        say "fetching the libraries of an arm64 system (about 20 MB)"
        local state=$sysroot.apt deb link target
        rm -rf "$sysroot" "$state"
        mkdir -p "$state"/{lists/partial,archives/partial} "$sysroot"/usr/{bin,sbin,lib}
        : >"$state/status"
        # An empty machine of that architecture, whose packages are only downloaded.
        local apt=(apt-get -qq -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status"
            -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" -o APT::Architecture=arm64
            -o APT::Architectures::=arm64 -o Acquire::Languages=none -o APT::Sandbox::User=root)
        "${apt[@]}" update >&2 || true # a source without that architecture is no loss; what is missing shows next
        "${apt[@]}" install -y --no-install-recommends --download-only "${packages[@]}" >&2 ||
            skip "the packages of an arm64 system cannot be had: ${packages[*]}"
        # /lib is /usr/lib, so that every package finds what another brought.
        for link in bin sbin lib; do ln -s "usr/$link" "$sysroot/$link"; done
        for deb in "$state"/archives/*.deb; do
            dpkg-deb --fsys-tarfile "$deb" | tar -C "$sysroot" --keep-directory-symlink -xf -
        done
        # Links to absolute names would leave the directory.
        find "$sysroot" -type l -lname '/*' | while read -r link; do
            target=$(readlink "$link")
            ln -sfn "$(realpath -m --relative-to="$(dirname "$(realpath -s "$link")")" "$sysroot$target")" "$link"
        done
        rm -rf "$state"
        : >"$sysroot/.complete"
    fi
    exec 8>&-
}

make_sysroot
export SLUICE_SYSROOT=$sysroot

if [ -z "${LLAMA_BIN:-}" ]; then
    LLAMA_BIN=$("$here/llama.sh" tools | sed -n 's/^build=//p')/bin
fi
source_dir=$("$here/llama.sh" source | sed -n 's/^source=//p')

say "building"
cmake -S "$root" -B "$dir" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" -DSLUICE_LLAMA_KIND=arm64 \
    -DSLUICE_TESTS=ON -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64;-L;$sysroot" >"$dir/configure.log" 2>&1 ||
    { tail -n 20 "$dir/configure.log" >&2; say "cmake failed"; exit 1; }
cmake --build "$dir" >"$dir/build.log" 2>&1 || { tail -n 30 "$dir/build.log" >&2; say "the build failed"; exit 1; }

say "unit tests"
failed=0
ctest --test-dir "$dir" -R '^(unit-|cli-unit)' --output-on-failure --no-tests=error || failed=1
say "gates"
# To the gates these are the programs: without the kernel's help (binfmt_misc) somebody must name the emulator.
rm -rf "$dir/emulated" # with a link in it, the loop would write through that
mkdir -p "$dir/emulated"
for program in sluice-logits sluice-mkmoe; do
    printf '#!/bin/sh\nexec qemu-aarch64 -L "%s" "%s" "$@"\n' "$sysroot" "$dir/bin/$program" >"$dir/emulated/$program"
    chmod +x "$dir/emulated/$program"
done
[ -z "${MKMOE:-}" ] || ln -sfn "$MKMOE" "$dir/emulated/sluice-mkmoe"
ln -sfn "$dir/bin/libggml-sluice.so" "$dir/emulated/libggml-sluice.so"
BIN=$dir/emulated LLAMA_BIN=$LLAMA_BIN LLAMA_SRC=$source_dir WORK=${WORK:-$dir/gates} \
    bash "$root/tests/gates/run-gates.sh" aarch64 || failed=1
exit $failed
