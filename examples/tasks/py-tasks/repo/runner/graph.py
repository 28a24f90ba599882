"""The order of tasks."""


class UnknownTask(Exception):
    pass


class Cycle(Exception):
    def __init__(self, path):
        super().__init__(" -> ".join(path))
        self.path = path


def order(tasks):
    """Names of tasks, each after those that it needs."""
    names = []
    for task in tasks.values():
        for need in task.needs:
            if need not in names:
                names.append(need)
        if task.name not in names:
            names.append(task.name)
    return names
