"""Sweeps: planned as a run whose command is the tuner, started, and shown."""
