"""Rank 0 of a training in several processes, alone: its process group, and what is seen of how it is spread."""
