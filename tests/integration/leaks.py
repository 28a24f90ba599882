"""What a platform owns on this host, found through its state directory; used by harness and the leak test.

Nothing is found by a program's name alone. Processes: the state directory in the command line (daemons), or
membership of a cgroup of this platform (sandboxes). Mounts, loop devices: the state directory in their
source or target, in the mount namespace of any process. Cgroups: directories dsec-HASH in any hierarchy,
HASH made of the state directory, and those that processes of this platform were seen in.
"""
import os
import pathlib
import re
import signal
import subprocess
import time

CGROUP = re.compile(r"^dsec-[0-9a-f]{8}$")
NAMES_FILE = "cgroup-names"  # in DSEC_TEST_TMP: names of cgroups of all platforms of one run


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def all_pids():
    return [int(d) for d in os.listdir("/proc") if d.isdigit()]


def cmdline(pid):
    return [w.decode(errors="replace") for w in read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]


def names_state(words, state):
    """The state directory, or a path below it, is a word or the value of one."""
    state = str(state)
    return any(re.search(r"(^|[=:])" + re.escape(state) + r"(/|$)", w) for w in words)


def daemon_pids(state, role=None):
    """Daemons of the platform; role: up, edge, apiserver, mounter, spawner, or None for all of them."""
    found = []
    for pid in all_pids():
        if pid == os.getpid():
            continue
        words = cmdline(pid)
        if not words or not os.path.basename(words[0]).startswith("dsec") or not names_state(words, state):
            continue
        program = os.path.basename(words[0])
        is_role = program == f"dsec-{role}" or (program == "dsecd" and words[1:2] == [role])
        if role is None or is_role:
            found.append(pid)
    return found


def cgroup_mounts():
    points = []
    for line in read("/proc/self/mountinfo").decode().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            points.append(left.split()[4])
    return points


def all_cgroups():
    """Every cgroup directory named dsec-HASH, of any platform of this host."""
    found = set()
    for point in cgroup_mounts():
        for path, dirs, _ in os.walk(point):
            hits = [d for d in dirs if CGROUP.match(d)]
            found.update(os.path.join(path, d) for d in hits)
            dirs[:] = [d for d in dirs if d not in hits]
    return found


def children_of(pids):
    wanted, found = set(pids), set()
    for pid in all_pids():
        stat = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(stat) > 1 and int(stat[1]) in wanted:
            found.add(pid)
    return found


def tag(path):
    """HASH of dsec-HASH: FNV-1a of the edge's state directory, as src/backend/container makes it."""
    value = 2166136261
    for byte in str(path).encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"dsec-{value:08x}"


def cgroup_names(state):
    """dsec-HASH names of this platform, by the rule, by what is written down and by what its processes are in."""
    names = {tag(pathlib.Path(state) / "edge")}
    for pid in children_of(daemon_pids(state)):
        for part in read(f"/proc/{pid}/cgroup").decode(errors="replace").replace("\n", "/").split("/"):
            if CGROUP.match(part):
                names.add(part)
    edge = pathlib.Path(state) / "edge"  # the edge writes down where its cgroups are (src/kernel/cgroup.h)
    for record in edge.glob("cgroup*"):
        for path in read(record).decode(errors="replace").split():
            if CGROUP.match(os.path.basename(path)):
                names.add(os.path.basename(path))
    return names


def remember(state, tmp):
    """Keeps the names of a platform's cgroups for the leak check at the end of the run."""
    names = cgroup_names(state)
    if tmp and names:
        with open(pathlib.Path(tmp) / NAMES_FILE, "a", encoding="utf-8") as out:
            out.write("".join(f"{name}\n" for name in sorted(names)))
    return names


def cgroups(state):
    names = cgroup_names(state)
    return sorted(p for p in all_cgroups() if os.path.basename(p) in names)


def cgroup_pids(paths):
    pids = set()
    for top in paths:
        for path, _, _ in os.walk(top):
            for name in ("cgroup.procs", "tasks"):
                pids.update(int(p) for p in read(os.path.join(path, name)).split())
    return pids


def mounts(state):
    """(pid, mount point, source) of each mount that names the state directory, once a namespace."""
    found, seen = [], set()
    for pid in all_pids():
        try:
            ns = os.stat(f"/proc/{pid}/ns/mnt").st_ino
        except OSError:
            continue
        if ns in seen:
            continue
        seen.add(ns)
        for line in read(f"/proc/{pid}/mountinfo").decode(errors="replace").splitlines():
            if re.search(re.escape(str(state)) + r"(/|\s|,|:|$)", line):
                found.append((pid, line.split()[4], line.partition(" - ")[2]))
    return found


def loops(state):
    found = []
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        path = read(backing).decode(errors="replace").strip().replace(" (deleted)", "")
        if path.startswith(f"{state}/"):
            found.append("/dev/" + backing.parts[3])
    return sorted(found)


def nsfs_mounts():
    """Namespaces kept alive by a mount, as `ip netns add` does; (mount point, namespace)."""
    found = set()
    for line in read("/proc/self/mountinfo").decode(errors="replace").splitlines():
        if " - nsfs " in line:
            found.add((line.split()[4], line.split()[3]))
    return found


def orphans(build):
    """Processes of any program in the build directory: chronus names no directory in its words."""
    found = set()
    for pid in all_pids():
        try:
            exe = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        except OSError:
            continue
        if build and exe.startswith(f"{build}/"):
            found.add((pid, exe))
    return found


def loop_devices():
    return {(str(p.parts[3]), read(p).decode(errors="replace").strip())
            for p in pathlib.Path("/sys/block").glob("loop*/loop/backing_file")}


def snapshot(build=None):
    return {"nsfs": nsfs_mounts(), "orphans": orphans(build), "loops": loop_devices(), "cgroups": all_cgroups()}


def outside(before, tmp, build=None):
    """What is new since the snapshot and could be ours, though it names none of our directories. On a host where
    something else makes sandboxes at the same time this may name its things: run the suite alone."""
    now = snapshot(build)
    for kind in sorted(now):
        for new in sorted(now[kind] - before[kind]):
            if kind == "loops" and not str(new[1]).startswith(str(tmp)) and "volume.img" not in str(new[1]):
                continue
            yield f"{kind}: {new}"


def found(state, names=()):
    """One line for each thing that still exists. `names`: cgroup names seen while it ran."""
    own = sorted(p for p in all_cgroups() if os.path.basename(p) in set(names) | cgroup_names(state))
    lines = [f"process {pid}: {' '.join(cmdline(pid))}" for pid in daemon_pids(state)]
    lines += [f"process {pid} in a cgroup: {' '.join(cmdline(pid))}" for pid in cgroup_pids(own)]
    lines += [f"mount {point} (seen by pid {pid}): {source}" for pid, point, source in mounts(state)]
    lines += [f"cgroup {path}" for path in own]
    lines += [f"loop device {dev}" for dev in loops(state)]
    return lines


def clean(state, names=(), timeout_s=20.0):
    """Removes by force whatever a platform left; the lines of what there was."""
    names = cgroup_names(state) | set(names)
    had = found(state, names)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        own = [p for p in all_cgroups() if os.path.basename(p) in names]
        for pid in set(daemon_pids(state)) | cgroup_pids(own):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for pid, point, _ in mounts(state):
            if os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino:
                subprocess.run(["umount", "-l", point], check=False, capture_output=True)
        for dev in loops(state):
            subprocess.run(["losetup", "-d", dev], check=False, capture_output=True)
        for top in own:
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass
        if not found(state, names):
            break
        time.sleep(0.1)
    return had
