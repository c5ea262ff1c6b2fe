#!/usr/bin/env bash
# build.sh OUT.html - make the window's page: one file that asks nobody for anything else.
#
# Fetches the libraries (scripts/npm-package.sh, once), then bundle.mjs puts them, the scripts, the style and the prices of
# docs/quality.csv into index.html. Needs bash, node and npm; nothing is installed and no bundler is used.
set -euo pipefail
[ $# = 1 ] || { sed -n '2p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)

libraries=()
library() { # PACKAGE FILE...
    local folder file
    folder=$("$root/scripts/npm-package.sh" "$1")
    for file in "${@:2}"; do libraries+=("$folder" "$file"); done
}
library uplot dist/uPlot.iife.min.js dist/uPlot.min.css
library marked lib/marked.umd.js
library dompurify dist/purify.min.js

node "$here/bundle.mjs" "$1" "$root/docs/quality.csv" "${libraries[@]}"
