"""Hooks into the frameworks that scripts train with."""
