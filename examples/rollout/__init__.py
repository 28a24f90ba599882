"""The parts of the demo: tasks, the agent's tools, one attempt, the platform, the report."""
