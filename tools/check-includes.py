#!/usr/bin/env python3
"""Checks that every #include under src/ follows the allowed arrows between folders.

ALLOWED is the table of ARCHITECTURE section 3; a folder may always include itself. Headers of libraries are
checked where a rule names them (no libuv in base, aether or chronus). Also: every folder has a README.md of
about ten lines, and no file is past 800 lines. Prints one line a violation; exit status 1 if there are any.
Run by tools/check.py and by hand. --root DIR checks another tree (the test of this test).
"""
import argparse
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "aether": {"base"},
    "loop": {"base", "aether"},
    "kernel": {"base"},
    "layer": {"base", "loop", "kernel"},
    "backend": {"base", "loop", "kernel", "layer"},
    "edge": {"base", "aether", "loop", "kernel", "layer", "backend", "proto"},
    "store": {"base"},
    "control": {"base", "aether", "loop", "store", "proto"},
    "chronus": {"base", "aether"},
    "cli": {"base", "sdk"},
    "sdk": {"base"},
    "dsecd": {"base", "edge", "control", "layer", "kernel", "loop"},
}
# Library headers by first path component or whole name; a folder not named may use any.
FORBIDDEN_LIBRARIES = {
    "uv.h": {"base", "aether", "chronus", "kernel", "store", "cli", "sdk"},
    "protobuf-c": {"base", "aether", "loop", "kernel", "layer", "chronus", "store"},
    "jansson.h": {"base", "aether", "loop", "kernel", "chronus"},
    "microhttpd.h": set(ALLOWED) - {"control"},
    "sqlite3.h": set(ALLOWED) - {"store"},
    "curl": set(ALLOWED) - {"sdk", "cli"},
}
MAX_LINES = 800
README_LINES = range(6, 17)
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def folder_of_include(path, source, root):
    """The folder under src/ that an include names, or None for a library header."""
    if path.endswith(".pb-c.h"):
        return "proto"
    first = path.split("/")[0]
    if "/" in path and first in ALLOWED:
        return first
    if path.startswith("dsec/"):
        return "sdk"
    if "/" not in path and (source.parent / path).exists():
        return source.relative_to(root / "src").parts[0]
    return None


def check_file(source, root):
    folder = source.relative_to(root / "src").parts[0]
    name = source.relative_to(root)
    text = source.read_text(errors="replace")
    if text.count("\n") > MAX_LINES:
        yield f"{name}: {text.count(chr(10))} lines; split files past {MAX_LINES}"
    if folder not in ALLOWED:
        yield f"{name}: folder {folder} is not in the table of tools/check-includes.py"
        return
    for match in INCLUDE.finditer(text):
        kind, path = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        target = folder_of_include(path, source, root)
        if target and target != folder and target not in ALLOWED[folder]:
            yield f"{name}:{line}: {folder} may not include {target} ({path})"
        if target is None and kind == '"' and not path.endswith((".skel.h", ".inc")):
            yield f"{name}:{line}: \"{path}\" is in no folder of src/"
        for library, folders in FORBIDDEN_LIBRARIES.items():
            if folder in folders and (path == library or path.startswith(library + "/")):
                yield f"{name}:{line}: {folder} may not use {path}"


def violations(root):
    sources = sorted(p for p in (root / "src").rglob("*") if p.suffix in (".c", ".h"))
    if not sources:
        yield f"{root}/src: no source files found"
    for source in sources:
        yield from check_file(source, root)
    for folder in sorted({p.relative_to(root / "src").parts[0] for p in sources}):
        readmes = list((root / "src" / folder).rglob("README.md"))
        if not readmes:
            yield f"src/{folder}: no README.md"
        for readme in readmes:
            lines = len(readme.read_text().splitlines())
            if lines not in README_LINES:
                yield f"{readme.relative_to(root)}: about ten lines, not {lines}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    found = list(violations(parser.parse_args().root))
    print("\n".join(found) if found else "include graph: as allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
