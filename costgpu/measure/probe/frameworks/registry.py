"""All frameworks that costgpu knows: one entry each. The probe calls their hooks, and the host reads the same entries."""

from __future__ import annotations

from .framework import FrameworkSpec

BOOSTED_TREES = "gradient-boosted-trees"  # as the benchmark table calls them

JAX = FrameworkSpec(
    name="jax",
    hooks="jax_hooks",
    computes=True,
    telling=frozenset("value_and_grad jit vmap pmap apply_gradients optax flax".split()),
    rank=2,
    counts="the jitted function's operations",
    compiles=True,
)
KERAS = FrameworkSpec(
    name="keras",
    aliases=("tf_keras", "tensorflow"),
    hooks="keras_hooks",
    computes=True,
    rank=0,
    family="keras",
    counts="the layers' shapes",
)
TENSORFLOW = FrameworkSpec(
    name="tensorflow",
    hooks="distribution_hooks",
    computes=True,
    telling=frozenset(("GradientTape", "apply_gradients")),
    rank=1,
    counts=KERAS.counts,
)
XGBOOST = FrameworkSpec(
    name="xgboost",
    hooks="xgboost_hooks",
    computes=True,
    telling=frozenset(("XGBClassifier", "XGBRegressor")),
    rank=3,
    family=BOOSTED_TREES,
    gpu_option="device='cuda'",
    on_gpu_by_facts=True,
)
LIGHTGBM = FrameworkSpec(
    name="lightgbm",
    hooks="lightgbm_hooks",
    computes=True,
    telling=frozenset(("LGBMClassifier", "LGBMRegressor")),
    rank=3,
    family=BOOSTED_TREES,
    gpu_option="a CUDA build of LightGBM and device_type='cuda'",
    refusals="no opencl device|(gpu|cuda) tree learner was not enabled",  # version 4
)
CATBOOST = FrameworkSpec(
    name="catboost",
    hooks="catboost_hooks",
    computes=True,
    telling=frozenset(("CatBoostClassifier", "CatBoostRegressor")),
    rank=3,
    family=BOOSTED_TREES,
    gpu_option="task_type='GPU'",
    refusals="cuda driver version is insufficient",  # version 1.2
)
SKLEARN = FrameworkSpec(
    name="sklearn",
    label="scikit-learn",
    hooks="sklearn_hooks",
    computes=True,
    rank=4,
    family="sklearn",
    on_gpu_by_facts=True,
    fits=True,
)
TQDM = FrameworkSpec(name="tqdm", label="Python", hooks="tqdm_hooks", rank=8)

FRAMEWORKS = (
    FrameworkSpec(
        name="torch",
        hooks="torch_hooks",
        computes=True,
        telling=frozenset(
            (
                "nn optim Module Sequential Parameter Optimizer backward zero_grad no_grad inference_mode autocast autograd"
                " requires_grad load_state_dict DataLoader"
            ).split()
        ),
        counts="its operations",
        on_torch=True,
    ),
    JAX,
    KERAS,
    TENSORFLOW,
    XGBOOST,
    LIGHTGBM,
    CATBOOST,
    SKLEARN,
    FrameworkSpec(
        name="lightning",
        aliases=("pytorch_lightning", "lightning_fabric"),
        hooks="lightning_hooks",
        trainers={"Trainer": "trainer_length"},
        drivers={"_PredictionLoop": "loop_length", "_EvaluationLoop": "loop_length"},
        refusals="cudaaccelerator|no supported gpu backend",
        on_torch=True,
        spreads=True,
    ),
    FrameworkSpec(
        name="transformers",
        hooks="transformers_hooks",
        trainers={"Trainer": "trainer_length"},
        drivers={"PipelineIterator": "pipeline_length"},
        telling=frozenset("Trainer TrainingArguments from_pretrained AutoModel pipeline".split()),
        refusals="support bf16/gpu",  # versions 4 and 5
        on_torch=True,
        spreads=True,
    ),
    FrameworkSpec(name="accelerate", hooks="accelerate_hooks", on_torch=True, spreads=True),
    FrameworkSpec(name="deepspeed", hooks="deepspeed_hooks", on_torch=True, spreads=True),
    FrameworkSpec(name="horovod", hooks="horovod_hooks"),
    FrameworkSpec(name="ignite", hooks="ignite_totals", trainers={"Engine": "engine_length"}, on_torch=True),
    FrameworkSpec(
        name="stable_baselines3",
        hooks="stable_baselines3_totals",
        trainers={"OnPolicyAlgorithm": "on_policy_length", "OffPolicyAlgorithm": "off_policy_length"},
        on_torch=True,
    ),
    FrameworkSpec(
        name="tianshou", hooks="tianshou_totals", trainers={"OffPolicyTrainer": "trainer_length"}, on_torch=True
    ),
    TQDM,
    FrameworkSpec(name="diffusers", on_torch=True),
    FrameworkSpec(name="fastai", on_torch=True, telling=frozenset(("fit_one_cycle",))),
    FrameworkSpec(name="timm", on_torch=True),
)
BY_NAME = {one.name: one for one in FRAMEWORKS}
PACKAGES = frozenset(package for one in FRAMEWORKS for package in one.packages)
