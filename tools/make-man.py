#!/usr/bin/env python3
"""Man pages from what the programs and headers say themselves: make-man.py OUT VERSION DSEC DSECD HEADER...

OUT/man1: dsec(1) and one a verb, from `dsec help` and each verb's --help. OUT/man8: dsecd(8), from `dsecd help` and
--help of up, down and cleanup. OUT/man3: libdsec(3) and a page a header, with a link to it for every public function.
The directories are made anew. `make-man.py --functions HEADER...` prints the public functions.
"""
import pathlib
import re
import shutil
import subprocess
import sys

COMMON = """  --json           print the result as JSON, errors as JSON on standard error
  --state-dir DIR  of a platform on this machine (default: DSEC_STATE_DIR or /var/lib/dsec)
  -h, --help       this
"""
STATUS = """  0  success
  1  a call failed
  2  wrong usage"""
ENVIRONMENT = """  DSEC_URL        http://HOST:PORT of another server than this machine's
  DSEC_API_KEY    its key
  DSEC_STATE_DIR  the state directory when --state-dir does not say it"""
DSECD_FILES = """  DIR/api-key   the first key of the API, for root alone
  DIR/run/url   where the API is
  DIR/log       a log a program
  DIR/store.db  sandboxes, layers, keys
  DIR/layers    the layers"""
ROLES = ("up", "down", "cleanup")
ROW = re.compile(r"^  (\S.*?)(?:  +(\S.*))?$")
FUNCTION = re.compile(r"^DSEC_API\s+([^;]*?\b(dsec_\w+)\([^;]*\));(?:[ \t]*/\* (.*?) \*/)?", re.M | re.S)
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)


def said(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def esc(text):
    """Text of a line: nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("~", "\\(ti").replace("^", "\\(ha")
    return "\\&" + text if text.startswith(".") else text


def literal(text):
    return ".nf\n" + "\n".join(esc(line) for line in text.expandtabs(8).strip("\n").split("\n")) + "\n.fi\n"


def paragraph(text):
    return ".PP\n" + "\n".join(esc(line.strip()) for line in text.strip().split("\n")) + "\n"


def heading(name, section, version):
    return f'.\\" Made by tools/make-man.py; do not edit.\n.TH {name.upper()} {section} "" "DSec {version}" "DSec"\n'


def name_line(names, what):
    return f".SH NAME\n{', '.join(esc(n) for n in names)} \\- {esc(what)}\n"


def table(text):
    """Indented "term  words" lines, continued by deeper ones, as a list."""
    out, lines = "", text.strip("\n").split("\n")
    column = max((m.start(2) for m in map(ROW.match, lines) if m and m.group(2)), default=0)
    for line in lines:
        if line.startswith("   "):
            out += esc(line.strip()) + "\n"
            continue
        term, words = ROW.match(line).groups()
        if not words and column and line[column - 1:column] == " ":  # a term as wide as its column
            term, words = line[:column].strip(), line[column:]
        out += f".TP\n.B {esc(term)}\n" + (esc(words) + "\n" if words else "")
    return out


def body(text):
    """Paragraphs and lists in the order of a help text."""
    out, plain, rows = "", [], []

    def end():
        nonlocal out, plain, rows
        if plain:
            out += paragraph("\n".join(plain))
        if rows:
            out += table("\n".join(rows))
        plain, rows = [], []
    for line in text.strip("\n").split("\n"):
        is_row = line.startswith("  ")
        if not line.strip() or (is_row and plain) or (not is_row and rows):
            end()
        if line.strip():
            (rows if is_row else plain).append(line)
    end()
    return out


def split_usage(text):
    """The lines of "usage: ..." and what comes behind them."""
    lines = text.rstrip("\n").split("\n")
    n = 1
    while n < len(lines) and lines[n].startswith("      "):
        n += 1
    return [re.sub(r"^(usage:| {6,})\s*", "", line) for line in lines[:n]], "\n".join(lines[n:])


def synopsis(lines):
    return ".SH SYNOPSIS\n" + literal("\n".join(lines))


def see_also(names):
    return ".SH SEE ALSO\n" + ",\n".join(f"\\fB{esc(n)}\\fR({s})" for n, s in names) + "\n"


def verbs_of(text):
    """(name, what) of each verb that `dsec [layer] --help` lists."""
    return re.findall(r"^  (\S+) +(\S.*)$", text, re.M) if " VERB " in text.partition("\n")[0] else []


def man1(out, version, dsec):
    pages = []

    def page(words, what):
        text = said(dsec, *words, "--help")
        if words:
            name = "-".join(("dsec", *words))
            usage, rest = split_usage(text)
            (out / f"{name}.1").write_text(
                heading(name, 1, version) + name_line([name], what) + synopsis(usage)
                + (".SH DESCRIPTION\n" + body(rest) if rest.strip() else "")
                + ".SH COMMON OPTIONS\n" + table(COMMON) + ".SH ENVIRONMENT\n" + table(ENVIRONMENT)
                + see_also([("dsec", 1)]))
            pages.append((name, what))
        for verb, about in verbs_of(text):
            page((*words, verb), about)

    page((), "")
    rows = "".join(f".TP\n\\fB{esc(n)}\\fR(1)\n{esc(w)}\n" for n, w in pages)
    (out / "dsec.1").write_text(
        heading("dsec", 1, version) + name_line(["dsec"], "isolated machines for agents to act in")
        + synopsis(["dsec VERB [OPTIONS]"]) + ".SH DESCRIPTION\n"
        + paragraph("Makes sandboxes, runs commands in them and removes them, through a server on this machine\n"
                    "or another. Results go to standard output, words about them to standard error.")
        + ".SH VERBS\n" + rows + ".SH COMMON OPTIONS\n" + table(COMMON) + ".SH EXIT STATUS\n" + table(STATUS)
        + ".SH ENVIRONMENT\n" + table(ENVIRONMENT) + see_also([("dsecd", 8), ("libdsec", 3)]))


def man8(out, version, dsecd):
    usage, roles = split_usage(said(dsecd, "help"))
    text = ".SH ROLES\n" + body(roles)
    for role in ROLES:
        lines, rest = split_usage(said(dsecd, role, "--help"))
        text += f".SS {esc('dsecd ' + role)}\n" + literal("\n".join(lines)) + (body(rest) if rest.strip() else "")
    (out / "dsecd.8").write_text(
        heading("dsecd", 8, version) + name_line(["dsecd"], "the daemon of DSec") + synopsis(usage)
        + ".SH DESCRIPTION\n"
        + paragraph("One executable for the supervisor of a platform on this machine and for the programs that it\n"
                    "keeps running: the first word is the role. People start it through dsec up and dsec down.")
        + text + ".SH FILES\n" + table(DSECD_FILES) + ".SH SIGNALS\n"
        + paragraph("SIGTERM and SIGINT end dsecd up with every sandbox. When it is killed, the next dsecd up takes the\n"
                    "sandboxes over.")
        + ".SH EXIT STATUS\n" + table(STATUS.replace("a call failed", "failure"))
        + see_also([("dsec", 1), ("dsec-up", 1), ("dsec-down", 1)]))


def plain_comment(text):
    return "\n".join(re.sub(r"^\s*\*? ?", "", line).rstrip() for line in text.strip().split("\n"))


def functions(text):
    """(name, prototype, comment) of each public function; a comment belongs to the one right below it."""
    found = []
    for match in FUNCTION.finditer(text):
        before = text[:match.start()]
        above = list(COMMENT.finditer(before))
        comment = match.group(3) or ""
        if above and above[-1].end() == len(before.rstrip("\n")) and before.endswith("*/\n") \
                and before.rfind("\n", 0, above[-1].start()) + 1 == above[-1].start():
            comment = (plain_comment(above[-1].group(1)) + "\n" + comment).strip()
        prototype = re.sub(r"\n\s+", "\n        ", match.group(1))
        found.append((match.group(2), prototype + ";", comment))
    return found


def intro(text):
    first = plain_comment(COMMENT.search(text).group(1))
    title, _, rest = first.partition("\n\n")
    title, _, example = title.partition("\n")
    return re.sub(r"^\S+: ", "", title).rstrip("."), (example + "\n\n" + rest).strip("\n")


def prose(text):
    """A comment's paragraphs; indented lines in it stay as they are."""
    out = ""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        for shown, lines in groups(part.split("\n")):
            out += (".PP\n.RS 2\n" + literal("\n".join(lines)) + ".RE\n") if shown else paragraph("\n".join(lines))
    return out


def groups(lines):
    found = []
    for line in lines:
        shown = line.startswith("  ")
        if not found or found[-1][0] != shown:
            found.append((shown, []))
        found[-1][1].append(line)
    return found


def types(text):
    """What the header defines beside functions, as it stands there."""
    text = text[text.index("*/") + 2:]
    text = FUNCTION.sub("\0", text)
    text = re.sub(r"(?:^/\*(?:[^*]|\*(?!/))*\*/\n)\0", "\0", text, flags=re.M)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^#if defined\(__GNUC__\)\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^#(?:ifndef|define|include|endif)(?: DSEC_\w+_H| [<\"].*)?$", "", text, flags=re.M)
    text = re.sub(r"\0(?:[ \t]*/\*.*?\*/)?", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def man3(out, version, headers):
    pages = []
    for header in sorted(headers):
        text = header.read_text()
        title, rest = intro(text)
        if header.stem == "dsec":
            continue
        name, known = "dsec_" + header.stem, functions(text)
        shown = types(text)
        pages.append((name, title))
        (out / f"{name}.3").write_text(
            heading(name, 3, version) + name_line([name, *(f for f, _, _ in known)], title)
            + synopsis([f"#include <dsec/{header.name}>", "", *(p for _, p, _ in known)])
            + ".SH DESCRIPTION\n" + prose(rest) + (".SH TYPES\n" + literal(shown) if shown else "")
            + (".SH FUNCTIONS\n" if known else "")
            + "".join(f".TP\n\\fB{esc(f)}\\fR()\n" + "\n".join(esc(x) for x in c.split("\n")) + "\n"
                      for f, _, c in known if c)
            + see_also([("libdsec", 3)]))
        for function, _, _ in known:
            (out / f"{function}.3").write_text(f".so man3/{name}.3\n")
    whole = next(h for h in headers if h.stem == "dsec")
    title, rest = intro(whole.read_text())
    (out / "libdsec.3").write_text(
        heading("libdsec", 3, version) + name_line(["libdsec"], title.partition(".")[0])
        + synopsis(["#include <dsec/dsec.h>", "", "cc ... $(pkg-config --cflags --libs dsec)"])
        + ".SH PAGES\n" + "".join(f".TP\n\\fB{esc(n)}\\fR(3)\n{esc(t)}\n" for n, t in pages)
        + ".SH EXAMPLE\n" + literal(rest) + see_also([("dsec", 1)]))


def main():
    if sys.argv[1] == "--functions":
        for path in sys.argv[2:]:
            print("\n".join(f for f, _, _ in functions(pathlib.Path(path).read_text())), end="\n")
        return
    out, version, dsec, dsecd = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
    for section in ("man1", "man3", "man8"):
        shutil.rmtree(out / section, ignore_errors=True)
        (out / section).mkdir()
    man1(out / "man1", version, dsec)
    man3(out / "man3", version, [pathlib.Path(h) for h in sys.argv[5:]])
    man8(out / "man8", version, dsecd)


if __name__ == "__main__":
    main()
