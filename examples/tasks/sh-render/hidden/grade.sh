#!/bin/sh
# Tests bin/render of the repository in $1; exit 0 means solved.
render=$1/bin/render
failed=0
rm -rf /tmp/w; mkdir /tmp/w; cd /tmp/w || exit 1
equal() { [ "$2" = "$3" ] || { printf 'FAILED %s: want "%s", got "%s"\n' "$1" "$2" "$3"; failed=1; }; }
run() { # env, template -> stdout in $out, status in $status, stderr in err
	printf '%s\n' "$1" > env; printf '%s\n' "$2" > t
	out=$("$render" -e env t 2> err); status=$?
}
run "A=1" 'a ${A} ${A}b'; equal plain "a 1 1b" "$out"
run "A='a&b\\c'" '[${A}]'; equal special '[a&b\c]' "$out"
run 'A=${B}
B=2' '${A}'; equal "not looked at again" '${B}' "$out"
run 'A="two words"
# B=9
C=x=y' '${A}|${B:-no}|${C}'; equal "quotes, comments, equals" 'two words|no|x=y' "$out"
run "A=" '${A:-d e}${A:-}.'; equal default "d e." "$out"
run "A=1" 'cost $$5 $x ${A'; equal dollars 'cost $5 $x ${A' "$out"
run "A=1" 'ok
${B:?must be given}'; equal "required status" 1 "$status"; equal "required stdout" "" "$out"
equal "required message" "t:2: B: must be given" "$(cat err)"
run "A=1" '${B}'; equal "missing status" 1 "$status"; equal "missing message" "t:1: B: not set" "$(cat err)"
run 'A=$(touch evil)
B=`touch evil`
touch evil' '${A}${B}'; equal "never executed" '$(touch evil)`touch evil`' "$out"
[ ! -e evil ] || { echo "FAILED: executed the file"; failed=1; }
printf 'A=1\nB=1\n' > e1; printf 'B=2\n' > e2; printf '${A}${B}\n' > t
equal "later files win" 12 "$("$render" -e e1 -e e2 t)"
: > empty; printf 'hello\n' > t; equal "no variables" hello "$("$render" -e empty t)"
exit $failed
