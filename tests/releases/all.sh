#!/usr/bin/env bash
# all.sh RELEASE KIND [GATE...] - every gate, with every test model, against a release and a build of llama.cpp.
#
# By hand, when a release is added or a build of another kind matters (docs/ggml.md): llama.cpp is built first, with its programs
# (scripts/llama.sh says how long that takes, once); the gates take as long as those of `make test`. KIND is native, dl or npm; npm's prebuilt
# libraries come without llama.cpp's programs, so test models are written by the native build of the same release
# (or that in ARCHS_BIN) and stock programs are left to tests/node. One line per gate; the checks are in $WORK/RELEASE-KIND/GATE.log
# (WORK: build-releases unless it is given).
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/releases/lib.sh
. "$here/lib.sh"
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
release=$1 kind=$2
shift 2
gates=("$@")
[ ${#gates[@]} -gt 0 ] || gates=("${all_gates[@]}")

WORK=${WORK:-$root/build-releases}/$release-$kind
stage=tools
if [ "$kind" = npm ]; then
    stage=lib
    ARCHS_BIN=${ARCHS_BIN:-$("$root/scripts/llama.sh" tools native "$release" | sed -n 's/^build=//p')/bin}
    export ARCHS_BIN
    gates=("${gates[@]/stock-programs/}")
fi
export WORK
build_release "$release" "$kind" $stage "$WORK" ggml-sluice sluice sluice-logits sluice-mkmoe sluice-residency sluice-backends
rc=0
check_command || rc=1
run_gates "${gates[@]}" || rc=1
exit $rc
