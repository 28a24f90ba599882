#!/bin/sh
# Builds the hidden test against the repository in $1; exit 0 means solved.
set -e
here=$(dirname "$0")
cd "$1"
cc -O1 -g -fsanitize=undefined -fno-sanitize-recover=all -I. -o /tmp/hidden_map "$here/hidden_map.c" map.c
timeout 20 /tmp/hidden_map
cc -O1 -o /tmp/wordfreq wordfreq.c map.c
test "$(printf 'b a c b a d' | timeout 5 /tmp/wordfreq | tr '\n' ,)" = '2 a,2 b,1 c,1 d,'
test "$(seq 1 3000 | timeout 5 /tmp/wordfreq | wc -l)" = 3000
