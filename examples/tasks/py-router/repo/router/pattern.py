"""A route's pattern: words and parameters between slashes."""


class Pattern:
    def __init__(self, text):
        if not text.startswith("/"):
            raise ValueError("a pattern starts with /: %r" % text)
        self.text = text
        self.segments = text[1:].split("/")

    def match(self, path):
        """The captured values by name, or None."""
        parts = path[1:].split("/")
        values = {}
        for i, segment in enumerate(self.segments):
            if segment.startswith("{") and segment.endswith("*}"):
                values[segment[1:-2]] = "/".join(parts[i:])
                return values
            if i >= len(parts):
                return None
            if segment.startswith("{") and segment.endswith("}"):
                values[segment[1:-1]] = parts[i]
            elif segment != parts[i]:
                return None
        return values if len(parts) == len(self.segments) else None
