#!/bin/sh
# prove-setup.sh [RELEASE]: shows that a fresh Debian (bookworm by default) with
# nothing but make can build DSec: a chroot by mmdebstrap, the last commit, then
# `make setup && make`, `make setup` again (must be quick) and `make install`.
# Root, network (Debian's packages), 1 to 5 minutes; not part of `make check`. A
# machine that was used for a while hides what packages.txt lacks. The last
# results are in docs/hosts.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
release=${1:-bookworm}
[ "$(id -u)" = 0 ] || {
	echo "prove-setup: needs root for a chroot" >&2
	exit 1
}
chroot=$(mktemp -d /var/tmp/dsec-prove-XXXXXX)
# The chroot has no mounts but those mmdebstrap makes and undoes itself.
trap 'rm -rf --one-file-system "$chroot"' EXIT
trap 'exit 1' INT TERM

cat >"$chroot.hook" <<HOOK
set -eu
mkdir -p "\$1/src"
git -C "$root" archive HEAD | tar -C "\$1/src" -x
cat >"\$1/prove" <<'IN'
set -eu
cd /src
echo "prove-setup: make setup"
time make setup
echo "prove-setup: make"
time make
echo "prove-setup: make setup again"
time make setup
make install DESTDIR=/tmp/dest PREFIX=/usr >/dev/null
find /tmp/dest -type f | sort
echo "prove-setup: ok"
IN
chroot "\$1" bash /prove
HOOK
trap 'rm -rf --one-file-system "$chroot" "$chroot.hook"' EXIT
mmdebstrap --quiet --variant=minbase --include=make --skip=cleanup/apt \
	--customize-hook="sh $chroot.hook \"\$1\"" "$release" "$chroot"
