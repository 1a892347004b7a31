"""The program that a sweep's machine runs.

It lets Ray Tune try what the file says that it is called with.

Exit codes: 0 if at least one trial has a value of the metric, 1 if every trial failed, 2 if the metric never appeared, 3 if
Ray is missing or has failed, 143 if the sweep was ended from outside.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from .records import Records
from .trial_process import TrialProcess

WORK_VARIABLE = "COSTGPU_OUTPUTS"  # the folder of the files that were sent, on each machine
STORE_BYTES = 256 * 2**20  # Ray's store: pieces of files travel through it, and nothing else
EXIT_NO_RAY = 3
EXIT_CODES = {"failed": 1, "no_metric": 2, "broken": EXIT_NO_RAY, "ended": 128 + signal.SIGTERM}


class SweepRun:
    """One sweep, from Ray's start to its end.

    Attributes:
        stop: Why no trial is to go on; empty as long as they may.
    """

    def __init__(self, spec: Dict[str, Any], work: str) -> None:
        self.spec, self.work = spec, work
        self.records = Records(os.path.join(work, spec["folder"]), list(spec["space"]), spec["trials"])
        self.stop = ""
        self.detail = ""

    def run(self) -> int:
        """Run all trials, and return the exit code."""
        quiet_ray()
        try:
            import ray
            import ray.tune
        except ImportError as error:
            sys.stderr.write("Ray Tune cannot be imported by %s: %s\n" % (sys.executable, error))
            return EXIT_NO_RAY
        short = "/tmp" if os.path.isdir("/tmp") else None  # the paths of Ray's sockets have at most 107 characters
        scratch = tempfile.mkdtemp(prefix="costgpu-ray-", dir=short)
        try:
            if os.environ.get("RAY_ADDRESS"):
                ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
            else:
                ray.init(
                    _node_ip_address="127.0.0.1",  # nobody else is to reach it: whoever does may run anything
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    object_store_memory=STORE_BYTES,
                    _temp_dir=os.path.join(scratch, "r"),
                )
            signal.signal(signal.SIGTERM, self._end_from_outside)
            signal.signal(signal.SIGINT, self._end_from_outside)
            self._tune(ray, scratch)
        except Exception as error:  # of Ray; what was tried so far is kept
            sys.stderr.write("Ray has failed: %s: %s\n" % (type(error).__name__, error))
            self.stop = self.stop or "broken"
        finally:
            ray.shutdown()
            shutil.rmtree(scratch, ignore_errors=True)
        return self._conclude()

    def _end_from_outside(self, _number: int, _frame: Any) -> None:
        self.stop = self.stop or "ended"

    def _tune(self, ray: Any, scratch: str) -> None:
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what a trial's end means is told in our words
        ray.cloudpickle.register_pickle_by_value(sys.modules[__package__.partition(".")[0]])  # with `portable`
        spec, asha, scheduler = self.spec, self.spec["asha"], None
        if asha:
            scheduler = ASHAScheduler(
                time_attr="reports",
                metric="value",
                mode=spec["mode"],
                max_t=asha["most"] or 10**9,
                grace_period=asha["grace"],
                reduction_factor=asha["factor"],
            )
        search = tune.search.BasicVariantGenerator(random_state=spec["seed"] % 2**32, max_concurrent=spec["concurrent"])
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        watch = _watch(tune, self)
        tune.Tuner(
            tune.with_resources(trainable(ray, spec), per_trial(spec, nodes)),
            param_space={name: getattr(tune, said[0])(*said[1:]) for name, said in spec["space"].items()},
            tune_config=tune.TuneConfig(num_samples=spec["draws"], search_alg=search, scheduler=scheduler),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=os.path.join(scratch, "tune"),
                stop=watch,
                callbacks=[watch],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=1),  # of Ray itself: a machine that is lost, say
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # those of the script are its own
            ),
        ).fit()

    def take_end(self, number: int, result: Dict[str, Any]) -> None:
        """Record the end of a trial; the first one without the metric ends the sweep."""
        status = result.get("status") or ("ended" if self.stop else "stopped")
        self.records.end(number, status, result.get("tail", ""))
        if status == "no_metric" and not any(trial.get("reports") for trial in self.records.trials):
            self.stop = self.stop or "no_metric"
            self.detail = result["tail"]

    def _conclude(self) -> int:
        for number, trial in enumerate(self.records.trials, start=1):
            if trial["status"] == "running":
                self.records.end(number, "ended")
        statuses = {trial["status"] for trial in self.records.trials}
        outcome = self.stop or ("failed" if statuses == {"failed"} else "finished")
        self.records.write({"event": "over", "outcome": outcome, "detail": self.detail, "at": time.time()})
        self.records.close()
        if outcome == "no_metric":
            sys.stderr.write("A trial has come to its end without a line that matches %s.\n" % self.spec["metric"])
        return EXIT_CODES.get(outcome, 0)


def quiet_ray() -> None:
    """Set what Ray reads from the environment as it is imported."""
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_CHDIR_TO_TRIAL_DIR="0",
        RAY_AIR_NEW_OUTPUT="0",
        RAY_memory_monitor_refresh_ms="0",  # it would end our process and not the script that needs the memory
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1",
        TUNE_DISABLE_STRICT_METRIC_CHECKING="1",
        TUNE_DISABLE_SIGINT_HANDLER="1",
    )
    if not os.environ.get("RAY_ADDRESS"):  # our own Ray, and others may be on this machine
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))


def per_trial(spec: Dict[str, Any], nodes: List[Dict[str, float]]) -> Dict[str, float]:
    """CPUs and GPUs of one trial: its share of a machine.

    Args:
        spec: With ``concurrent`` trials in all, and ``gpus`` of each, a fraction where several share one.
        nodes: What each machine has, in Ray's words.
    """
    slots = -(-spec["concurrent"] // max(1, len(nodes)))
    cpus = min(node.get("CPU", 1.0) for node in nodes) / slots
    resources = {"cpu": float(int(cpus)) if cpus >= 1 else round(cpus - 0.00005, 4)}
    if spec["gpus"] and min(node.get("GPU", 0.0) for node in nodes) > 0:
        resources["gpu"] = spec["gpus"]
    return resources


def number_of(trial_id: str) -> int:
    """Return the number of a trial from 1: Tune's ``1f7fa_00003`` is the fourth."""
    return int(trial_id.rpartition("_")[2]) + 1


def _watch(tune: Any, sweep: SweepRun) -> Any:
    class Watch(tune.Stopper, tune.Callback):  # type: ignore[misc]
        """Writes down what Tune tells of the trials, and ends all of them once the sweep says so.

        It belongs to this process: Tune copies it with its own state, and saves that, of which nothing is needed.
        """

        def __deepcopy__(self, memo: Any) -> Any:
            return self

        def __reduce__(self) -> Any:
            return (dict, ())

        def __call__(self, *_: Any) -> bool:
            return False

        def stop_all(self) -> bool:
            return bool(sweep.stop)

        def on_trial_start(self, *_: Any, trial: Any, **__: Any) -> None:
            setting = {name: str(trial.config[name]) for name in sweep.spec["space"]}
            sweep.records.start(number_of(trial.trial_id), setting)

        def on_trial_result(self, *_: Any, trial: Any, result: Any, **__: Any) -> None:
            sweep.records.report(number_of(trial.trial_id), result)

        def on_trial_complete(self, *_: Any, trial: Any, **__: Any) -> None:
            sweep.take_end(number_of(trial.trial_id), trial.last_result)

        def on_trial_error(self, *_: Any, trial: Any, **__: Any) -> None:
            tail = "The machine or the process that ran this trial was lost."
            sweep.records.end(number_of(trial.trial_id), "failed", tail)

    return Watch()


def trainable(ray: Any, spec: Dict[str, Any]) -> Any:
    """Return the class whose objects Ray Tune makes, one for each trial that runs, where there is room for it.

    A class and not a function: only its `cleanup` gives a script time to save when Tune ends the trial.
    """
    from ray import tune
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    home = ray.get_runtime_context().get_node_id()

    @ray.remote(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(home, soft=False))  # type: ignore[untyped-decorator]
    def store(path: str, data: bytes, mode: int, first: bool) -> None:
        path = os.path.join(os.environ.get(WORK_VARIABLE) or os.getcwd(), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb" if first else "ab") as stream:
            stream.write(data)
        os.chmod(path, mode)

    class ScriptTrial(tune.Trainable):  # type: ignore[misc]
        """A trial that runs the user's script."""

        def setup(self, config: Dict[str, Any]) -> None:
            is_home = ray.get_runtime_context().get_node_id() == home
            self.process = TrialProcess(
                spec,
                number_of(self.trial_id),
                {name: str(config[name]) for name in spec["space"]},
                os.environ.get(WORK_VARIABLE) or os.getcwd(),
                None if is_home else lambda *piece: ray.get(store.remote(*piece)),
            )
            self.process.start()

        def step(self) -> Dict[str, Any]:
            return self.process.step()

        def cleanup(self) -> None:
            self.process.end()

    return ScriptTrial


def main(argv: Optional[List[str]] = None) -> None:
    """Entry point of the file that travels."""
    words = sys.argv[1:] if argv is None else argv
    with open(words[0], encoding="utf-8") as stream:
        spec = json.load(stream)
    code = SweepRun(spec, os.environ.get(WORK_VARIABLE) or os.getcwd()).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not through what Ray does at exit: all of it is over
