"""How libraries load pretrained weights: without them, or where they are too large, by configurations alone.

Versions that this was written against: transformers 4.46 and 5.24, diffusers 0.42, timm 1.0, bitsandbytes 0.50.
"""

from __future__ import annotations

import collections
import copy
import importlib
import math
import os
import sys

from ..patching import known, put, replace, wrap
from ..without_weights.limits import WithoutStandIn
from .adapters import add_adapters, four_bits, words_of

# What `from_pretrained` does with weights: nothing here.
OF_WEIGHTS = (
    "device_map max_memory offload_folder low_cpu_mem_usage use_safetensors variant state_dict ignore_mismatched_sizes"
    " output_loading_info weights_only tp_plan key_mapping offload_state_dict offload_buffers from_tf from_flax"
    " load_in_8bit load_in_4bit adapter_kwargs"
).split()
KEPT_WHOLE = ("lm_head", "score", "classifier")  # layers that are not quantized unless the script says which
TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # of safetensors, by torch's names
LEAST_UNREAD = 1 << 20  # bytes of a tensor in a file
SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
STAND_INS = ("eager", "sdpa")  # for attention; what flash attention keeps, the fused kernels of torch keep


class PretrainedWeights:
    """Puts itself in the place of what loads weights.

    Args:
        recorder: Holds the room `without_weights`, and the trip-wires of a measurement with weights.
    """

    def __init__(self, recorder):
        self.recorder = recorder

    @property
    def room(self):
        return self.recorder.without_weights

    def callbacks(self):
        """Return what to call when modules have been imported."""
        return {"huggingface_hub.file_download": [self.note_missing], **self.of_models(self.recorder.config["weights"])}

    def of_models(self, weights):
        if weights == "tried":
            return {
                "transformers.modeling_utils": [self.watch_models],
                "diffusers.models.modeling_utils": [self.watch_parts],
            }
        if weights == "real":
            return {}
        return {
            "transformers.modeling_utils": [self.models],
            "bitsandbytes": [paged_states],
            "diffusers.models.modeling_utils": [self.parts],
            "safetensors": [self.opened_files],
            "safetensors.torch": [self.files],
            "timm.models._builder": [lambda module: put(module, load_pretrained=lambda *args, **kwargs: None)],
            "torch": [by_address],
        }

    def note_missing(self, module):
        """Note which files of the hub are neither here nor to be had: libraries keep that to themselves."""

        def download(inner, repo_id, filename, *args, **kwargs):
            try:
                return inner(repo_id, filename, *args, **kwargs)
            except Exception:
                self.recorder.file_is_missing(str(repo_id), str(filename))
                raise

        wrap(module, "hf_hub_download", download)

    # -- with weights: the trip-wires

    def watch_models(self, module):
        """Tell the trip-wires how large a model is before it is loaded."""

        def from_pretrained(cls, name, *args, **kwargs):
            self.recorder.trip_wires.loads(*self.size_of(cls, name, kwargs))
            return inner(cls, name, *args, **kwargs)

        inner = module.PreTrainedModel.from_pretrained.__func__
        replace(module.PreTrainedModel, "from_pretrained", lambda _: classmethod(from_pretrained))

    def watch_parts(self, module):
        def from_pretrained(cls, name, *args, **kwargs):
            size = local_bytes(os.path.join(str(name), kwargs.get("subfolder") or ""))
            if size:
                self.recorder.trip_wires.loads(size, True)
            return inner(cls, name, *args, **kwargs)

        inner = module.ModelMixin.from_pretrained.__func__
        replace(module.ModelMixin, "from_pretrained", lambda _: classmethod(from_pretrained))

    def size_of(self, cls, name, kwargs):
        """Return the bytes of a model's weights, and whether their files are on this machine."""
        size = local_bytes(str(name)) or known(cached_bytes, str(name), kwargs) or 0
        if size:
            return size, True
        return known(self.configured_bytes, cls, name, kwargs, default=0), False

    def configured_bytes(self, cls, name, kwargs):
        """Return the bytes of weights by the configuration alone."""
        torch, config = self.recorder.torch, kwargs.get("config")
        if config is None:
            config = cls.config_class.from_pretrained(name)
        with torch.device("meta"):
            model = cls._from_config(copy.deepcopy(config))
        each = known(lambda: (filed_dtype(torch, cls, name) or stored_dtype(torch, config)).itemsize) or 4
        return sum(value.numel() for value in model.parameters()) * each

    # -- without weights

    def models(self, module):
        """Build a model of transformers from its configuration: no weights are fetched or read."""
        torch, room, changes = self.recorder.torch, self.room, self.recorder.changes
        base = sys.modules["transformers"]
        old = int(base.__version__.split(".")[0]) < 5

        def from_pretrained(cls, name, *args, config=None, **kwargs):
            own = {key: kwargs.pop(key) for key in OF_WEIGHTS if key in kwargs}
            quantization = kwargs.pop("quantization_config", None)
            if quantization is None and (own.get("load_in_4bit") or own.get("load_in_8bit")):
                quantization = {key: own[key] for key in ("load_in_4bit", "load_in_8bit") if own.get(key)}
            attention = kwargs.pop("attn_implementation", None)
            dtype = kwargs.pop("dtype", kwargs.pop("torch_dtype", None))
            if not isinstance(config, base.PretrainedConfig):
                config, kwargs = cls.config_class.from_pretrained(config or name, return_unused_kwargs=True, **kwargs)
            else:
                config = copy.deepcopy(config)
                for key in [key for key in kwargs if hasattr(config, key)]:
                    put(config, **{key: kwargs.pop(key)})
            attention = attention or getattr(config, "_attn_implementation", None)
            if attention is not None:
                put(config, _attn_implementation=attention if attention in STAND_INS else "sdpa")
            stored = stored_dtype(torch, config)
            if dtype == "auto" or (dtype is None and not old):
                dtype = stored
            dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.float32
            quantization = quantization or getattr(config, "quantization_config", None)
            if changes.quantizes and quantization is None:
                quantization = four_bits(torch)
            if changes.adapts and dtype is torch.float32:
                dtype = torch.bfloat16
            with room.loading():
                model = cls._from_config(config, **{"torch_dtype" if old else "dtype": dtype})
                each = (filed_dtype(torch, cls, name) or stored or dtype).itemsize
                room.loads(sum(value.numel() for value in model.parameters()) * each)
                if quantization is not None:
                    quantize(torch, model, quantization)
                if changes.adapts or changes.quantizes:
                    changes.loaded(add_adapters(model) if changes.adapts else (), words_of(changes))
            put(model, name_or_path=str(name))
            put(model.config, _name_or_path=str(name))
            if own.get("device_map") is not None:
                put(model, hf_device_map={"": torch.device("cuda", 0) if torch.cuda.is_available() else "cpu"})
            model.eval()
            return (model, collections.defaultdict(list)) if own.get("output_loading_info") else model

        replace(module.PreTrainedModel, "from_pretrained", lambda _: classmethod(from_pretrained))

    def parts(self, module):
        """Build a part of a pipeline of diffusers from its configuration."""
        torch, room = self.recorder.torch, self.room

        def from_pretrained(cls, name, *args, subfolder=None, torch_dtype=None, **kwargs):
            config = cls.load_config(name, subfolder=subfolder)
            with room.loading():
                model = cls.from_config(config)
                room.loads(sum(value.numel() * value.element_size() for value in model.parameters()))
                if isinstance(torch_dtype, torch.dtype):
                    model = model.to(torch_dtype)
            return model.eval()

        replace(module.ModelMixin, "from_pretrained", lambda _: classmethod(from_pretrained))

    def opened_files(self, module):
        """Give tensors of ``safetensors`` files that are read one by one by their shapes alone."""
        room, real, torch = self.room, module.safe_open, self.recorder.torch or sys.modules.get("torch")

        class Opened:
            """A file whose large floats are not read."""

            def __init__(self, *args, **kwargs):
                self.file = real(*args, **kwargs)

            def __getattr__(self, name):
                return getattr(self.file, name)

            def __enter__(self):
                self.file.__enter__()
                return self

            def __exit__(self, *args):
                return self.file.__exit__(*args)

            def get_tensor(self, name):
                part = self.file.get_slice(name)
                shape, dtype = part.get_shape(), TYPES.get(part.get_dtype())
                size = math.prod(shape) * ((dtype and getattr(torch, dtype).itemsize) or 0)
                if size < LEAST_UNREAD:
                    return self.file.get_tensor(name)
                room.loads(size)
                return room.untouched.hollow(torch.empty(shape, dtype=getattr(torch, dtype)))

        put(module, safe_open=Opened)

    def files(self, module):
        """Leave out of ``safetensors`` files what is not there, and remember it."""
        room, saved = self.room, {}  # path -> name -> (shape, type) of what was left out
        torch = self.recorder.torch

        def load_file(inner, filename, *args, **kwargs):
            found = inner(filename, *args, **kwargs)
            for name, (shape, dtype) in saved.get(os.path.abspath(filename), {}).items():
                found[name] = torch.empty(shape, dtype=dtype)
            return room.untouched.hollow(found)

        def save_file(inner, tensors, filename, metadata=None):
            large = {name: value for name, value in tensors.items() if room.untouched.has(value)}
            room.unwritten(sum(value.numel() * value.element_size() for value in large.values()))
            saved[os.path.abspath(filename)] = {name: (value.shape, value.dtype) for name, value in large.items()}
            return inner({name: tensors[name] for name in tensors if name not in large}, filename, metadata=metadata)

        wrap(module, "load_file", load_file)
        wrap(module, "save_file", save_file)


def by_address(torch):
    """Fetch nothing by its address; a model takes what it gets."""

    class Weights(dict):
        """Weights that were not fetched."""

    def load_state_dict(inner, one, *args, **kwargs):
        if isinstance(args[0] if args else kwargs.get("state_dict"), Weights):
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return inner(one, *args, **kwargs)

    put(torch.hub, load_state_dict_from_url=lambda *args, **kwargs: Weights())
    wrap(torch.nn.Module, "load_state_dict", load_state_dict)


def stored_dtype(torch, config):
    """Return the type in which a configuration says that its weights are stored; None if it does not."""
    found = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return getattr(torch, found) if isinstance(found, str) else found


def filed_dtype(torch, cls, name):
    """Return the type that the configuration beside a model's files names; one in memory has the type asked for."""
    told = known(lambda: cls.config_class.get_config_dict(name)[0], default={})
    return getattr(torch, str(told.get("dtype") or told.get("torch_dtype")), None)


def local_bytes(folder):
    """Return the bytes of files with weights in a folder; 0 where there is none."""
    names = known(os.listdir, folder) or ()
    kinds = [[name for name in names if name.endswith(suffix)] for suffix in SUFFIXES]
    chosen = next(filter(None, kinds), [])  # the same weights may be there in several formats
    return sum(os.path.getsize(os.path.join(folder, name)) for name in chosen)


def cached_bytes(name, kwargs):
    """Return the same for a name of the hub, in its cache."""
    hub = importlib.import_module("huggingface_hub")
    found = hub.try_to_load_from_cache(
        name, "config.json", cache_dir=kwargs.get("cache_dir"), revision=kwargs.get("revision")
    )
    return local_bytes(os.path.dirname(found)) if isinstance(found, str) else 0


def quantize(torch, model, settings):
    """Put bitsandbytes' own layers into a model, filled by its own ops, of which only shapes are asked here."""

    def get(name, default):
        value = settings.get(name, default) if isinstance(settings, dict) else getattr(settings, name, default)
        return getattr(torch, value) if isinstance(value, str) and hasattr(torch, value) else value

    method = str(getattr(get("quant_method", "bitsandbytes"), "value", get("quant_method", "bitsandbytes")))
    if method != "bitsandbytes":
        raise WithoutStandIn("weights quantized by {}".format(method))
    layers = importlib.import_module("bitsandbytes").nn
    four = get("load_in_4bit", False)
    kept = get("llm_int8_skip_modules", None) or KEPT_WHOLE
    head = model.get_output_embeddings()
    for name, parent in list(model.named_modules()):
        for key, child in list(parent.named_children()):
            if type(child) is not torch.nn.Linear or child is head or key in kept or name in kept:
                continue
            sides, bias, weight = (child.in_features, child.out_features), child.bias, child.weight.data
            if four:
                how = {
                    "compress_statistics": get("bnb_4bit_use_double_quant", False),
                    "quant_type": get("bnb_4bit_quant_type", "fp4"),
                }
                compute = get("bnb_4bit_compute_dtype", torch.float32)
                made = layers.Linear4bit(*sides, bias is not None, compute, device="meta", **how)
                put(made, weight=layers.Params4bit(weight, requires_grad=False, module=made, **how))
            else:
                threshold = get("llm_int8_threshold", 6.0)
                made = layers.Linear8bitLt(
                    *sides, bias is not None, has_fp16_weights=False, threshold=threshold, device="meta"
                )
                put(made, weight=layers.Int8Params(weight, requires_grad=False, has_fp16_weights=False))
            put(made, bias=bias)
            put(parent, **{key: made.to("cpu")})
    put(model, is_loaded_in_4bit=bool(four), is_loaded_in_8bit=not four, is_quantized=True)
    put(model, quantization_method=getattr(settings, "quant_method", "bitsandbytes"))
    quantizers = importlib.import_module("transformers.quantizers")
    put(model, hf_quantizer=quantizers.AutoHfQuantizer.from_config(settings, pre_quantized=False))
    put(model.config, quantization_config=model.hf_quantizer.quantization_config)


def paged_states(module):
    """Hold bitsandbytes' paged states, which move to the host where a GPU is full, in plain tensors."""
    functional = sys.modules["bitsandbytes.functional"]
    torch = sys.modules["torch"]

    def get_paged(*shape, dtype=torch.float32, device=None):
        return torch.empty(shape, dtype=dtype)

    put(
        functional,
        get_paged=get_paged,
        prefetch_tensor=lambda *args, **kwargs: None,
        fill=lambda A, value, *args, **kwargs: A.fill_(value),
    )
