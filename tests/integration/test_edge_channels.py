"""More sandboxes than connections: idle ones give way and come back when they are needed."""
import os
import resource
import unittest

# For this process and all it starts: leaves the edge its least number of connections (CHANNELS_MIN).
resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))

import test_edge_life  # noqa: E402
from edge_client import CREATE, R_EXEC, R_SANDBOX  # noqa: E402

CHANNELS_MIN = 256
SANDBOXES = CHANNELS_MIN + 44
AT_ONCE = 8


class Channels(test_edge_life.EdgeTest):
    def make_all(self):
        ids = [self.edge.new_id() for _ in range(SANDBOXES)]
        self.made += ids
        for at in range(0, SANDBOXES, AT_ONCE):
            group = [self.edge.call(CREATE, self.edge.create_body(sid, memory=64 << 20)) for sid in ids[at:at + AT_ONCE]]
            for s in group:
                self.edge.reply(s, R_SANDBOX)
        return ids

    def connections(self):
        """Connected sockets of the edge to where chronus listens."""
        pid, = self.platform.pids("edge")
        links = []
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except FileNotFoundError:
                pass  # the edge closed it since the listing
        return sum(link.startswith("socket:") for link in links)

    def test_all_serve(self):
        before = self.connections()
        ids = self.make_all()
        self.assertLessEqual(self.connections() - before, CHANNELS_MIN)
        # One that runs a command keeps its connection, however long ago it was used.
        long = self.edge.exec_stream(ids[0], "sleep 3; echo whole")
        self.edge.reply(long, R_EXEC)
        for sid in ids[1:]:
            self.assertEqual(self.edge.run(sid, "echo $((6*7))")[1], b"42\n")
        self.assertLessEqual(self.connections() - before, CHANNELS_MIN)
        self.edge.last(long, R_EXEC)
        self.assertEqual(long.data[1], b"whole\n")
        self.restart_edge()
        self.assertLessEqual(self.connections() - before, CHANNELS_MIN)
        for sid in ids[:3] + ids[-3:]:
            self.assertEqual(self.edge.run(sid, "echo on")[1], b"on\n")


if __name__ == "__main__":
    unittest.main()
