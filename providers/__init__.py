"""The clouds: one adapter each. Cloud SDKs are imported here and nowhere else.

Imported as `costgpu.providers` only. The folder at the top of the repository is the same code.
"""

if __name__ != "costgpu.providers":
    raise ImportError("import costgpu.providers; the bare name would be a second copy of every class")
