#!/usr/bin/env bash
# openai.sh - fetch the client, which a second run finds in the cache, and run openai.mjs with it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OPENAI=$("$here/../../scripts/npm-package.sh" openai)
export OPENAI
for v in "${!SLUICE_@}"; do unset "$v"; done
unset OPENAI_API_KEY OPENAI_BASE_URL
exec node "$here/openai.mjs"
