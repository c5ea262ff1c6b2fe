#!/usr/bin/env bash
# Fetch one npm package, check every byte of it, and cache it unpacked.
#
#   scripts/npm-package.sh NAME@VERSION SHA512     prints the folder of the package
#
# SHA512 is the base64 of the archive's sha512, what the package manager publishes as its integrity. Cached under
# ${XDG_CACHE_HOME:-~/.cache}/sluice/npm/, by version and checksum, so that only the first build needs the network.
# No package is installed: nothing of it runs here, and there is no node_modules folder. That fits packages that
# depend on no others, which all of ours are.
set -euo pipefail

package=${1:-}
sha512=${2:-}
[ -n "$package" ] && [ -n "$sha512" ] || { sed -n '2,4p' "$0" >&2; exit 2; }
die() { printf 'npm package %s: %s\n' "$package" "$*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/npm
key=$(printf '%s' "$sha512" | sha256sum | cut -c1-12)
folder=$cache/$(printf '%s' "$package" | tr '/' '-')-$key
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9

if [ ! -f "$folder/package.json" ]; then
    command -v npm >/dev/null || die "npm is needed to fetch it: apt-get install npm"
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    (cd "$tmp" && npm pack --silent "$package" >/dev/null) || die "npm could not fetch it"
    got=$(openssl dgst -sha512 -binary "$tmp"/*.tgz | base64 -w0)
    [ "$got" = "$sha512" ] || die "sha512 is $got, expected $sha512"
    tar -C "$tmp" -xf "$tmp"/*.tgz
    rm -rf "$folder"
    mv "$tmp/package" "$folder"
fi
printf '%s\n' "$folder"
