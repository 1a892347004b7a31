"""The packages of a rented machine: which file names them, the command that installs them, and what it would not install.

Nothing here spends, and nothing is installed on this computer. May import `errors`, `models`, `files` and `measure`.
"""

from costgpu.workflows.runs.packages.find import find_packages
from costgpu.workflows.runs.packages.imports import check_imports
from costgpu.workflows.runs.packages.source import PackageSource, with_framework

__all__ = ["PackageSource", "check_imports", "find_packages", "with_framework"]
