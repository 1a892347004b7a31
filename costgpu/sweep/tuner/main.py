"""The program that a sweep's machine runs.

``SPEC`` tries all settings of that file, ``launch`` becomes one script, ``match`` looks for the metric in its lines.

Exit codes: 0 if at least one trial has a value of the metric, 1 if every trial failed, 2 if the metric never appeared, 3 if
Ray is missing or has failed, 143 if the sweep was ended from outside.
"""

from __future__ import annotations

import json
import logging
import os
import random
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Optional

from .launch import launch
from .matcher import answer_lines
from .metric import for_scheduler
from .records import Records
from .trial_process import Event, TrialProcess

WORK_VARIABLE = "COSTGPU_OUTPUTS"  # the folder of the files that were sent, on each machine
NODES_SECONDS = 180.0  # for the other machines to join
STORE_BYTES = 256 * 2**20  # Ray's store: pieces of files travel through it, and nothing else
QUEUE_LENGTH = 64  # pieces of files, and events, on their way
EXIT_NO_RAY = 3
EXIT_CODES = {"failed": 1, "no_metric": 2, "broken": EXIT_NO_RAY, "ended": 128 + signal.SIGTERM}


class Sweep:
    """One sweep, from Ray's start to its end.

    Attributes:
        stop: Why no trial is to go on; empty as long as they may.
    """

    def __init__(self, spec: Dict[str, Any], work: str) -> None:
        self.spec, self.work = spec, work
        self.settings: List[Dict[str, str]] = spec["settings"]
        self.records = Records(os.path.join(work, spec["folder"]), self.settings)
        self.stop = ""
        self.detail = ""

    def run(self) -> int:
        """Everything; returns the exit code."""
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
            self._connect(ray, scratch)
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

    def _connect(self, ray: Any, scratch: str) -> None:
        if os.environ.get("RAY_ADDRESS"):
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
            until = time.monotonic() + NODES_SECONDS
            while len(_living(ray)) < self.spec["nodes"] and time.monotonic() < until and not self.stop:
                time.sleep(0.5)
            return
        ray.init(
            _node_ip_address="127.0.0.1",  # nobody else is to reach it: whoever does may run anything
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=STORE_BYTES,
            _temp_dir=os.path.join(scratch, "r"),
        )

    def _end_from_outside(self, _number: int, _frame: Any) -> None:
        self.stop = self.stop or "ended"

    def _tune(self, ray: Any, scratch: str) -> None:
        from ray import tune
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what a trial's end means is told in our words
        ray.cloudpickle.register_pickle_by_value(sys.modules[__package__])
        here = ray.get_runtime_context().get_node_id()
        home = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
        events = Queue(maxsize=QUEUE_LENGTH, actor_options=home)
        resources = per_trial(self.spec, [node["Resources"] for node in _living(ray)])
        writer = threading.Thread(target=self._write, args=(events,), daemon=True)
        writer.start()
        try:
            tuner = tune.Tuner(
                tune.with_resources(trainable(tune, self.spec, events, here), resources),
                param_space={"trial": tune.grid_search(order(self.spec))},
                tune_config=tune.TuneConfig(
                    scheduler=scheduler(self.spec), max_concurrent_trials=self.spec["concurrent"]
                ),
                run_config=tune.RunConfig(
                    name="sweep",
                    storage_path=os.path.join(scratch, "tune"),
                    stop=_stopper(tune, self),
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=1),  # of Ray itself: a machine that is lost, say
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # those of the script are its own
                ),
            )
            tuner.fit()
        finally:
            try:
                events.put({"event": "over"}, timeout=30.0)
                writer.join()
            except Exception as error:  # Ray is gone: what was told so far is written
                sys.stderr.write("Ray has ended unexpectedly: %s\n" % error)

    def _write(self, events: Any) -> None:
        """Write events until the last one; decides whether the metric can still appear."""
        while True:
            try:
                event: Event = events.get()
            except Exception as error:  # the process that holds them is gone: nothing more would be heard of any trial
                sys.stderr.write("Ray has lost the events of the trials: %s\n" % error)
                self.stop = self.stop or "broken"
                return
            if event["event"] == "over":
                return
            try:
                self.records.take(event, ending=bool(self.stop))
            except OSError as error:
                sys.stderr.write("%s cannot be written: %s\n" % (event.get("path", "progress"), error))
            if event["event"] == "end" and event["status"] == "no_metric" and not self._any_value():
                self.stop = self.stop or "no_metric"
                self.detail = event["tail"]

    def _any_value(self) -> bool:
        return any(trial.get("reports") for trial in self.records.trials)

    def _conclude(self) -> int:
        for number, trial in enumerate(self.records.trials, start=1):
            if trial["status"] == "running":
                self.records.lost(number)
        trials = self.records.trials
        failed = [trial for trial in trials if trial["status"] == "failed"]
        outcome = self.stop or ("failed" if len(failed) == len(trials) else "finished")
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


def _living(ray: Any) -> List[Dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


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


def order(spec: Dict[str, Any]) -> List[int]:
    """Numbers of the trials in the order in which they start.

    ASHA compares a trial with those before it: if a grid went from the worst to the best, none would be ended early. So
    with it the order is a random one, and the same each time.
    """
    numbers = list(range(1, len(spec["settings"]) + 1))
    if spec["asha"]:
        random.Random(0).shuffle(numbers)
    return numbers


def scheduler(spec: Dict[str, Any]) -> Any:
    """ASHA if it is wanted; else every trial runs to its own end."""
    if not spec["asha"]:
        return None
    from ray.tune.schedulers import ASHAScheduler

    asha = spec["asha"]
    return ASHAScheduler(
        time_attr="reports",
        metric="value",
        mode=spec["mode"],
        max_t=asha["most"] or 10**9,
        grace_period=asha["grace"],
        reduction_factor=asha["factor"],
    )


def _stopper(tune: Any, sweep: Sweep) -> Any:
    class Stop(tune.Stopper):  # type: ignore[misc]
        """Ends all trials once the sweep says so."""

        def __call__(self, *_: Any) -> bool:
            return False

        def stop_all(self) -> bool:
            return bool(sweep.stop)

        def __deepcopy__(self, memo: Any) -> Any:
            return self

        def __reduce__(self) -> Any:  # Tune saves its own state, of which nothing is needed
            return (dict, ())

    return Stop()


def trainable(tune: Any, spec: Dict[str, Any], events: Any, home: str) -> Any:
    """Return the class whose objects Ray Tune makes, one for each trial that runs, where there is room for it.

    Args:
        home: Ray's id of the machine with the tuner.
    """

    class ScriptTrial(tune.Trainable):  # type: ignore[misc]
        """A trial that runs the user's script."""

        def setup(self, config: Dict[str, Any]) -> None:
            import ray

            number = config["trial"]
            self.process = TrialProcess(
                spec,
                number,
                spec["argv"] + spec["arguments"][number - 1],
                os.environ.get(WORK_VARIABLE) or os.getcwd(),
                events.put,
                remote=ray.get_runtime_context().get_node_id() != home,
                host=socket.gethostname(),
            )
            self.process.start()

        def step(self) -> Dict[str, Any]:
            result = self.process.step()
            if "value" in result:
                result["value"] = for_scheduler(result["value"], spec["mode"])
            return result

        def cleanup(self) -> None:
            self.process.end()

    return ScriptTrial


def main(argv: Optional[List[str]] = None) -> None:
    """Entry point of the file that travels."""
    words = sys.argv[1:] if argv is None else argv
    if words[0] == "launch":
        launch(int(words[1]), words[2:])
    if words[0] == "match":
        answer_lines(words[1])
    with open(words[0], encoding="utf-8") as stream:
        spec = json.load(stream)
    code = Sweep(spec, os.environ.get(WORK_VARIABLE) or os.getcwd()).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not through what Ray does at exit: all of it is over
