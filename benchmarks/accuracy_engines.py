"""How far the formulas for engines are from public measurements: median and p90 absolute percentage error.

    python -m benchmarks.accuracy_engines ROWS.csv

ROWS.csv as for benchmarks.accuracy_inference; its rows of llama.cpp (one stream of decode) and of vLLM (one request at a
time) on the GPUs of the hardware tables.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from benchmarks.accuracy import percent
from benchmarks.accuracy_inference import read
from costgpu.estimator.advice.engines import engine_decode_seconds
from costgpu.pricing.hardware import accelerators

# Parameters that one token reads, in billions, layers, and bytes of the Q4_K_M file in GB. Source: the models' own pages and
# configurations (Hugging Face, read 2026-11).
MODELS = {
    "smollm-135m": (0.135, 30, 0.105),
    "smol-135m": (0.135, 30, 0.105),
    "qwen1.5-0.5b": (0.46, 24, 0.407),
    "qwen-0.5b": (0.49, 24, 0.40),
    "gemma-2b": (2.51, 18, 1.63),
    "llama-7b": (6.74, 32, 4.08),
    "llama-8b": (7.5, 32, 4.92),
    "llama-3-8b": (7.5, 32, 4.92),
    "phi-4-14b": (14.2, 40, 9.05),
    "llama-3.3-70b": (69.5, 80, 42.5),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="CSV of measured rows")
    specs = {key: spec for spec in accelerators().values() for key in (spec.name, spec.model)}
    errors: dict[str, list[float]] = defaultdict(list)
    for raw in read(parser.parse_args().rows):
        if raw["mode"] != "engine" or raw["model"] not in MODELS or raw["batch"] != "1" or "prefill" in raw["task"]:
            continue
        billions, layers, q4 = MODELS[raw["model"]]
        int4, rate = raw["precision"].startswith("int4"), float(raw["throughput"])
        weights = 1e9 * (q4 if int4 else 2 * billions)
        engine = "vLLM" if "vLLM" in raw["framework"] else "llama.cpp"
        if raw["device_kind"] == "GPU" and raw["device"] in specs:
            spec = specs[raw["device"]]
            told = 1 / engine_decode_seconds(weights, 0.0, layers, spec, int4=int4)
            title = f"{engine}, {'int4' if int4 else 'half'}, GPU"
            errors[title + (", 2 billion and more" if billions > 2 else ", smaller")].append(told / rate - 1)
    for title, found in sorted(errors.items()):
        absolute = [abs(error) for error in found]
        figures = f"{percent(absolute, 0.5):8.1f}%{percent(absolute, 0.9):8.1f}%{percent(found, 0.5):+8.1f}%"
        print(f"{title:52}{len(found):5}{figures}")


if __name__ == "__main__":
    main()
