#!/bin/sh
# Builds the repository in $1 and compares; exit 0 means solved.
cd "$1" || exit 1
cc -O1 -g -fsanitize=undefined -fno-sanitize-recover=all -o /tmp/csvcut csvcut.c csv.c || exit 1
failed=0
check() {
	got=$(printf "$1" | /tmp/csvcut $2 2>/tmp/err; echo "exit $?")
	want=$(printf "$3")
	[ "$got" = "$want" ] || { printf 'FAILED: %s\n%s\n' "$2" "$got"; failed=1; }
}
check 'a,b,c\n1,2,3\n4,5,6' 'c a c' 'c,a,c\n3,1,3\n6,4,6\nexit 0'
check 'a,b\n"x,y",2\n' 'a' 'a\n"x,y"\nexit 0'
check 'a,b\r\n"say ""hi""",2\r\n' 'a b' 'a,b\n"say ""hi""",2\nexit 0'
check 'a,b\n"two\nlines","",\n' 'b a' 'b,a\n,"two\nlines"\nexit 0'
check '"a,1",b\nx,y\n' 'b' 'b\ny\nexit 0'
check 'a,b,c\n1\n' 'c a' 'c,a\n,1\nexit 0'
check 'a,b\n"plain",2\n' 'a' 'a\nplain\nexit 0'
check 'a,b\n"\r",2\n' 'a' 'a\n"\r"\nexit 0'
check 'a,b\n"open,2\n' 'a' 'a\nexit 1'
grep -q . /tmp/err || { echo "no message about the open quote"; failed=1; }
check 'a,b\n1,2\n' 'nope' 'exit 2'
grep -q nope /tmp/err || { echo "no message that names the column"; failed=1; }
long=$(head -c 100000 /dev/zero | tr '\0' x)
[ "$(printf 'a,b\n1,%s\n' "$long" | /tmp/csvcut b | tail -n 1)" = "$long" ] || { echo "long field"; failed=1; }
exit $failed
