#!/usr/bin/env bash
# build.sh OUT.html - make the window's page: one file that asks nobody for anything else.
#
# Fetches the libraries (packages.txt, once), then bundle.mjs puts them, the scripts, the style and the prices of
# docs/quality.csv into index.html. Needs bash, node and npm; nothing is installed and no bundler is used.
set -euo pipefail
[ $# = 1 ] || { sed -n '2p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)

libraries=()
while read -r package sha512 files; do
    case $package in '' | \#*) continue ;; esac
    folder=$("$root/scripts/npm-package.sh" "$package" "$sha512")
    for file in $files; do libraries+=("$package:$folder:$file"); done
done <"$here/packages.txt"

node "$here/bundle.mjs" "$1" "$root/docs/quality.csv" "${libraries[@]}"
