#!/usr/bin/env bash
# npm-package.sh NAME - fetch one pinned package that has no dependencies, and print the directory that holds it.
#
# As scripts/llama.sh does: the package manager's published sha512 pins every byte, nothing of the package is executed
# while it is installed, and it is kept under ${XDG_CACHE_HOME:-~/.cache}/sluice/npm, for all clones.
set -euo pipefail

case ${1:-} in
uplot) # charts: src/window/page
    version=1.6.32
    sha512='KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==' ;;
marked) # Markdown: src/window/page
    version=18.2.1
    sha512='ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==' ;;
dompurify) # safe HTML: src/window/page
    version=3.5.0
    sha512='LYC0ZkE8P1V42JsRYTwMdme/2ET8SpOc5AA2eOFjP/IadvRd2fwiT4TVz5vkfy0XUx12aS2UaRkTnfVPNOv9vw==' ;;
playwright-core) # a browser by remote control: tests/page
    version=1.57.0 # later ones want a newer Node.js than Debian 12 has
    sha512='agTcKlMw/mjBWOnD6kFZttAAGHgi/Nw0CZ2o6JqWSbMlI219lAFLZZCyqByTsvVAJq5XA5H8cA6PrvBRpBWEuQ==' ;;
openai) # client of an OpenAI-compatible API: tests/server
    version=6.9.0
    sha512='n2sJRYmM+xfJ0l3OfH8eNnIyv3nQY7L08gZQu3dw6wSdfPtKAk92L83M2NIP5SS8Cl/bsBBG3yKzEOjkx0O+7A==' ;;
*) sed -n '2p' "$0" >&2; exit 2 ;;
esac
name=$1

die() { echo "npm-package: $*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/npm
key=$(printf '%s' "$sha512" | sha256sum | cut -c1-12)
dir=$cache/$name-$version-$key # with the checksum: what another one pinned is not taken for it
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
