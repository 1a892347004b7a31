"""Measures a script whose model does not fit: large tensors have addresses and no memory, and ops on them are shapes only.

Imported once the script has imported torch. The door is `run.WithoutWeights`.
"""
