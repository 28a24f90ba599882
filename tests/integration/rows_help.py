"""What the test_rows_*.py files share: peak memory of the platform's daemons, output followed live, names of files."""
import contextlib
import pathlib
import threading

import leaks

MIB = 1 << 20
DAEMONS = ("apiserver", "edge", "mounter", "spawner")


def _field(pid, name):
    for line in leaks.read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"pid {pid} has no {name}")


@contextlib.contextmanager
def memory_bound(test, growth_bytes):
    """No daemon of the platform grows by more than this while the block runs: the kernel's own peak (VmHWM, reset at
    the start), so that nothing is missed between two looks."""
    before = {}
    for role in DAEMONS:
        for pid in test.platform.pids(role):
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
            before[role, pid] = _field(pid, "VmRSS")
    test.assertGreaterEqual({role for role, _ in before}, {"apiserver", "edge"})
    yield
    for (role, pid), rss in before.items():
        grown = _field(pid, "VmHWM") - rss
        test.assertLess(grown, growth_bytes, f"{role} grew by {grown / MIB:.1f} MiB")


def in_threads(calls, timeout_s=60):
    """Runs the functions at once; their results in order. The first exception is raised again."""
    results, errors = [None] * len(calls), []

    def body(i, call):
        try:
            results[i] = call()
        except BaseException as e:  # noqa: BLE001: handed to the caller below
            errors.append(e)

    threads = [threading.Thread(target=body, args=(i, c), daemon=True) for i, c in enumerate(calls)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout_s)
        if t.is_alive():
            raise TimeoutError(f"a call took more than {timeout_s:g} s")
    if errors:
        raise errors[0]
    return results
