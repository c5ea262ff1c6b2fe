#!/usr/bin/env bash
# few.sh RELEASE KIND - the short test of another release or build of llama.cpp: sluice builds against it, and streams
# a few models of each kind and llama.cpp's test models of eight architectures, byte-identical.
#
# KIND npm takes node-llama-cpp's prebuilt libraries of that release, so that nothing of llama.cpp is compiled; they load
# their backends at run time and carry one per processor, none of which this machine's compiler made. The test models are
# those of the pinned release's gates. all.sh is the long test. Environment: WORK, a directory; ARCHS_BIN and FIXTURES (tests/gates/lib.sh).
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/releases/lib.sh
. "$here/lib.sh"
[ $# = 2 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
: "${WORK:?}" "${ARCHS_BIN:?}" "${FIXTURES:?}"

export WORK="$WORK/$1-$2"
build_release "$1" "$2" lib "$WORK" ggml-sluice sluice sluice-logits sluice-mkmoe
rc=0
check_command || rc=1
run_gates subset few || rc=1
exit $rc
