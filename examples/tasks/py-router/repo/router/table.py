"""All routes of an application."""
from .pattern import Pattern


class NotFound(Exception):
    pass


class MethodNotAllowed(Exception):
    def __init__(self, allowed):
        super().__init__("allowed: " + ", ".join(allowed))
        self.allowed = allowed


class Table:
    def __init__(self):
        self._routes = []

    def add(self, method, pattern, handler):
        self._routes.append((method, Pattern(pattern), handler))

    def find(self, method, path):
        """The handler and what the pattern captured."""
        for known, pattern, handler in self._routes:
            values = pattern.match(path)
            if values is not None and known == method:
                return handler, values
        raise NotFound(path)
