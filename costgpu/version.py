"""The version. Imports nothing, so that everything can name it."""

__version__ = "0.1.0"
