"""Runs a user's script under the probe and describes what it does. May import `models`, `units` and `errors`."""

from costgpu.measure.interpreter import Interpreter, find_interpreter
from costgpu.measure.script import measure_changed, measure_memory, measure_script
from costgpu.measure.session import Outcome, Request
from costgpu.measure.workload_key import workload_key

__all__ = [
    "Interpreter",
    "Outcome",
    "Request",
    "find_interpreter",
    "measure_changed",
    "measure_memory",
    "measure_script",
    "workload_key",
]
