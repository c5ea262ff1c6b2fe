#!/usr/bin/env bash
# Install what building (setup.sh build), packaging (setup.sh deb) or testing (setup.sh test) needs, on Debian and its kin.
# Installs only when it may (root, or sudo without a password); otherwise prints the one line to
# run and ends with 1. Does nothing, quickly, when all is there. npm packages are fetched as well: those that the
# window's page is made of, and for testing those that tests use as clients (scripts/npm-package.sh).
set -euo pipefail

build=(gcc g++ cmake ninja-build git npm pkg-config openssl libjansson-dev libmicrohttpd-dev libncurses-dev libxxhash-dev)
deb=(dpkg-dev)
test=(dpkg-dev man-db mandoc mmdebstrap libcmocka-dev curl clang-format util-linux procps chromium clang libclang-rt-dev bindfs fuse3 gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user)

case ${1:-} in
build) packages=("${build[@]}") ;;
deb) packages=("${build[@]}" "${deb[@]}") ;;
test) packages=("${build[@]}" "${test[@]}") ;;
*) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system: the equivalents of these packages must be there: ${packages[*]}" >&2
    exit 0
fi

missing=()
for p in "${packages[@]}"; do
    # npm may come without the Debian package (a newer Node.js): the command is what counts.
    if [ "$p" = npm ] && command -v npm >/dev/null; then continue; fi
    # The same for a browser that was named (tests/page/run.sh).
    if [ "$p" = chromium ] && [ -n "${CHROMIUM:-}" ]; then continue; fi
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
npm_packages() {
    local name names=(uplot marked dompurify)
    [ "$1" != test ] || names+=(playwright-core openai)
    for name in "${names[@]}"; do "$(dirname "$0")/npm-package.sh" "$name" >/dev/null; done
}
if [ ${#missing[@]} -eq 0 ]; then
    npm_packages "$1"
    exit 0
fi

if [ "$(id -u)" = 0 ]; then
    run=()
elif sudo -n true 2>/dev/null; then
    run=(sudo)
else
    echo "missing packages; run: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}" >&2
"${run[@]}" apt-get update -qq >/dev/null
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
npm_packages "$1"
