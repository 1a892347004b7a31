"""Prices and hardware: dated snapshots, the catalog that queries them, and where they come from.

Imported as `costgpu.pricing` only. The folder at the top of the repository is the same code. May import
`models`, `units` and `errors`.
"""

if __name__ != "costgpu.pricing":
    raise ImportError("import costgpu.pricing; the bare name would be a second copy of every class")
