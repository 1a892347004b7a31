"""What programs of ours share that run in other Pythons: the probe, the agent and the tuner pack it in.

Standard library only, Python 3.8 and newer, and nothing else of costgpu.
"""
