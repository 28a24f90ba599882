"""Man pages and completion are made of the help texts, the option tables and the headers: nothing is left out."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DSEC_BUILD") or ROOT / "build").resolve()
DSEC = BUILD / "src/cli/dsec"
VERBS = ("up", "down", "doctor", "run", "create", "exec", "ps", "inspect", "logs", "cp", "rm", "version", "completion",
         "layer ls", "layer build", "layer import", "layer inspect", "layer rm", "debug bundle")


def help_of(verb):
    return subprocess.run([DSEC, *verb.split(), "--help"], check=True, capture_output=True, text=True).stdout


def long_options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


class Man(unittest.TestCase):
    pages = BUILD / "tools"

    def test_every_verb_has_a_page_with_its_options(self):
        for verb in VERBS:
            text = (self.pages / "man1" / f"dsec-{verb.replace(' ', '-')}.1").read_text().replace("\\-", "-")
            self.assertEqual(long_options(help_of(verb)) - long_options(text), set(), verb)
        whole = (self.pages / "man1/dsec.1").read_text().replace("\\-", "-")
        for verb in VERBS:
            self.assertIn(f"dsec-{verb.replace(' ', '-')}\\fR(1)", whole)

    def test_dsecd(self):
        text = (self.pages / "man8/dsecd.8").read_text()
        for word in ("apiserver", "cleanup", "max\\-sandboxes", "SIGTERM"):
            self.assertIn(word, text)

    def test_every_public_function_has_a_page(self):
        library = sorted((BUILD / "src/sdk").glob("libdsec.so.*.*"))[0]
        listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
        known = set(re.findall(r" T (dsec_\w+)$", listed, re.M))
        self.assertGreater(len(known), 30)
        for name in known:
            page = self.pages / "man3" / f"{name}.3"
            self.assertTrue(page.exists(), name)
            target = re.fullmatch(r"\.so (man3/dsec_\w+\.3)\n", page.read_text())
            whole = (self.pages / target.group(1)).read_text()
            self.assertIn(f"{name}(", whole.split(".SH DESCRIPTION")[0], name)
            self.assertIn(name, whole.split(".SH SYNOPSIS")[0], name)

    def test_every_header_is_read(self):
        have = {p.stem for p in (ROOT / "include/dsec").glob("*.h")}
        self.assertEqual({h for h in have if f"'../include/dsec/{h}.h'" not in (ROOT / "tools/meson.build").read_text()}, set())

    def test_no_warnings(self):
        if not shutil.which("groff"):
            raise unittest.SkipTest("groff is not installed")
        pages = sorted(self.pages.glob("man*/*"))
        self.assertGreater(len(pages), 60)
        for page in pages:
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z", page], cwd=self.pages, capture_output=True,
                                  timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, b""), page)


class Install(unittest.TestCase):
    def test_places(self):
        with tempfile.TemporaryDirectory(prefix="dsec-tools-") as dest:
            subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], check=True, capture_output=True,
                           env={**os.environ, "DESTDIR": dest}, timeout=120)
            found = {str(p.relative_to(dest)).partition("/share/")[2] for p in pathlib.Path(dest).rglob("*")}
        for name in ("bash-completion/completions/dsec", "man/man1/dsec.1", "man/man1/dsec-layer-build.1",
                     "man/man3/dsec_client_new.3", "man/man3/libdsec.3", "man/man8/dsecd.8"):
            self.assertIn(name, found)


class Completion(unittest.TestCase):
    """The words that the script offers, without a server."""

    def complete(self, line, **env):
        script = '. "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _dsec "$3"; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", str(BUILD / "tools/dsec"), line, str(DSEC)],
                              capture_output=True, text=True, timeout=20, check=True,
                              env={"PATH": os.environ["PATH"], "DSEC_STATE_DIR": "/nonexistent", **env})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_script_is_what_the_program_prints(self):
        done = subprocess.run([DSEC, "completion", "bash"], check=True, capture_output=True)
        self.assertEqual((BUILD / "tools/dsec").read_bytes(), done.stdout)

    def test_verbs(self):
        self.assertEqual(set(self.complete("dsec ")), {v.split()[0] for v in VERBS} | {"help"})
        self.assertEqual(self.complete("dsec de"), ["debug"])
        self.assertEqual(set(self.complete("dsec layer i")), {"import", "inspect"})
        self.assertEqual(self.complete("dsec help lay"), ["layer"])
        self.assertEqual(self.complete("dsec completion "), ["bash"])

    def test_options_are_those_of_the_help(self):
        for verb in VERBS:
            offered = set(self.complete(f"dsec {verb} --"))
            self.assertEqual(long_options(help_of(verb)) - offered, set(), verb)
            if verb not in ("up", "down"):
                self.assertLessEqual({"--json", "--state-dir", "--help"}, offered, verb)

    def test_options_that_are_offered_are_taken(self):
        for verb in VERBS:
            for option in self.complete(f"dsec {verb} --"):
                # --help behind it: whatever option it is, the help comes and nothing is done
                for words in ([option], [option, "1"]):
                    done = subprocess.run([DSEC, *verb.split(), *words, "--help"], capture_output=True, text=True, timeout=20)
                    if done.returncode == 0:
                        break
                self.assertTrue(done.returncode == 0 or "wants" in done.stderr, (verb, option, done.stderr))

    def test_nothing_behind_the_command(self):
        self.assertEqual(self.complete("dsec exec sb-x -- --ti"), [])

    def test_no_server_is_no_noise(self):
        self.assertEqual(self.complete("dsec exec "), [])
        self.assertEqual(self.complete("dsec run --env b"), [])


if __name__ == "__main__":
    unittest.main()
