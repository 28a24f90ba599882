"""Limits that bite and are counted; starts that fail; helpers and edges that die. Every tearDown counts what is left."""
import os
import pathlib
import signal
import time
import unittest

from container_host import ContainerTest, Driver
from harness import wait_until


class Limits(ContainerTest):
    def test_memory(self):
        box = self.start(memory=32)
        _, status = self.ask(box, "sh", "tail -c 100m /dev/zero > /dev/null")
        self.assertEqual(status, 128 + signal.SIGKILL)
        s = self.stats(box)
        self.assertGreaterEqual(s["oom"], 1)
        self.assertGreater(s["peak"], 24 << 20)
        self.assertLessEqual(s["peak"], 32 << 20)
        self.assertEqual(self.sh(box, "echo alive"), "alive")

    def test_counters_start_at_zero(self):
        """A slot is used again; nothing of its former user shows."""
        box = self.start(memory=32, pids=8)
        self.ask(box, "sh", "tail -c 100m /dev/zero > /dev/null")
        self.ask(box, "sh", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done")
        self.assertTrue(self.stats(box)["pids_hit"])
        self.destroy(box)
        for _ in range(4):  # more than the pool holds: the slot comes round
            other = self.start(memory=64)
            s = self.stats(other)
            self.assertEqual((s["oom"], s["pids_hit"], s["pids"]), (0, 0, 0), other)
            self.assertLess(s["cpu"], 1_000_000)
            self.assertLess(s["peak"], 16 << 20)
            self.destroy(other)

    def test_pids(self):
        box = self.start(pids=10)
        out = self.sh(box, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 2 & done 2>&1; wait")
        self.assertRegex(out, "can't fork|Resource temporarily unavailable")
        self.assertEqual(self.stats(box)["pids_hit"], 1)
        self.assertEqual(self.sh(box, "echo alive"), "alive")

    def test_cpu(self):
        box = self.start(cpu=200)
        before = self.stats(box)["cpu"]
        t = time.monotonic()
        self.ask(box, "sh", "timeout 2 sh -c 'while :; do :; done'")
        share = (self.stats(box)["cpu"] - before) / 1e6 / (time.monotonic() - t)
        self.assertLess(share, 0.3)
        self.assertGreater(share, 0.1)

    def test_disk(self):
        box = self.start(disk=16)
        out, status = self.ask(box, "sh", "dd if=/dev/zero of=/big bs=1M count=64")
        self.assertNotEqual(status, 0, out)
        words = self.drive.call(f"usage {box['name']}")
        self.assertEqual((words[0], words[3]), ("ok", str(16 << 20)))
        self.assertLessEqual(int(words[4]), 17 << 20)


class Life(ContainerTest):
    def test_capacity_is_refused_by_name(self):
        self.drive.close()
        self.drive = Driver(self.base, max_sandboxes=2, pool=1)
        boxes = [self.start(), self.start()]
        words = self.drive.call(self.start_line(self.new_name()))
        self.assertEqual(words[3], "capacity_exhausted", words)
        for _ in range(8):  # what follows a removal at once takes its place
            self.destroy(boxes.pop(0))
            boxes.append(self.start())

    def test_burst(self):
        names = [self.new_name() for _ in range(24)]
        for n in names:
            self.drive.send(self.start_line(n))
        for n in names:
            words = self.drive.expect("start", n)
            self.assertEqual(words[0], "ok", words)
        for n in names:
            self.drive.send(f"destroy {n}")
        for n in names:
            self.assertEqual(self.drive.expect("destroy", n)[0], "ok")

    def test_death_is_told_once(self):
        box = self.start()
        os.kill(box["pid"], signal.SIGKILL)
        self.drive.expect("exit", box["name"])
        self.destroy(box)

    def test_destroy_takes_the_whole_tree(self):
        box = self.start()
        self.ask(box, "sh", "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 &")
        with open(f"/proc/{box['pid']}/task/{box['pid']}/children") as f:
            self.assertTrue(f.read().split())
        self.destroy(box)

    def test_failed_starts_leave_nothing(self):
        self.drive.call("pool")
        for layer, code in (("sha256:" + "0" * 64, "layer_not_found"), ("nonsense", None)):
            words = self.drive.call(self.start_line(self.new_name(), layer=layer))
            self.assertEqual(words[0], "error")
            if code:
                self.assertEqual(words[3], code, words)
        self.start()

    def test_chronus_that_cannot_run(self):
        self.kill_helper("spawner-0")
        bad = self.base / "bad-chronus"
        bad.write_bytes(b"not a program")
        bad.chmod(0o755)
        self.PID1, real = str(bad), self.PID1
        import container_host
        find, container_host.find_program = container_host.find_program, lambda n: n if n == str(bad) else find(n)
        try:
            self.start_spawner()
        finally:
            container_host.find_program, self.PID1 = find, real
        words = self.drive.call(self.start_line(self.new_name()))
        self.assertEqual(words[0], "error")
        self.assertIn("execute", " ".join(words))
        self.kill_helper("spawner-0")
        self.start_spawner()
        self.start()


class Crash(ContainerTest):
    def test_spawner_killed(self):
        box = self.start()
        self.kill_helper("spawner-0")
        self.assertEqual(self.sh(box, "echo lives"), "lives")
        self.start_spawner()
        other = self.start()
        self.assertEqual(self.sh(other, "echo new"), "new")
        os.kill(box["pid"], signal.SIGKILL)
        self.drive.expect("exit", box["name"])

    def test_mounter_killed(self):
        box = self.start()
        self.sh(box, "echo kept > /root/f")
        self.kill_helper("mounter")
        self.assertEqual(self.sh(box, "cat /root/f"), "kept")
        name = self.new_name()
        self.drive.send(self.start_line(name))  # waits until the mounter is back
        self.start_mounter()
        self.assertEqual(self.drive.expect("start", name)[0], "ok")
        self.drive.call(f"destroy {name}")

    def test_spawner_killed_with_a_start_in_flight(self):
        """Nobody knows whether PID 1 was started: a retryable error, and nothing of it is left."""
        self.drive.call("pool")
        self.helpers["spawner-0"].send_signal(signal.SIGSTOP)
        name = self.new_name()
        self.drive.send(self.start_line(name))
        time.sleep(0.3)  # PREPARE is answered, SPAWN lies in the socket
        self.kill_helper("spawner-0")
        words = self.drive.expect("start", name)
        self.assertEqual((words[0], words[3]), ("error", "edge_unavailable"), words)
        self.assertEqual(list((self.base / "state").glob(f"**/{name}")), [])
        self.start_spawner()
        self.start()

    def test_mounter_killed_with_a_start_in_flight(self):
        """PREPARE may be asked again: the start goes on with the new mounter."""
        self.drive.call("pool")
        self.start()
        self.helpers["mounter"].send_signal(signal.SIGSTOP)
        name = self.new_name()
        self.drive.send(self.start_line(name))
        time.sleep(0.1)
        self.kill_helper("mounter")
        self.start_mounter()
        words = self.drive.expect("start", name)
        self.assertEqual(words[0], "ok", words)
        self.live.append({"name": name})

    def test_edge_killed(self):
        """Live ones are adopted, what no record names is removed, slots do not meet."""
        boxes = [self.start() for _ in range(4)]
        self.sh(boxes[0], "echo kept > /root/f")
        self.drive.kill()
        keep, gone = boxes[:2], boxes[2:]
        self.drive = Driver(self.base)
        record = " ".join(f"{b['name']} {b['pid']} {b['slot']} {b['ticks']}" for b in keep)
        self.assertEqual(self.drive.call(f"reconcile {record}")[0], "ok")
        for b in gone:
            self.assertFalse(os.path.exists(f"/proc/{b['pid']}/ns/pid") and
                             b"(probe_init) Z" not in open(f"/proc/{b['pid']}/stat", "rb").read())
            self.live.remove(b)
        for b in keep:
            self.assertEqual(self.drive.call(f"adopt {b['name']} {b['pid']} {b['slot']} {b['ticks']}")[0], "ok")
        self.assertEqual(self.sh(keep[0], "cat /root/f"), "kept")
        new = [self.start() for _ in range(4)]
        self.assertFalse({b["slot"] for b in new} & {b["slot"] for b in keep})
        os.kill(keep[1]["pid"], signal.SIGKILL)
        self.drive.expect("exit", keep[1]["name"])

    def test_adopt_refuses_another_process(self):
        box = self.start()
        self.drive.kill()
        self.drive = Driver(self.base)
        name = box["name"]
        self.drive.call(f"reconcile {name} {box['pid']} {box['slot']} {box['ticks'] + 1}")
        words = self.drive.call(f"adopt {name} {box['pid']} {box['slot']} {box['ticks'] + 1}")
        self.assertEqual(words[0], "error")
        self.live.remove(box)
        wait_until("the pretender's slot is cleaned", 10, lambda: not os.path.exists(f"/proc/{box['pid']}/ns/pid"))

    def test_everything_killed(self):
        boxes = [self.start() for _ in range(3)]
        self.drive.kill()
        self.kill_helper("spawner-0")
        self.kill_helper("mounter")
        self.start_mounter()
        self.start_spawner()
        self.drive = Driver(self.base)
        self.live.clear()
        self.assertEqual(self.drive.call("reconcile")[0], "ok")
        for b in boxes:
            wait_until("gone", 10, lambda: not os.path.exists(f"/proc/{b['pid']}/ns/pid"))
        self.start()


FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


@unittest.skipUnless(FREEZER.exists(), "needs the v1 freezer, where a frozen task does not die")
class Hung(ContainerTest):
    def test_pid1_that_does_not_die(self):
        """destroy answers after its deadline; the slot is not used again, the others work; the next edge cleans up."""
        box = self.start()
        frozen = FREEZER / self.base.name
        frozen.mkdir()
        (frozen / "tasks").write_text(str(box["pid"]))
        (frozen / "freezer.state").write_text("FROZEN")
        try:
            self.live.remove(box)
            self.drive.send(f"destroy {box['name']}")
            words = self.drive.expect("destroy", box["name"], timeout=60)
            self.assertEqual((words[0], words[3]), ("error", "deadline_exceeded"), words)
            other = self.start()
            self.assertNotEqual(other["slot"], box["slot"])
            self.assertEqual(self.sh(other, "echo alive"), "alive")
            self.destroy(other)
        finally:
            (frozen / "freezer.state").write_text("THAWED")
            wait_until("its death", 10, lambda: not (frozen / "tasks").read_text())
            frozen.rmdir()
        self.drive.kill()
        self.drive = Driver(self.base)
        self.assertEqual(self.drive.call("reconcile")[0], "ok")


if __name__ == "__main__":
    unittest.main()
