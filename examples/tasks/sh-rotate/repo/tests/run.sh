#!/bin/sh
# Each test works in a fresh directory.
rotate=$(cd "$(dirname "$0")/.." && pwd)/bin/rotate
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

begin() {
	rm -rf "$work"
	mkdir "$work"
	cd "$work" || exit 1
}
equal() {
	if [ "$2" != "$3" ]; then
		printf 'FAILED %s: want "%s", got "%s"\n' "$1" "$2" "$3"
		failed=1
	fi
}

begin
echo one > log
"$rotate" log
equal "old content" one "$(cat log.1)"
equal "new file is empty" "" "$(cat log)"

begin
echo one > log; "$rotate" log; echo two > log; "$rotate" log
equal "second round" "two one" "$(echo $(cat log.1 log.2))"

begin
for i in 1 2 3 4 5; do echo $i > log; "$rotate" -k 2 log; done
equal "keeps two" "log log.1 log.2" "$(echo $(ls))"

begin
echo x > "my log"
"$rotate" "my log"
equal "blank in the name" x "$(cat "my log.1")"

[ $failed = 0 ] && echo ok
exit $failed
