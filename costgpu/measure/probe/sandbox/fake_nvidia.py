"""What NVIDIA's own tools tell of the card that `fake_cuda_api` answers for: ``nvidia-smi``, and NVML by ``pynvml``."""

import io
import os
import shlex
import sys
import types

from ..patching import put
from .fake_cuda_api import CAPABILITY, MEMORY, NAME

MIB = 1 << 20
DRIVER, CUDA, USED = "550.54.15", "12.4", 4 * MIB
PROGRAM = "import sys; sys.path.insert(0, {!r}); from {} import main; main({!r}, sys.argv[1:])"
UNKNOWN = "[N/A]"
TABLE = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver:<23}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|"""
ROW = """| {0:3}  {1:<27}     On |   {2} Off |                    0 |
| N/A   30C    P0             60W /  400W | {3:>6}MiB / {4:>7}MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+"""
XML = """<gpu id="{2}"><product_name>{1}</product_name><uuid>{5}</uuid><minor_number>{0}</minor_number>
<fb_memory_usage><total>{4} MiB</total><used>{3} MiB</used><free>{6} MiB</free></fb_memory_usage>
<utilization><gpu_util>0 %</gpu_util><memory_util>0 %</memory_util></utilization>
<temperature><gpu_temp>30 C</gpu_temp></temperature><processes></processes></gpu>"""
TEXT = """GPU {2}
    FB Memory Usage
        Total                             : {4} MiB
        Used                              : {3} MiB
        Free                              : {6} MiB
    Product Name                          : {1}
    GPU UUID                              : {5}
    Utilization
        Gpu                               : 0 %
        Memory                            : 0 %"""


def card(index):
    """Return a card's number, name, address, MiB used and in all, identifier, and free MiB."""
    uuid, address = "GPU-00000000-0000-0000-0000-{:012d}".format(index), "00000000:{:02X}:00.0".format(index + 1)
    return index, NAME, address, USED // MIB, MEMORY // MIB, uuid, (MEMORY - USED) // MIB


def fields(index, gpus):
    """Field of a query -> its value and its unit."""
    number, name, address, used, total, uuid, free = card(index)
    found = {
        "index": number,
        "name": name,
        "uuid": uuid,
        "count": gpus,
        "pci.bus_id": address,
        "driver_version": DRIVER,
        "compute_cap": "{}.{}".format(*CAPABILITY),
        "pstate": "P0",
        "compute_mode": "Default",
        "display_active": "Disabled",
        "display_mode": "Disabled",
        "persistence_mode": "Enabled",
        "mig.mode.current": "Disabled",
        "temperature.gpu": 30,
        "memory.total": (total, "MiB"),
        "memory.used": (used, "MiB"),
        "memory.free": (free, "MiB"),
        "memory.reserved": (0, "MiB"),
        "utilization.gpu": (0, "%"),
        "utilization.memory": (0, "%"),
        "power.draw": ("60.00", "W"),
        "power.limit": ("400.00", "W"),
    }
    found.update({"gpu_" + short: found[short] for short in ("name", "uuid")}, gpu_bus_id=address)
    return {name: value if isinstance(value, tuple) else (value, "") for name, value in found.items()}


def query(names, style, chosen, gpus):
    """Yield the lines of ``--query-gpu``."""
    first = fields(0, gpus)
    units = "nounits" not in style
    if "noheader" not in style:
        yield ", ".join(n + (" [{}]".format(first[n][1]) if first.get(n, ("", ""))[1] else "") for n in names)
    for index in chosen:
        known = fields(index, gpus)
        pairs = [known.get(name, (UNKNOWN, "")) for name in names]
        yield ", ".join("{} {}".format(*pair) if pair[1] and units else str(pair[0]) for pair in pairs)


def answer(gpus, words):
    """Return what ``nvidia-smi`` prints for these words, line by line."""
    given, at = {}, 0
    while at < len(words):
        name, sign, value = words[at].partition("=")
        if not sign and at + 1 < len(words) and not words[at + 1].startswith("-"):
            at, value = at + 1, words[at + 1]
        given[name] = value
        at += 1
    asked = given.get("--id", given.get("-i"))
    chosen = [n for n in range(gpus) if asked is None or str(n) in asked.split(",") or card(n)[5] in asked]
    if "--query-gpu" in given:
        return query([n.strip() for n in given["--query-gpu"].split(",")], given.get("--format", ""), chosen, gpus)
    apps = given.get("--query-compute-apps", given.get("--query-apps"))
    if apps is not None:
        return [] if "noheader" in given.get("--format", "") else [apps.replace(",", ", ")]
    if "-L" in given or "--list-gpus" in given:
        return ["GPU {}: {} (UUID: {})".format(*[card(n)[part] for part in (0, 1, 5)]) for n in chosen]
    if "-x" in given or "--xml-format" in given:
        inner = [XML.format(*card(n)) for n in chosen]
        return [
            '<?xml version="1.0" ?>\n<nvidia_smi_log><driver_version>{}</driver_version>'.format(DRIVER),
            "<cuda_version>{}</cuda_version><attached_gpus>{}</attached_gpus>".format(CUDA, gpus),
            *inner,
            "</nvidia_smi_log>",
        ]
    if "-q" in given or "--query" in given:
        return [
            "Driver Version : " + DRIVER,
            "Attached GPUs : {}".format(gpus),
            *[TEXT.format(*card(n)) for n in chosen],
        ]
    return [TABLE.format(driver=DRIVER, cuda=CUDA), *[ROW.format(*card(n)) for n in chosen]]


def main(gpus, words):
    """Answer as nvidia-smi does."""
    try:
        for line in answer(gpus, words):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # of `| head -1`
        os._exit(0)


def put_program(scratch, gpus):
    """Put a program of the name ``nvidia-smi`` first on PATH."""
    folder = os.path.join(scratch, "bin")
    os.makedirs(folder, exist_ok=True)
    program = PROGRAM.format(os.path.abspath(sys.argv[0]), __name__, gpus)
    path = os.path.join(folder, "nvidia-smi")
    program = '#!/bin/sh\nexec {} -S -E -c {} "$@"\n'.format(shlex.quote(sys.executable), shlex.quote(program))
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)  # a chmod has no effect where writes are refused
    with io.open(made, "w") as stream:
        stream.write(program)
    os.environ["PATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PATH")]))


def attach_nvml(gpus, module):
    """For ``pynvml``: what is not known of the card is answered as NVML answers for one that cannot tell."""

    def unsupported(*args, **kwargs):
        raise module.NVMLError(module.NVML_ERROR_NOT_SUPPORTED)

    def by_index(index, *args):
        if not 0 <= int(index) < gpus:
            raise module.NVMLError(module.NVML_ERROR_INVALID_ARGUMENT)
        return int(index)

    def memory(handle, *args, **kwargs):
        return types.SimpleNamespace(total=MEMORY, used=USED, free=MEMORY - USED, reserved=0, version=2)

    rates = types.SimpleNamespace(gpu=0, memory=0)
    known = {
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: by_index(int(str(uuid)[-5:].strip("b'"))),
        "nvmlDeviceGetIndex": by_index,
        "nvmlDeviceGetMinorNumber": by_index,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUUID": lambda handle: card(handle)[5],
        "nvmlDeviceGetPciInfo": lambda handle: types.SimpleNamespace(busId=card(handle)[2], bus=handle + 1, device=0),
    }
    constant = {
        "nvmlInit": None,
        "nvmlInitWithFlags": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": gpus,
        "nvmlDeviceGetName": NAME,
        "nvmlDeviceGetUtilizationRates": rates,
        "nvmlDeviceGetCudaComputeCapability": CAPABILITY,
        "nvmlDeviceGetTemperature": 30,
        "nvmlDeviceGetPowerUsage": 60000,
        "nvmlDeviceGetEnforcedPowerLimit": 400000,
        "nvmlDeviceGetPowerManagementLimit": 400000,
        "nvmlDeviceGetTotalEnergyConsumption": 0,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlSystemGetDriverVersion": DRIVER,
        "nvmlSystemGetCudaDriverVersion": 12040,
    }
    known.update((name, lambda *args, value=value, **kwargs: value) for name, value in constant.items())
    for name in dir(module):
        if name.startswith(("nvmlDevice", "nvmlSystem", "nvmlInit", "nvmlShutdown", "nvmlUnit")):
            base = name.rpartition("_v")[0] if name[-1:].isdigit() else name
            put(module, **{name: known.get(base, unsupported)})
    if hasattr(module, "_nvmlGetFunctionPointer"):  # gpustat calls what it finds by it
        put(module, _nvmlGetFunctionPointer=lambda name: unsupported)
