#!/usr/bin/env bash
# run.sh mock|live WORK - test the window's page in a real browser.
#
#   mock   builds the page into WORK and opens it on tests/page/mock.mjs
#   live   opens the page that a real program serves; SLUICE_PAGE_COMMAND says how to start that (live.test.mjs)
#
# Needs Debian's chromium (scripts/setup.sh test) or another one named by CHROMIUM. playwright-core drives it, from
# npm (scripts/npm-package.sh). SHOTS=DIR keeps screenshots there.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
what=${1:-}
work=${2:-}
case $what in mock) tests=page.test.mjs ;; live) tests=live.test.mjs ;; *) what='' ;; esac
[ -n "$what" ] && [ -n "$work" ] || { sed -n '2,5p' "$0" >&2; exit 2; }

CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
[ -x "$CHROMIUM" ] || { echo "no chromium: run scripts/setup.sh test, or set CHROMIUM" >&2; exit 1; }
PLAYWRIGHT=$("$root/scripts/npm-package.sh" playwright-core)
mkdir -p "$work"
PAGE=$work/page.html
CSV=$root/docs/quality.csv
export CHROMIUM PLAYWRIGHT PAGE CSV
"$root/src/window/page/build.sh" "$PAGE"
exec node --test --test-concurrency=1 "$here/$tests"
