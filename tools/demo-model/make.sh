#!/bin/bash
# make.sh retrains the demo model from nothing: corpus -> tokenizer -> training -> GGUF (F16) ->
# llama.cpp's own quantiser -> the numbers of models/README.md. One command:
#
#   tools/demo-model/make.sh LLAMA_BIN [WORKDIR] [train.py options]
#
# LLAMA_BIN is the folder with llama-quantize, llama-perplexity and llama-completion. Everything that is
# not shipped stays in WORKDIR (default /tmp/sluice-demo-model). A stopped run goes on where its last
# checkpoint is; to begin again, delete WORKDIR. Needs /usr/bin/python3 with Debian's python3-torch and
# libopenblas0-pthread, and a C compiler for the tokenizer check (LLAMA_SRC=llama.cpp's source folder).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
models=${MODELS:-$here/../../models}
bin=$(cd "${1:?usage: make.sh LLAMA_BIN [WORKDIR] [train.py options]}" && pwd)
work=${2:-/tmp/sluice-demo-model}
shift; [ $# -gt 0 ] && shift
python="nice -n 19 /usr/bin/python3 -B"

mkdir -p "$work" "$models"
# The training makes and frees the same large arrays at every step: keep them, on large pages.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=20000000000

[ -f "$work/train.bin" ] || $python "$here/corpus.py" "$work" --docs 55000 --heldout "$models/demo-heldout.txt"
$python "$here/test_model.py"
$python "$here/train.py" "$work" "$@" 2>&1 | tee -a "$work/train.log"
exec "$here/ship.sh" "$bin" "$work"
