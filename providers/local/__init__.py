"""This machine as a provider: an instance is a folder, a process that is its host, and whatever runs in it.

The host process outlives the client, ends the instance at its lease, and leaves nothing running. If it is killed
itself, what belongs to the instance is still found, by a mark in the environment of its processes. Standard library
only: `machine` and what it imports run as a program of their own.
"""

from __future__ import annotations

from costgpu.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
