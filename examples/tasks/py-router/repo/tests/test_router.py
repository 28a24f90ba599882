import unittest

from router import MethodNotAllowed, NotFound, Table


class Routes(unittest.TestCase):
    def setUp(self):
        self.table = Table()
        self.table.add("GET", "/users/{id}", "user")
        self.table.add("GET", "/users/me", "me")
        self.table.add("GET", "/files/{path*}", "files")

    def test_parameter(self):
        self.assertEqual(self.table.find("GET", "/users/7"), ("user", {"id": "7"}))

    def test_rest(self):
        self.assertEqual(self.table.find("GET", "/files/a/b"), ("files", {"path": "a/b"}))

    def test_missing(self):
        with self.assertRaises(NotFound):
            self.table.find("GET", "/nothing")

    def test_fixed_word_wins(self):
        self.assertEqual(self.table.find("GET", "/users/me"), ("me", {}))

    def test_method(self):
        with self.assertRaises(MethodNotAllowed):
            self.table.find("PUT", "/users/7")
