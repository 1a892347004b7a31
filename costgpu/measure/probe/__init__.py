"""The probe: runs a user's training script, unmodified, and writes down what it does.

These modules import each other, `costgpu.portable` and the standard library only, and run on Python 3.8+ with any torch:
they are sent to the user's interpreter as one self-contained file (`costgpu.measure.session`), which needs nothing of ours
there:

    python probe.pyz run CONFIG.json     run a script and write CONFIG's "result" file

The probe records and never judges; `costgpu.measure.profile.profile_builder` turns its record into a workload profile.
"""
