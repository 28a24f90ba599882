#!/usr/bin/env python3
"""Cheap format rules that hold on every release's tools; .clang-format has the full style for editors.

C: tabs indent (a tab is 8). Python: spaces. Both: aim for 110 columns, never past 132 but for
the words of a string, which are not broken. All text files: no trailing blanks,
no carriage returns, one newline at the end. Files given as arguments, or every file that git knows. Exit 1 on a violation.
"""
import pathlib
import re
import subprocess
import sys

COLUMNS = 132
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
TEXT = {".c", ".h", ".py", ".sh", ".md", ".build", ".proto", ".yaml", ".txt", ".toml"}


def problems(path):
    try:
        data = path.read_bytes()
    except OSError:
        return
    if b"\r" in data:
        yield 1, "carriage return"
    if data and (not data.endswith(b"\n") or data.endswith(b"\n\n")):
        yield data.count(b"\n"), "must end with exactly one newline"
    for number, line in enumerate(data.decode(errors="replace").split("\n"), 1):
        if line != line.rstrip():
            yield number, "trailing blanks"
        if path.suffix in (".c", ".h", ".py") and len(STRING.sub('""', line.expandtabs(8))) > COLUMNS:
            yield number, f"more than {COLUMNS} columns without its strings"
        if path.suffix in (".c", ".h") and re.match(r" {8}|\t* {8}", line):
            yield number, "indent with tabs"
        if path.suffix == ".py" and line.startswith("\t"):
            yield number, "indent with spaces"


def tree(root):
    """Files that git knows; without git (or where it distrusts the owner) all outside of build directories."""
    git = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True, check=False)
    if git.returncode == 0:
        return git.stdout.split("\n")
    return [str(p.relative_to(root)) for p in root.rglob("*")
            if not p.relative_to(root).parts[0].startswith(("build", ".git"))]


def main(words):
    root = pathlib.Path(__file__).resolve().parents[1]
    names = words or tree(root)
    found = 0
    for name in names:
        path = root / name
        if path.suffix in TEXT and path.is_file():
            for line, what in problems(path):
                print(f"{name}:{line}: {what}")
                found += 1
    print(f"{found} format problems" if found else "format: as agreed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
