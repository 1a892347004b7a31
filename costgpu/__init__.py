"""costgpu: should this training script run on a CPU or on a GPU, on which machine, for how much?"""

__version__ = "0.1.0"
