"""create: container create + first output + remove, ours and its peers in one run.

Ours at the edge (edge.proto on its socket), ours through HTTP and the Python SDK, and, where installed,
crun, runc, bwrap; and the floor: a C program that does the same kernel work without the platform. One
worker unless said. The peers do their usual work, which is not the same; the differences are printed.
Rounds are interleaved and the median of the rounds counts.
"""
import argparse
import asyncio
import shutil
import statistics
import time

import common

DIFFERENCES = """
What each does in a cycle, beside the payload (a static program that writes one line):
  ours   all namespaces and a user namespace of its own, id-mapped overlay on a quota'd upper, memory, cpu and pids
         cgroups, masked and locked /proc and /sys, seccomp, chronus as PID 1, the exec in a cgroup of its own,
         journal and spool written, removal waited for; helpers stay resident and pools are filled beside
  floor  the same kernel objects, made and removed by one C program each cycle, with a pool of the same kind
  crun, runc  a new process each time; namespaces of `spec` (no user namespace), plain read-only root without overlay or
         quota, three limits, no seccomp, no resident init; also mounts shm, mqueue and the cgroup tree
  bwrap  mount, pid, ipc, uts, net and user-less namespaces, read-only bind of the root; no cgroups, no overlay, no quota
"""


def peers(bundle, cycles):
    """(name, argv of spawn_loop's command) of the peers that this host has."""
    loop = common.BENCH / "spawn_loop"
    found = {}
    if shutil.which("crun"):
        # crun 1.8 refuses a hybrid hierarchy unless cgroup2 is out of its sight (FACTS.md).
        hide = "if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; "
        found["crun"] = ["unshare", "-m", "sh", "-c",
                         f"{hide} exec {loop} {cycles} 1 -- crun --root {bundle.dir}/crun run --bundle {bundle.dir} c%d"]
    if shutil.which("runc"):
        found["runc"] = [loop, cycles, 1, "--", "runc", "--root", f"{bundle.dir}/runc", "run", "--bundle", bundle.dir,
                         "r%d"]
    if shutil.which("bwrap"):
        found["bwrap"] = [loop, cycles, 1, "--", "bwrap", "--ro-bind", bundle.root, "/", "--proc", "/proc", "--dev",
                          "/dev", "--tmpfs", "/tmp", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
                          "--unshare-cgroup", "--die-with-parent", "/bin/hello"]
    return found


async def through_sdk(p, n, workers):
    """(p50 ms of a cycle, cycles a second) through HTTP and the Python SDK."""
    import dsec
    times, left = [], [n]
    client = dsec.DSecClient(url=f"http://127.0.0.1:{p.port}", api_key=p.client.key)
    await client.open()

    async def worker():
        while left[0] > 0:
            left[0] -= 1
            t = time.perf_counter()
            args = dsec.DSecContainerRunArgs(container_image="bench:1", memory_limit_mb=64, disk_limit_mb=64)
            sandbox = await client.run_container(args, timeout=60)
            r = await sandbox.exec(["/bin/hello"])
            if r.exit_code != 0 or r.stdout != b"hello\n":
                raise RuntimeError(f"wrong result: {r}")
            await sandbox.stop()
            times.append((time.perf_counter() - t) * 1000)

    t0 = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(workers)))
    seconds = time.perf_counter() - t0
    await client.close()
    return statistics.median(times), n / seconds


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--cycles", type=int, default=200)
    args = ap.parse_args()
    report = common.Report("create")
    p, digest = common.platform()
    bundle = common.Bundle()
    rates, p50 = {}, {}

    def note(name, r):
        rates.setdefault(name, []).append(r["per_s"])
        p50.setdefault(name, []).append(r["cycle_p50_ms"])

    try:
        for _ in range(args.rounds):
            note("ours at the edge", common.edge_load(p, digest, "--cycles", args.cycles, "--workers", 1))
            note("ours at the edge, sh -c echo",
                 common.edge_load(p, digest, "--cycles", args.cycles // 2, "--workers", 1,
                                  payload=("/bin/sh", "-c", "echo hello")))
            note("ours at the edge, 4 workers", common.edge_load(p, digest, "--cycles", args.cycles, "--workers", 4))
            if (common.BENCH / "floor").exists():
                note("floor", common.run_json([common.BENCH / "floor", "--cycles", args.cycles, "--layer",
                                               p.state / "layers", "--digest", digest]))
            for name, argv in peers(bundle, max(20, args.cycles // 4)).items():
                if name in ("crun", "runc"):
                    bundle.config(name, ["/bin/hello"])
                note(name, common.run_json(argv))
        api_p50, _ = asyncio.run(through_sdk(p, args.cycles, 1))
        api16_p50, api16_rate = asyncio.run(through_sdk(p, args.cycles * 2, 16))
    finally:
        bundle.close()
        p.destroy()
    print(DIFFERENCES)
    for name in rates:
        report.row(name, per_s=round(statistics.median(rates[name]), 1), cycle_p50_ms=round(statistics.median(p50[name]), 2))
    report.row("ours through HTTP and the Python SDK", cycle_p50_ms=round(api_p50, 2))
    report.row("the same, 16 at once", per_s=round(api16_rate, 1), cycle_p50_ms=round(api16_p50, 2))
    ours = statistics.median(rates["ours at the edge"])
    for name in ("floor", "crun", "runc", "bwrap"):
        if name in rates:
            report.ratio(f"create.vs_{name}", ours / statistics.median(rates[name]))
    report.figure("create.api_p50", api_p50, "ms")
    report.figure("create.api16_per_s", api16_rate, "per_s")
    report.figure("create.api16_p50", api16_p50, "ms")
    report.end()


if __name__ == "__main__":
    main()
