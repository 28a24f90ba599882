"""Reads a task file."""


class Task:
    def __init__(self, name, needs):
        self.name = name
        self.needs = needs
        self.commands = []


def parse(text):
    """Tasks by name, in the order of the file."""
    tasks = {}
    current = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t":
            if current is None:
                raise ValueError("line %d: a command without a task" % number)
            current.commands.append(line.strip())
            continue
        name, colon, needs = line.partition(":")
        if not colon or name.strip() in tasks:
            raise ValueError("line %d: not a new task" % number)
        current = tasks[name.strip()] = Task(name.strip(), needs.split())
    return tasks
