"""The tuner: runs a script once for each setting under Ray Tune, on the machine of a run.

Travels as one file and runs on Python 3.8 or newer; imports nothing of costgpu but itself and `portable`, and of others
only Ray.
"""
