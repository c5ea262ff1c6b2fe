#!/usr/bin/env bash
# sanitize.sh DIR few|all [address|thread]... - build with sanitizers in DIR, and run
#
#   few  the unit tests (of `thread` those that have threads), one gate and a short soak: what `make test` runs
#   all  all unit tests, the subsets of the gates, the soak and the short endurance run: what `make test-all` runs
#
#   address  AddressSanitizer (leaks included) and UndefinedBehaviorSanitizer, over the usual llama.cpp
#   thread   ThreadSanitizer, over a llama.cpp that scripts/llama.sh builds with it once (five to ten minutes
#            on two cores) and without OpenMP, whose barriers the sanitizer cannot see. All of it must be
#            instrumented, ggml too (LLAMA_SANITIZE_THREAD alone is libllama only): where ggml was not, its
#            barriers stayed unseen and every matmul was reported
#
# Without a name, both. Exit code 0 only when every test passed and no sanitizer wrote a report: the
# reports go to files, so that one from a process whose failure a test expects is not lost.
#
# The tests and the plug-in are built in the same tree, so the host program carries the sanitizer's
# run-time library and nothing needs preloading. Programs of llama.cpp itself do not, and are not run here.
#
# gcc's ThreadSanitizer of Debian 12 (libtsan.so.2) wants the address space layout of its time. It works
# where /proc/sys/vm/mmap_rnd_bits is 28, as here (Linux 6.18). Where it is 32, it ends with "unexpected
# memory mapping"; then setarch -R (no randomisation) helps, and is used when it is allowed.
#
# Assertions are on: the build type here is not Release.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
[ $# -ge 2 ] && { [ "$2" = few ] || [ "$2" = all ]; } || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1 part=$2
shift 2
[ $# -gt 0 ] || set -- address thread
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
export LC_ALL=C

# Faults are injected inside the process here: the sanitizer's library must come before anything that is preloaded.
soak_tokens=500
threaded='(direct|io|idle|engine|prefetch|resize|warm|window|window_http|window_events)'
case $part in
all) tests='^(unit-|gate-([a-z]+-)?subset$|soak$|endurance$)' ;;
few) soak_tokens=200 ;;
esac
export SOAK_TOKENS=$soak_tokens

# Does a program with ThreadSanitizer start here at all? Prints what to put before commands.
thread_prefix() {
    local probe=$dir/probe
    printf 'int main(void) { return 0; }\n' >"$probe.c"
    cc -fsanitize=thread "$probe.c" -o "$probe"
    # Often it starts and sometimes not, by chance: try a few times.
    try() { local i; for i in 1 2 3 4 5 6 7 8; do : "$i"; "$@" "$probe" >/dev/null 2>&1 || return 1; done; }
    if try; then
        :
    elif try setarch -R; then
        echo "setarch -R"
    else
        echo "sanitize: programs with ThreadSanitizer do not start here (vm.mmap_rnd_bits is \
$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo unknown); 28 works)" >&2
        return 1
    fi
}

run() { # KIND
    local kind=$1 build=$dir/$1 prefix="" options=() targets=() rc=0 reports
    case $kind in
    address) options=(-DSLUICE_SANITIZE=address) ;;
    thread)
        prefix=$(thread_prefix) || return 1
        options=(-DSLUICE_SANITIZE=thread -DSLUICE_LLAMA_KIND=tsan)
        ;;
    *) echo "sanitize: no sanitizer is called $kind" >&2; return 2 ;;
    esac
    if [ "$part" = few ]; then
        [ "$kind" = thread ] && tests="^(unit-$threaded|gate-subset|soak)\$" || tests='^(unit-.*|gate-subset|soak)$'
    fi
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g" \
        "${options[@]}" >"$dir/$kind.configure.log" 2>&1 || { tail -n 20 "$dir/$kind.configure.log"; return 1; }
    if [ "$part" = few ]; then # only what these tests run
        targets=(--target sluice-logits sluice-mkmoe ggml-sluice sluice-soak)
        mapfile -t -O 5 targets < <(ctest --test-dir "$build" -N -R "$tests" | sed -nE 's/.*Test +#[0-9]+: (unit-.*)/\1/p')
    fi
    cmake --build "$build" "${targets[@]}" >"$dir/$kind.build.log" 2>&1 || { tail -n 40 "$dir/$kind.build.log"; return 1; }
    rm -f "$dir/$kind.report".*
    # No suppressions are needed. What is not instrumented is not checked for bounds, but its leaks count.
    ASAN_OPTIONS="log_path=$dir/$kind.report:detect_leaks=1:detect_stack_use_after_return=1" \
    UBSAN_OPTIONS="log_path=$dir/$kind.report:print_stacktrace=1" \
    TSAN_OPTIONS="log_path=$dir/$kind.report:halt_on_error=0:second_deadlock_stack=1" \
        $prefix ctest --test-dir "$build" -R "$tests" --output-on-failure --no-tests=error || rc=1
    reports=$(find "$dir" -maxdepth 1 -name "$kind.report.*" -size +0 | sort)
    if [ -n "$reports" ]; then
        echo "sanitize: $kind wrote $(wc -l <<<"$reports") report(s); the first:"
        head -n 60 "$(head -n 1 <<<"$reports")"
        rc=1
    fi
    [ $rc -ne 0 ] || echo "sanitize: $kind: no report"
    return $rc
}

status=0
for kind in "$@"; do
    run "$kind" || status=1
done
exit $status
