"""leaks.py: what of ours is on this machine, and what came since a snapshot.

Counted: processes of our programs, mounts in any mount namespace that we can
see, cgroups named dsec-*, network namespaces held by processes or files, loop
devices, sockets of ours. Only reads; nothing is killed or removed here.
"""
import glob
import os
import time

PROGRAMS = ("dsecd", "dsec-mounter", "dsec-spawner", "dsec-filler", "chronus", "dsec")
CGROUP_ROOT = "/sys/fs/cgroup"


def processes():
    found = set()
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as f:
                text = f.read()
        except OSError:
            continue
        pid, comm = text.split(" (", 1)[0], text[text.index("(") + 1:text.rindex(")")]
        if comm in PROGRAMS:
            found.add(f"process {comm} {pid}")
    return found


def mounts():
    """Mounts that name one of our things, in every distinct mount namespace."""
    found, seen = set(), set()
    for ns in glob.glob("/proc/[0-9]*/ns/mnt"):
        try:
            ident = os.readlink(ns)
            if ident in seen:
                continue
            seen.add(ident)
            with open(ns.replace("ns/mnt", "mountinfo")) as f:
                lines = f.read().splitlines()
        except OSError:
            continue
        for line in lines:
            if "dsec" in line:
                fields = line.split()
                found.add(f"mount {fields[4]} in {ident}")
    return found


def cgroups():
    found = set()
    for top, dirs, _ in os.walk(CGROUP_ROOT):
        for d in dirs:
            if d.startswith("dsec-"):
                found.add(f"cgroup {os.path.join(top, d)}")
    return found


def loops():
    found = set()
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path) as f:
                found.add(f"loop device {path.split('/')[3]} on {f.read().strip()}")
        except OSError:
            continue
    return found


def network_namespaces():
    found = set()
    for ns in glob.glob("/proc/[0-9]*/ns/net"):
        try:
            found.add(f"network namespace {os.readlink(ns)}")
        except OSError:
            continue
    return found


def snapshot():
    return processes() | mounts() | cgroups() | loops() | network_namespaces()


def since(before, settle_s=0):
    """Sorted list of what is there now and was not before. Kernel clean-up of
    namespaces and loop devices is asynchronous: waits up to settle_s for it."""
    end = time.monotonic() + settle_s
    while True:
        left = sorted(snapshot() - before)
        if not left or time.monotonic() >= end:
            return left
        time.sleep(0.2)
