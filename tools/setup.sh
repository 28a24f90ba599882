#!/bin/sh
# setup.sh: installs the Debian packages of tools/packages.txt (as root) and
# nothing else; makes nothing outside the tree. Quick when all are present.
# Called by `make setup` and, through it, by `make demo` and `make check`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
want=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/packages.txt")

missing=""
for p in $want; do
	# pkg-config is a virtual name of pkgconf on newer releases.
	dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed && continue
	[ "$p" = pkg-config ] && command -v pkg-config >/dev/null 2>&1 && continue
	missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "make setup: these packages are missing and installing needs root:$missing" >&2
	echo "run: sudo make setup" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "make setup: no apt-get here; DSec is set up on Debian and Ubuntu. Missing:$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
echo "make setup: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
	apt-get -q update &&
		# shellcheck disable=SC2086 # a list of words
		apt-get -q -y --no-install-recommends install $missing
} >"$log" 2>&1 || {
	tail -n 30 "$log" >&2
	echo "make setup: apt-get failed (above are its last lines)" >&2
	exit 1
}
