"""What a program inside sees agrees with the sandbox's limits, and the limits
hold: nproc, /proc/meminfo, /proc/cpuinfo, free, df; memory, processes, disk."""
import unittest

from debian import DebianTest


class Views(DebianTest):
    def test_processors(self):
        sb = self.sandbox(cpu=1, memory_mb=256)
        r = self.client.run(sb, "nproc; grep -c ^processor /proc/cpuinfo; getconf _NPROCESSORS_ONLN; "
                              "python3 -c 'import os; print(os.cpu_count())'; cat /sys/devices/system/cpu/online")
        self.assertEqual(r["stdout"].split(), [b"1", b"1", b"1", b"1", b"0"], r["stderr"])

    def test_fractions_of_a_processor_round_up(self):
        sb = self.sandbox(cpu=1.5, memory_mb=256)
        r = self.client.run(sb, "nproc; grep -c ^processor /proc/cpuinfo")
        self.assertEqual(r["stdout"].split(), [b"2", b"2"])

    def test_memory(self):
        sb = self.sandbox(memory_mb=300)
        r = self.client.run(sb, "free -b | awk '/^Mem/{print $2, $3, $7}'; awk '/^MemTotal/{print $2}' /proc/meminfo; free -b | awk '/^Swap/{print $2}'")
        lines = r["stdout"].split()
        total, used, available = int(lines[0]), int(lines[1]), int(lines[2])
        self.assertEqual(total, 300 << 20)
        self.assertLess(used, total)
        self.assertLessEqual(available, total)
        self.assertEqual(int(lines[3]), 300 << 10)
        self.assertEqual(lines[4], b"0")

    def test_used_memory_shows(self):
        sb = self.sandbox(memory_mb=300)
        r = self.client.run(sb, ["python3", "-c",
                               "import time\nx=bytearray(b'x')*(100<<20)\ntime.sleep(2.5)\n"
                               "print([int(l.split()[1]) for l in open('/proc/meminfo') if l.startswith('MemAvailable')][0])"])
        self.assertLess(int(r["stdout"]), (210 << 10), r["stderr"])

    def test_disk(self):
        sb = self.sandbox(disk_mb=100, memory_mb=256)
        r = self.client.run(sb, "df -B1 --output=size,avail / | tail -1; dd if=/dev/zero of=/root/f bs=1M count=40 2>/dev/null; "
                              "sync; df -B1 --output=size,used,avail / | tail -1; stat -f -c '%b %S' /")
        f = [int(x) for x in r["stdout"].split()]
        self.assertEqual(f[0], 100 << 20, r["stderr"])
        self.assertEqual(f[2], 100 << 20)
        self.assertGreaterEqual(f[3], 40 << 20)
        self.assertLess(f[4], f[1])
        self.assertEqual(f[5] * f[6], 100 << 20)


class Limits(DebianTest):
    def test_memory_limit_kills_the_command_and_says_so(self):
        sb = self.sandbox(memory_mb=64)
        r = self.client.run(sb, ["python3", "-c", "x=bytearray(b'x')*(500<<20)"])
        self.assertIsNone(r["exit_code"])
        self.assertEqual((r["signal"], r["oom_killed"], r["killed_by"]), ("KILL", True, "oom"))
        self.assertEqual(self.client.run(sb, ["echo", "alive"])["stdout"], b"alive\n")
        self.assertGreaterEqual(self.client.get(sb)["usage"]["oom_kills"], 1)

    def test_a_command_that_ended_well_is_not_marked_by_its_neighbour(self):
        sb = self.sandbox(memory_mb=64)
        innocent = self.client.start(sb, ["sleep", "3"])
        guilty = self.client.run(sb, ["python3", "-c", "x=bytearray(b'x')*(500<<20)"])
        self.assertEqual((guilty["oom_killed"], guilty["killed_by"]), (True, "oom"))
        done = self.client.wait(sb, innocent["id"])
        self.assertEqual((done["exit_code"], done["oom_killed"], done["killed_by"]), (0, False, ""))

    def test_a_killed_part_of_a_pipe_is_told_though_the_shell_ends_well(self):
        sb = self.sandbox(memory_mb=64)
        r = self.client.run(sb, "head -c 300000000 /dev/zero | tail -c 299999999 | wc -c")
        self.assertEqual((r["exit_code"], r["oom_killed"], r["killed_by"]), (0, True, ""))

    def test_memory_below_the_limit_is_not_killed(self):
        sb = self.sandbox(memory_mb=128)
        r = self.client.run(sb, ["python3", "-c", "x=bytearray(b'x')*(60<<20)"])
        self.assertEqual((r["exit_code"], r["oom_killed"]), (0, False), r["stderr"])

    def test_pids_limit(self):
        sb = self.sandbox(pids=32, memory_mb=256)
        r = self.client.run(sb, ["python3", "-c",
                               "import os,time\nn=0\n"
                               "while True:\n"
                               "  try: p=os.fork()\n"
                               "  except OSError as e: print(n, e.errno); break\n"
                               "  if p==0: time.sleep(30); os._exit(0)\n"
                               "  n+=1\n"
                               "import signal; signal.signal(15, signal.SIG_IGN); os.kill(0, 15)\n"])
        n, err = r["stdout"].split()
        self.assertEqual(int(err), 11)
        self.assertEqual(int(n), 31)  # the interpreter is the 32nd

    def test_disk_limit(self):
        sb = self.sandbox(disk_mb=64, memory_mb=256)
        r = self.client.run(sb, "dd if=/dev/zero of=/root/big bs=1M count=200; ls -l /root/big | awk '{print $5}'")
        self.assertIn(b"xceeded", r["stderr"] + r["stdout"], r["stderr"])
        self.assertLessEqual(int(r["stdout"].split()[-1]), 64 << 20)
        # Commands still run on a full disk, and space comes back.
        self.assertEqual(self.client.run(sb, "rm /root/big && echo freed > /root/small && cat /root/small")["stdout"], b"freed\n")
        other = self.sandbox()
        self.assertEqual(self.client.run(other, "dd if=/dev/zero of=/root/f bs=1M count=10 2>/dev/null; echo ok")["stdout"], b"ok\n")

    def test_cpu_limit(self):
        sb = self.sandbox(cpu=0.5, memory_mb=128)
        r = self.client.run(sb, ["python3", "-c",
                                 "import time\nt=time.time()\nc=time.process_time()\nwhile time.time()<t+3: pass\n"
                                 "print((time.process_time()-c)/(time.time()-t))"])
        self.assertEqual(r["exit_code"], 0)
        # Of a whole CPU; one period's slack. Without the limit it is 1 (less where the host is busy).
        self.assertLess(float(r["stdout"]), 0.6)
        self.assertGreater(r["cpu_seconds"], 0.3)

    def test_inode_bomb_meets_the_disk_limit(self):
        sb = self.sandbox(disk_mb=16, memory_mb=256)
        r = self.client.run(sb, ["python3", "-c",
                               "import os\n"
                               "try:\n"
                               "  for i in range(10**6):\n"
                               "    os.close(os.open('/root/%d' % i, os.O_CREAT))\n"
                               "except OSError as e: print(e.errno)\n"], timeout_seconds=120)
        self.assertIn(r["stdout"].strip(), (b"122", b"28"))


if __name__ == "__main__":
    unittest.main()
