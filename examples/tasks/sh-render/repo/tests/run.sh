#!/bin/sh
render=$(cd "$(dirname "$0")/.." && pwd)/bin/render
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

check() { # name, env, template, want
	printf '%s\n' "$2" > env
	printf '%s\n' "$3" > t
	got=$("$render" -e env t 2>&1; echo "exit $?")
	want=$(printf '%s\nexit 0' "$4")
	if [ "$got" != "$want" ]; then
		printf 'FAILED %s\n--- want\n%s\n--- got\n%s\n' "$1" "$want" "$got"
		failed=1
	fi
}

check "one" "A=1" 'x ${A} y' 'x 1 y'
check "two on a line" "A=1
B=2" '${A}${B}${A}' '121'
check "default" "A=" '${A:-none} ${Z:-z}' 'none z'
check "ampersand" "A='a&b'" '[${A}]' '[a&b]'

[ $failed = 0 ] && echo ok
exit $failed
