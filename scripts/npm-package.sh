#!/usr/bin/env bash
# npm-package.sh NAME - fetch one pinned package that has no dependencies, and print the directory that holds it.
#
# As scripts/llama.sh does: the package manager's published sha512 pins every byte, nothing of the package is executed
# while it is installed, and it is kept under ${XDG_CACHE_HOME:-~/.cache}/sluice/npm, for all clones.
set -euo pipefail

case ${1:-} in
openai) # client of an OpenAI-compatible API: tests/server
    version=6.9.0
    sha512='n2sJRYmM+xfJ0l3OfH8eNnIyv3nQY7L08gZQu3dw6wSdfPtKAk92L83M2NIP5SS8Cl/bsBBG3yKzEOjkx0O+7A==' ;;
*) sed -n '2p' "$0" >&2; exit 2 ;;
esac
name=$1

die() { echo "npm-package: $*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/npm
dir=$cache/$name-$version
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [ ! -f "$dir/package.json" ]; then
    command -v npm >/dev/null || die "npm is needed to fetch $name $version: apt-get install npm"
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    (cd "$tmp" && npm pack --silent "$name@$version" >/dev/null) || die "npm could not fetch $name@$version"
    got=$(openssl dgst -sha512 -binary "$tmp"/*.tgz | base64 -w0)
    [ "$got" = "$sha512" ] || die "sha512 of $name@$version is $got, expected $sha512"
    tar -C "$tmp" -xf "$tmp"/*.tgz package
    rm -rf "$dir"
    mv "$tmp/package" "$dir"
fi
echo "$dir"
