#!/bin/sh
# Runs the hidden tests against the repository in $1; exit 0 means solved.
cd "$1" && PYTHONPATH="$1" PYTHONDONTWRITEBYTECODE=1 exec python3 -B "$(dirname "$0")/hidden_test.py"
