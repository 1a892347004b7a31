"""A machine of a run: how to reach it, what boots it, and the agent on it."""
