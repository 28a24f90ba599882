#!/bin/sh
# Each case: input, columns, expected output.
failed=0
check() {
	got=$(printf "$1" | ./csvcut $2; echo "exit $?")
	want=$(printf "$3")
	if [ "$got" != "$want" ]; then
		printf 'FAILED: csvcut %s\n--- want\n%s\n--- got\n%s\n' "$2" "$want" "$got"
		failed=1
	fi
}
check 'a,b,c\n1,2,3\n' 'b' 'b\n2\nexit 0'
check 'a,b,c\n1,2,3\n4,5,6' 'c a' 'c,a\n3,1\n6,4\nexit 0'
check 'a,b\n"x,y",2\n' 'a' 'a\n"x,y"\nexit 0'
check 'a,b\n"say ""hi""",2\n' 'a b' 'a,b\n"say ""hi""",2\nexit 0'
[ $failed = 0 ] && echo ok
exit $failed
