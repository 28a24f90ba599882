"""The frame parser and the output collector: odd splits, bounds, nonsense."""
import random
import unittest

from scripted import dsec, err, event, frame, out
from dsec import _frames
from dsec._output import Collector


def parse(parser, pieces):
    streams, events, keepalives = {1: b"", 2: b""}, [], 0
    for piece in pieces:
        for kind, value in parser.feed(piece):
            if kind == _frames.EVENT:
                events.append(value)
            elif kind == _frames.KEEPALIVE:
                keepalives += 1
            else:
                streams[kind] += value
    return streams[1], streams[2], events, keepalives


class Frames(unittest.TestCase):
    WIRE = (event("started", exec={"id": "x"}) + out(b"abc") + err(bytes(range(256))) + out(b"")
            + frame(4, b"") + out(b"\n" * 700) + event("exit", exec={"id": "x"}))
    WANT = (b"abc" + b"\n" * 700, bytes(range(256)),
            [{"event": "started", "exec": {"id": "x"}}, {"event": "exit", "exec": {"id": "x"}}], 1)

    def test_every_split_in_two(self):
        for cut in range(len(self.WIRE) + 1):
            parser = _frames.FrameParser()
            self.assertEqual(parse(parser, [self.WIRE[:cut], self.WIRE[cut:]]), self.WANT, cut)
            self.assertTrue(parser.between_frames)

    def test_bytewise_and_random(self):
        self.assertEqual(parse(_frames.FrameParser(), [bytes([b]) for b in self.WIRE]), self.WANT)
        rng = random.Random(7)
        for _ in range(200):
            pieces, pos = [], 0
            while pos < len(self.WIRE):
                n = rng.choice([0, 1, 2, 3, 5, 7, 64, 300])
                pieces.append(self.WIRE[pos:pos + n])
                pos += n
            self.assertEqual(parse(_frames.FrameParser(), pieces), self.WANT)

    def test_output_is_handed_on_before_its_frame_is_whole(self):
        parser = _frames.FrameParser()
        self.assertEqual(list(parser.feed(out(b"x" * 1000)[:105])), [(1, b"x" * 100)])
        self.assertFalse(parser.between_frames)

    def test_nonsense_is_refused(self):
        for wire in (frame(9, b"x"), frame(3, b"{"), frame(3, b"[]"), frame(3, b""), frame(3, b"\xff\xff"),
                     b"\x03" + (_frames.EVENT_MAX_BYTES + 1).to_bytes(4, "big")):
            with self.assertRaises(dsec.BadResponse):
                list(_frames.FrameParser().feed(wire))

    def test_event_at_the_limit(self):
        text = '{"event": "%s"}' % ("e" * (_frames.EVENT_MAX_BYTES - 13))
        self.assertEqual(len(text), _frames.EVENT_MAX_BYTES)
        self.assertEqual(len(list(_frames.FrameParser().feed(frame(3, text.encode())))), 1)


class Collecting(unittest.TestCase):
    def collect(self, limit, pieces):
        c = Collector(limit)
        for piece in pieces:
            c.add(piece)
        return c.value(), c.truncated

    def test_at_the_limit(self):
        data = bytes(range(200))
        for size in (1, 3, 7, 200):
            pieces = [data[i:i + size] for i in range(0, 200, size)]
            self.assertEqual(self.collect(201, pieces), (data, False))
            self.assertEqual(self.collect(200, pieces), (data, False))
            self.assertEqual(self.collect(199, pieces), (data[:100] + data[101:], True))
            self.assertEqual(self.collect(10, pieces), (data[:5] + data[-5:], True))
            self.assertEqual(self.collect(1, pieces), (data[:1], True))
            self.assertEqual(self.collect(0, pieces), (b"", True))


if __name__ == "__main__":
    unittest.main()
