#!/usr/bin/env bash
# build.sh OUT.html - the window's page as one file, for cmake/embed.cmake.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { sed -n 2p "$0" >&2; exit 2; }
cp "$here/index.html" "$1"
