#!/usr/bin/env bash
# deb.sh - the Debian package: made by cpack, checked, installed in a system that has nothing but what it asks for, run
# there, removed without a trace.
#
# That system is a minimal Debian of this machine's release, made by mmdebstrap from this machine's own apt sources, with
# the package's dependencies and man-db in it. It is kept under ${XDG_CACHE_HOME:-~/.cache}/sluice, by release and
# dependencies: the first time takes about a minute, later ones seconds. What is done in it happens in a mount namespace.
# Where none is allowed, or the packages cannot be fetched, the test is skipped (exit code 77) after the checks that need
# neither.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/lib.sh
. "$here/lib.sh"

# Inside the namespace: ROOT is unpacked, DEB and the model are in ROOT/tmp.
if [ "${1:-}" = inside ]; then
    root=$2
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 3
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root OMP_WAIT_POLICY=passive \
        DEBIAN_FRONTEND=noninteractive bash /tmp/in-chroot.sh
fi

skip() {
    echo "note: $*: what the package does in a clean system was not tested"
    echo "$((checks - failures)) of $checks checks passed"
    [ "$failures" -eq 0 ] || exit 1
    exit 77
}

command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps here (package dpkg-dev)"
cd "$work" || exit 1
works "cpack -G DEB" cpack -G DEB --config "$BUILD/CPackConfig.cmake" -B "$work/deb"
deb=$(echo "$work"/deb/*.deb)
[ -s "$deb" ] || { fail "no package was made"; finish; }
works "dpkg-deb reads it" dpkg-deb --info "$deb"
depends=$(dpkg-deb --field "$deb" Depends)
for library in libc6 libgomp1 libjansson4 libmicrohttpd12 libncurses6 libstdc++6 libxxhash0; do
    tr ',' '\n' <<<"$depends" | sed 's/^ *//; s/ .*//; s/t64$//' | grep -xF "$library" >/dev/null || fail "it does not depend on $library: $depends"
done
for field in Section Maintainer Description Architecture; do
    [ -n "$(dpkg-deb --field "$deb" "$field")" ] || fail "it has no $field"
done
case $("$BUILD/bin/sluice" --version) in *' native build'*)
    dpkg-deb --field "$deb" Description >"$work/out"
    grep -q 'built for the processor of the machine' "$work/out" || fail "it does not say for whose processor it is" ;;
esac
dpkg-deb --fsys-tarfile "$deb" | tar -C "$work" -xf - ./usr/share/doc/sluice ./usr/share/man
doc=$work/usr/share/doc/sluice
for file in "$doc"/licenses/*.txt; do
    [ "$(basename "$file")" = dompurify.txt ] && continue # Debian has that text, and wants it named
    grep -qF -- "$(sed -n '/[Cc]opyright\|[Pp]ublic/{p;q}' "$file")" "$doc/copyright" || fail "copyright lacks $(basename "$file")"
done
works "manual pages are compressed" gzip -t "$work"/usr/share/man/man1/*.gz "$doc/changelog.gz"
[ -z "$(find "$work/usr/share/man" -name '*.1')" ] || fail "some manual pages are not compressed"
if command -v lintian >/dev/null; then # many packages: not among those that scripts/setup.sh installs
    works "lintian" lintian --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$deb"
else
    echo "note: no lintian here"
fi

# The system to install it in.
command -v mmdebstrap >/dev/null || skip "no mmdebstrap here"
. /etc/os-release
release=${VERSION_CODENAME:-}
[ "${ID:-}" = debian ] && [ -n "$release" ] || skip "not Debian"
root_user=$([ "$(id -u)" = 0 ] && echo yes)
alone=(unshare --mount --pid --fork)
[ -n "$root_user" ] || alone+=(--map-root-user --map-auto)
"${alone[@]}" mount -t tmpfs none /mnt 2>/dev/null || skip "no mount namespace is allowed here"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    ! grep -qE "^[^#]*\\b$release\\b" "$file" 2>/dev/null || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || skip "no apt source of $release"
include=$(sed 's/ *([^)]*)//g; s/ *| *[^,]*//g; s/, */,/g' <<<"$depends"),man-db
key=$({ cat "${sources[@]}"; echo "$include $release $(dpkg --print-architecture)"; } | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
tarball=$cache/debian-$release-$key.tar
mkdir -p "$cache"
if [ ! -s "$tarball" ]; then
    echo "note: making a minimal $release"
    apt-config dump | grep -i '^Acquire::.*proxy' >"$work/apt.conf"
    if ! mmdebstrap --quiet --mode="$([ -n "$root_user" ] && echo root || echo unshare)" --variant=minbase --aptopt="$work/apt.conf" \
        --include="$include" "$release" "$work/new.tar" "${sources[@]}" >"$work/out" 2>&1; then
        if grep -E 'Unable to locate package|unmet dependencies|no installation candidate' "$work/out" >"$work/why"; then
            fail "$release has not what it depends on: $(head -n 3 "$work/why" | tr '\n' ' ')"
            finish
        fi
        skip "mmdebstrap cannot make it: $(tail -n 2 "$work/out" | tr '\n' ' ')"
    fi
    mv "$work/new.tar" "$tarball.$$" && mv "$tarball.$$" "$tarball"
fi

cat >"$work/in-chroot.sh" <<'IN'
set -u
list() { find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \) -prune -o -print | sort; }
list >/tmp/before
dpkg -i /tmp/sluice.deb >/tmp/out 2>&1 || { echo "dpkg -i failed"; cat /tmp/out; exit 1; }
echo "installed $(dpkg-query -W -f '${Status}' sluice)"
cd /
echo "version $(sluice --version | head -n 1)"
sluice --help >/tmp/help && echo "help $(grep -c '^  [a-z]' /tmp/help)"
for page in sluice sluice-run; do
    echo "man $(man -w $page)"
    MANPAGER=cat man $page >/tmp/page 2>/tmp/err && grep -q SYNOPSIS /tmp/page && [ ! -s /tmp/err ] && echo "page $page"
done
sluice run -m /tmp/demo.gguf -p "$(cat /tmp/prompt)" -n 24 --temp 0 --cache 4MiB -q >/tmp/text 2>/tmp/err && echo "run ok" || cat /tmp/err
[ ! -x /usr/lib/sluice/llama-server ] || sluice exec -q -- /usr/lib/sluice/llama-server --list-devices 2>&1 | grep -i sluice | sed 's/^/exec /'
echo "verify $(dpkg --verify sluice | wc -l)"
dpkg --purge sluice >/tmp/out 2>&1 || { echo "dpkg --purge failed"; cat /tmp/out; exit 1; }
list >/tmp/after
cmp /tmp/before /tmp/after && echo "nothing is left" || diff /tmp/before /tmp/after | head
IN
mkdir "$work/root"
tar -C "$work/root" --exclude='./dev/*' --numeric-owner -xf "$tarball" || skip "$tarball cannot be unpacked"
cp "$deb" "$work/root/tmp/sluice.deb"
cp "$demo" "$work/in-chroot.sh" "$work/root/tmp"
prompt=${prompt%%$'\n'*} # command substitution takes newlines at the end away
echo "$prompt" >"$work/root/tmp/prompt"
"$BUILD/bin/sluice" run -m "$demo" -p "$prompt" -n 24 --temp 0 --cache 4MiB -q >"$work/wanted" 2>"$work/err" ||
    fail "the build tree's sluice run: $(head -c 300 "$work/err")"
"${alone[@]}" bash "$here/deb.sh" inside "$work/root" >"$work/told" 2>&1 || fail "in the clean system: $(tail -n 5 "$work/told")"
said() { if grep -qE "$2" "$work/told"; then ok "$1"; else fail "$1: $(head -c 600 "$work/told")"; fi; }
said "clean $release: dpkg -i" '^installed install ok installed$'
said "  sluice --version" "^version $("$BUILD/bin/sluice" --version | head -n 1 | sed 's/[().]/\\&/g')\$"
said "  sluice --help" '^help 1[0-9]$'
said "  man sluice" '^man /usr/share/man/man1/sluice\.1\.gz$'
said "  it can be read" '^page sluice$'
said "  man sluice-run" '^page sluice-run$'
said "  sluice run" '^run ok$'
same "  the text of the build tree" "$(cat "$work/wanted")" "$(cat "$work/root/tmp/text")"
[ ! -x "$LLAMA_BIN/llama-server" ] || said "  sluice exec: the plug-in's device is there" '^exec .*'
said "  no file differs from the package's" '^verify 0$'
said "  removed: nothing is left" '^nothing is left$'
finish
