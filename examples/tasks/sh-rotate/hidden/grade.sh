#!/bin/sh
# Tests bin/rotate of the repository in $1; exit 0 means solved.
rotate=$1/bin/rotate
failed=0
begin() { rm -rf /tmp/w; mkdir /tmp/w; cd /tmp/w || exit 1; }
equal() { [ "$2" = "$3" ] || { printf 'FAILED %s: want "%s", got "%s"\n' "$1" "$2" "$3"; failed=1; }; }

begin; for i in 1 2 3 4 5 6 7 8 9; do echo $i > log; "$rotate" log; done
equal "default keeps five" "log log.1 log.2 log.3 log.4 log.5" "$(echo $(ls))"
equal "in order" "9 8 7 6 5" "$(echo $(cat log.1 log.2 log.3 log.4 log.5))"
"$rotate" -k 2 log
equal "fewer now" "log log.1 log.2" "$(echo $(ls))"
begin; echo a > log; echo b > log.1; echo c > log.2; "$rotate" -k 0 log
equal "none" "log" "$(echo $(ls))"
begin; printf 12345 > log; "$rotate" -s 6 log; equal "small stays" 12345 "$(cat log)"
"$rotate" -s 5 log; equal "large enough" 12345 "$(cat log.1 2>&1)"
begin; echo x > log; chmod 640 log; "$rotate" log; equal "mode" "640 640" "$(echo $(stat -c %a log log.1))"
begin
nl='a
b'
for name in 'a b' '*' "$nl" '$(touch evil)'; do echo "$name" > "$name"; done
echo dash > ./-k; echo other > plain
"$rotate" -- 'a b' '*' "$nl" '$(touch evil)' -k
equal "blank" "a b" "$(cat 'a b.1')"; equal "star" "*" "$(cat './*.1')"; equal "line break" "$nl" "$(cat "$nl.1")"
equal "dash" dash "$(cat ./-k.1)"; equal "plain untouched" other "$(cat plain)"
[ ! -e evil ] || { echo "FAILED: ran a name as a command"; failed=1; }
begin; echo x > log; "$rotate" missing log 2> err; equal "status" 1 $?
grep -q missing err || { echo "FAILED: no word about the missing file"; failed=1; }
equal "others go on" x "$(cat log.1)"; [ ! -e missing ] || { echo "FAILED: made a missing file"; failed=1; }
for bad in '-x' '-k many' '-s -1'; do "$rotate" $bad log 2> /dev/null; equal "bad option $bad" 2 $?; done
begin; mkdir "$1 copy"; cp -r "$1/bin" "$1/lib" "$1 copy"; echo y > log; "$1 copy/bin/rotate" log
equal "installed in a directory with a blank" y "$(cat log.1)"
rm -rf "$1 copy"
exit $failed
