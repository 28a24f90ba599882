#!/bin/sh
# Builds the hidden test against the repository in $1; exit 0 means solved.
set -e
here=$(dirname "$0")
cd "$1"
cc -O1 -g -fsanitize=undefined -fno-sanitize-recover=all -I. -o /tmp/hidden_ring "$here/hidden_ring.c" ring.c
timeout 20 /tmp/hidden_ring
cc -O1 -o /tmp/tail tail.c ring.c
test "$(seq 1 50 | /tmp/tail 3 | tr '\n' ,)" = 48,49,50,
test "$(seq 1 30000 | /tmp/tail 2 | tr '\n' ,)" = 29999,30000,
test "$(seq 1 4 | /tmp/tail 9 | tr '\n' ,)" = 1,2,3,4,
test "$(seq 1 4 | /tmp/tail 0)" = ""
