"""Rewrites the documents of jobs."""

from tests.unit.render.documents import rewrite

rewrite()
