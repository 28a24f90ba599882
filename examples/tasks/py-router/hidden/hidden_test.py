import itertools
import unittest

from router import MethodNotAllowed, NotFound, Table

ROUTES = ["/u/{path*}", "/u/{name}", "/u/{id:int}", "/u/me", "/u/{id:int}/log", "/u/me/{what}", "/"]


class Hidden(unittest.TestCase):
    def test_order_never_matters(self):
        for routes in itertools.islice(itertools.permutations(ROUTES), 0, 5040, 37):
            table = Table()
            for route in routes:
                table.add("GET", route, route)
            for path, want in (("/u/me", ("/u/me", {})), ("/u/12", ("/u/{id:int}", {"id": 12})),
                               ("/u/bob", ("/u/{name}", {"name": "bob"})), ("/u/a/b", ("/u/{path*}", {"path": "a/b"})),
                               ("/u/7/log", ("/u/{id:int}/log", {"id": 7})), ("/", ("/", {})),
                               ("/u/me/log", ("/u/me/{what}", {"what": "log"}))):
                self.assertEqual(table.find("GET", path), want)

    def test_decoding(self):
        table = Table()
        table.add("GET", "/f/{name}/x", 1)
        table.add("GET", "/r/{path*}", 2)
        self.assertEqual(table.find("GET", "/f/a%2Fb%20%C3%A9/x"), (1, {"name": "a/b é"}))
        self.assertEqual(table.find("GET", "/r/a%20b/c"), (2, {"path": "a b/c"}))

    def test_same_route_twice(self):
        table = Table()
        table.add("GET", "/a/{x}", 1)
        table.add("POST", "/a/{y}", 2)
        table.add("GET", "/a/{n:int}", 3)
        for again in ("/a/{z}", "/a/{m:int}"):
            with self.assertRaises(ValueError):
                table.add("GET", again, 4)

    def test_methods(self):
        table = Table()
        for method in ("PUT", "GET", "DELETE"):
            table.add(method, "/a/{x}", method)
        with self.assertRaises(MethodNotAllowed) as caught:
            table.find("POST", "/a/1")
        self.assertEqual(caught.exception.allowed, ["DELETE", "GET", "PUT"])
        with self.assertRaises(NotFound):
            table.find("POST", "/b")

    def test_int_is_digits(self):
        table = Table()
        table.add("GET", "/n/{n:int}", 1)
        for bad in ("/n/-1", "/n/1a", "/n/", "/n/٣"):
            with self.assertRaises(NotFound, msg=bad):
                table.find("GET", bad)


unittest.main()
