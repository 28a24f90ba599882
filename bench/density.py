"""density: memory of an idle container, all in, and exec latency with N live.

Memory is what MemAvailable of the host lost between no sandbox and N live ones, caches dropped before each
reading: slab, page tables, chronus, cgroups, namespaces and the edge's share are all in it.
"""
import argparse
import subprocess
import time

import common


def available_kib():
    """MemAvailable after dropping what can be dropped."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
    time.sleep(1)
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--live", type=int, default=1000)
    ap.add_argument("--execs", type=int, default=300)
    args = ap.parse_args()
    report = common.Report("density")
    p, digest = common.platform("--max-sandboxes", str(args.live + 64))
    try:
        # One cycle first, so that mounts, pools and caches exist before the first reading.
        common.edge_load(p, digest, "--cycles", 20)
        before = available_kib()
        load = subprocess.Popen([common.BENCH / "edge_load", "--socket", p.state / "run" / "edge-e0.sock", "--digest",
                                 digest, "--cycles", "100", "--workers", "4", "--hold", str(args.live), "--execs",
                                 str(args.execs), "--", "/bin/hello"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
        try:
            words = load.stdout.readline().split()
            if not words or words[0] != "held":
                raise RuntimeError(f"edge_load ended early\n{p.log_tail()}")
            held, seconds = int(words[1]), float(words[2])
            time.sleep(2)
            after = available_kib()
            out, _ = load.communicate("go\n", timeout=600)
        finally:
            if load.poll() is None:
                load.terminate()
                load.wait()
        if load.returncode:
            raise RuntimeError(f"edge_load: exit {load.returncode}\n{p.log_tail()}")
        r = common.json.loads(out.splitlines()[-1])
    finally:
        p.destroy()
    kib = (before - after) / held
    report.row(f"{held} live", kib_each=round(kib, 1), creates_per_s=round(held / seconds, 1),
               exec_p50_ms=r["exec_p50_ms"], exec_p99_ms=r["exec_p99_ms"], cycle_p50_ms=r["cycle_p50_ms"])
    report.figure(f"density.kib_{args.live}", kib, "KiB")
    report.figure("density.live", held, "containers")
    report.figure("density.exec_p99", r["exec_p99_ms"], "ms")
    report.end()


if __name__ == "__main__":
    main()
