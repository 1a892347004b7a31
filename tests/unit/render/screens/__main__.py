"""Rewrites the first screens."""

from tests.unit.render.screens import rewrite

rewrite()
