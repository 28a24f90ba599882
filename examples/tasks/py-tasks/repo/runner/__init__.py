from .graph import Cycle, UnknownTask, order
from .parse import Task, parse
from .run import run

__all__ = ["Cycle", "Task", "UnknownTask", "order", "parse", "run"]
