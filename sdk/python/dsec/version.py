"""The package's version, one place. pyproject.toml repeats it; a test compares."""
__version__ = "0.1.0"
