#!/bin/sh
# check.sh BUILD [TEST...]: builds and runs the whole test suite, or the tests
# whose names contain one of the words. Called by `make check`; root needed.
# Closing line: "N passed, N failed, N skipped". Exit 1 when anything failed.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
if [ "$(id -u)" != 0 ]; then
	echo "make check: sandboxes need root: run sudo make check" >&2
	exit 1
fi
[ -f "$build/build.ninja" ] || meson setup "$build"
ninja -C "$build"
# The unit tests once more under the sanitizers, in a build of their own.
[ -f build-asan/build.ninja ] ||
	meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug >/dev/null
ninja -C build-asan unit-tests
exec python3 tools/run_tests.py --build "$build" --asan-build build-asan "$@"
