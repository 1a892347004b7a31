"""Sweeps: the settings to try, the program that tries them on a machine, and what came of it. No terminal, no provider."""
