"""The demo's tasks hold together, without a sandbox: visible tests fail partly,
hidden ones fail before the solution and pass after it, step by step patches apply."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "sdk" / "python")]

from rollout import report, tasks  # noqa: E402


class Tasks(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="dsec-task-"))
        self.addCleanup(shutil.rmtree, self.work)

    def run_in(self, directory, command):
        done = subprocess.run(["sh", "-c", command], cwd=directory, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def test_each(self):
        loaded = tasks.load()
        self.assertGreaterEqual(len(loaded), 6)
        for language in ("python", "c", "shell"):
            self.assertGreaterEqual(sum(t.language == language for t in loaded), 2)
        for task in loaded:
            with self.subTest(task.name):
                repo, hidden = self.work / task.name / "repo", self.work / task.name / "hidden"
                shutil.copytree(task.repo, repo)
                shutil.copytree(task.hidden, hidden)
                grade = f"sh {hidden}/grade.sh {repo}"
                self.assertNotEqual(self.run_in(repo, task.visible)[0], 0)
                self.assertNotEqual(self.run_in(repo, grade)[0], 0)
                self.assertGreaterEqual(len(task.steps()), 2)
                for path in task.look_at:
                    self.assertTrue((repo / path).is_file(), path)
                for step in task.steps():
                    subprocess.run(["git", "apply", "-"], cwd=repo, input=step.encode(), check=True)
                for command in (task.visible, grade):
                    code, output = self.run_in(repo, command)
                    self.assertEqual(code, 0, output)


class Report(unittest.TestCase):
    def test_percentiles_are_measured_values(self):
        values = [float(v) for v in range(1, 101)]
        self.assertEqual([report.percentile(values, s) for s in (0.5, 0.9, 0.99, 1.0)], [50, 90, 99, 100])
        self.assertEqual(report.percentile([7.0], 0.99), 7.0)
        self.assertEqual(report.percentile([1.0, 2.0], 0.5), 1.0)


if __name__ == "__main__":
    unittest.main()
