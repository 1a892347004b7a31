"""What `costgpu estimate` tells of public scripts, against what they really do.

    python -m benchmarks.scripts_survey FOLDER --python INTERPRETER [--only TEXT] [--again] [--run] [--table]

FOLDER holds the repositories of scripts.csv, each at its commit, as OWNER+NAME. Every script runs unmodified, under
`costgpu estimate --json` that stops after a few steps, long before the end. The answers are kept in FOLDER/survey, so
that a survey can be continued; the tables of all of them are written to benchmarks/scripts.md. Of rows whose answers are
no longer kept, the table stays as it is.

`real` is what a run to the end did, counted by something else than the probe (`counted` says by what). Several numbers
are the same work in several units, e.g. batches and items. `beside` is how often the run evaluated or saved between two
steps, or after the last: what comes right after one another is one, and what comes with every step is part of it. A row
that has it, and of which six steps do not tell the total, is asked of once more with the measurement that people get.
With --run, scripts run to their end right after they are asked of as people do, and the seconds of those that the
measurement did not see end are kept.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import scripts_beside

HERE = Path(__file__).parent
LIMIT_SECONDS = 240.0
"""Time after which an estimate is given up, as an answer that never came."""
STEPS, MEASURE_FOR, START_LIMIT = "6", "10s", "100s"
"""Where a measurement is cut."""
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
TITLE = "# Public scripts: what is told, and what they do"
BESIDE_TITLE = "## Rows that also have what stands beside the steps"
TOLERANCE = 0.05
"""Error that an approximate total may have."""
CERTAIN = ("exact", "approximate", "upper_bound")
"""Kinds of totals that claim a number."""
WHOLE_JOB = "the whole job"
"""What an answer is for where the length of the job is known."""
KINDS = (*CERTAIN, "timed", "unbounded", "unknown")
"""Kinds of totals, from the best to the worst."""
SAME_UNIT = {
    **dict.fromkeys(("step", "update", "iteration"), "step"),
    **dict.fromkeys(("call", "batch", "prompt batch"), "pass"),
    **dict.fromkeys(("text", "sentence", "image", "row", "item", "prompt", "sequence"), "item"),
    **dict.fromkeys(("round", "tree"), "round"),
    **dict.fromkeys(("fit", "search fit"), "fit"),
}
"""Names of units that mean the same."""


@dataclass(frozen=True, slots=True)
class Script:
    """One row of scripts.csv."""

    repository: str  # owner/name
    commit: str
    path: str  # script in the repository, or ``-m module``
    arguments: str
    folder: str  # folder to run in, in the repository
    kind: str
    framework: str
    task: str  # ``training`` or ``inference``
    prepare: str  # recipes of stand_in_data, RECIPE:FOLDER, separated by spaces
    environment: str  # NAME=VALUE, separated by spaces
    real: str  # numbers separated by ``|``, or ``unbounded``; empty while it is not known
    unit: str
    counted: str
    beside: str = ""  # what stands beside the steps in the whole job, or ``none``; empty while it is not known

    @property
    def name(self) -> str:
        """Its name for people, without its arguments."""
        return f"{self.repository} {self.path}"

    @property
    def root(self) -> str:
        """Name of the folder of its repository."""
        return self.repository.replace("/", "+")

    @property
    def key(self) -> str:
        """Name of its answer's file."""
        mark = hashlib.sha256(f"{self.path} {self.arguments} {self.environment}".encode()).hexdigest()[:6]
        return f"{self.root}+{self.path.removeprefix('-m ').replace('/', '_')}+{mark}".replace(" ", "_")

    def totals(self) -> list[tuple[float, str]]:
        """Return the real totals and their units; the last unit holds for the totals after it."""
        numbers, units = self.real.split("|"), self.unit.split("|")
        units += [units[-1]] * (len(numbers) - len(units))
        return [(float(real), unit) for real, unit in zip(numbers, units, strict=True)]

    def command(self) -> list[str]:
        """Return the script and its arguments, seen from `folder`."""
        where = Path(self.folder)
        if self.path.startswith("-m "):
            return ["-m", self.path.removeprefix("-m "), *shlex.split(self.arguments)]
        if self.path.startswith("torchrun "):
            return [*shlex.split(self.path), *shlex.split(self.arguments)]
        return [os.path.relpath(self.path, where), *shlex.split(self.arguments)]

    def variables(self) -> dict[str, str]:
        """Environment of its process."""
        own = dict(pair.split("=", 1) for pair in shlex.split(self.environment))
        return {**os.environ, **ENVIRONMENT, **own}


@dataclass(frozen=True, slots=True)
class Answer:
    """What costgpu told of one script."""

    script: Script
    kind: str  # a kind of total, or ``refused 24``
    counts: dict[str, float]  # what it told, by unit: steps, and the items in them
    batch: float  # items of a step, as far as the last step may have fewer; 0 unless it told items
    inference: bool  # whether it was told as inference
    ended: bool  # whether the script ended while it was measured
    how: str
    seconds: float
    version: str  # commit of costgpu
    date: str
    beside: dict[str, float] | None = None  # how often each kind of work beside the steps comes; None if not known
    here: dict[str, float] | None = None  # seconds of the whole job on the machine that measured: value, low and high
    real_seconds: float | None = None  # seconds of its run to the end on that machine; None if it was not run
    at_most: frozenset[str] = frozenset()  # kinds of work beside the steps that come at most so often
    named: str = ""  # what it says of work that is not in its figures, as a sentence
    whole: bool = False  # whether it was measured as people do, and not cut after a few steps

    @property
    def told(self) -> str:
        """Its counts for people."""
        return " = ".join(f"{number(count)} {unit}" for unit, count in self.counts.items())

    @property
    def verdict(self) -> str:
        """``right``, ``not known``, ``refused``, ``wrong``, ``invented`` (certain, and it is not), or ``no truth``."""
        script = self.script
        if not script.real:
            return "no truth"
        if self.kind.startswith("refused"):
            return "right" if script.real == self.kind else "refused"
        certain = self.kind in CERTAIN
        if script.real in ("timed", "unbounded"):
            return "invented" if certain else "right" if self.kind in (script.real, "unknown") else "wrong"
        if self.kind == "unknown":
            return "not known" if self.inference == (script.task == "inference") else "wrong"
        if self.inference != (script.task == "inference"):
            return "invented" if certain else "wrong"
        told = {unit: self._agrees(unit, count) for unit, count in self.counts.items()}
        if True in told.values() and False not in told.values():
            return "right"
        return "invented" if certain else "wrong"

    def _agrees(self, unit: str, count: float) -> bool | None:
        """Return whether one of its counts is a real one in the same unit; None where that unit was not counted."""
        reals = [real for real, name in self.script.totals() if SAME_UNIT.get(unit, unit) == SAME_UNIT.get(name, name)]
        if not reals:
            return None
        slack = self.batch if SAME_UNIT.get(unit) == "item" else 0.0
        if self.kind == "upper_bound":
            return any(count >= real for real in reals)
        if self.kind == "approximate":
            slack += TOLERANCE * count
        return any(abs(count - real) <= slack for real in reals)


def load(path: Path) -> list[Script]:
    """Return the rows of scripts.csv."""
    with path.open(newline="") as file:
        return [Script(**row) for row in csv.DictReader(file)]


def prepare(script: Script, where: Path, interpreter: str) -> None:
    """Make the data that the script reads."""
    for recipe in script.prepare.split():
        name, folder = recipe.split(":", 1)
        maker = [interpreter, str(HERE / "stand_in_data.py"), name, folder]
        subprocess.run(maker, cwd=where, check=True, stdout=subprocess.DEVNULL)


def version() -> str:
    """Return the last commit that changed costgpu."""
    command = ["git", "log", "-1", "--format=%h", "--", "../costgpu"]
    return subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout.strip()


def ask(script: Script, corpus: Path, interpreter: str, *, whole: bool = False) -> dict[str, Any]:
    """Run costgpu on one script; its document, exit code, error and seconds.

    Args:
        whole: Whether to measure as people do, and not to cut it after a few steps.
    """
    where = corpus / script.root / script.folder
    prepare(script, where, interpreter)
    command = [sys.executable, "-m", "costgpu", "estimate", "--json", "--python", interpreter, "--workdir", str(where)]
    if not whole:
        command += ["--steps", STEPS, "--measure-for", MEASURE_FOR, "--start-limit", START_LIMIT]
    command += _seen_from(where, script)
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=where,
            env=script.variables(),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        code, out, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, error = 124, "", "no answer"
    document = json.loads(out) if code == 0 else {}
    known = document.get("here") and document["verdict"]["unit"] == WHOLE_JOB
    return {
        "version": version(),
        "date": datetime.now(tz=UTC).date().isoformat(),
        "code": code,
        "seconds": time.monotonic() - began,
        "whole": whole,
        "error": error[-2000:],
        "sentence": document.get("verdict", {}).get("sentence", ""),
        "phases": [
            {
                name: phase.get(name)
                for name in ("label", "total", "unit", "steps_observed", "inference", "gpu", "extras")
            }
            for phase in document.get("workload", {}).get("phases", [])
        ],
        "here": document["here"]["wall_seconds"] if known else None,
        "later": document.get("workload", {}).get("later_phases", document.get("later_phases", [])),
        "ended": document.get("workload", {}).get("ended"),
        "notes": document.get("workload", {}).get("notes", []),
    }


def run(script: Script, corpus: Path, interpreter: str) -> float | None:
    """Run a script to its end; its wall-clock seconds, None if it failed."""
    where = corpus / script.root / script.folder
    prepare(script, where, interpreter)
    quiet, began = subprocess.DEVNULL, time.monotonic()
    command = [interpreter, *_seen_from(where, script)]
    done = subprocess.run(command, check=False, cwd=where, env=script.variables(), stdout=quiet, stderr=quiet)
    return None if done.returncode else time.monotonic() - began


def _seen_from(where: Path, script: Script) -> list[str]:
    first, *rest = script.command()
    return [first if first in ("-m", "torchrun") else str(where / first), *rest]


def read(script: Script, said: dict[str, Any]) -> Answer:
    """Return the total in an answer: the sum of the phases of the script's task, as vague as the vaguest of them."""
    when = {"seconds": said["seconds"], "version": said["version"], "date": said["date"]}
    if said["code"]:
        reason = next((line for line in said["error"].split("\n") if line.startswith("costgpu: ")), "")
        return Answer(script, f"refused {said['code']}", {}, 0.0, inference=False, ended=False, how=reason, **when)
    phases = said["phases"]
    wanted = [phase for phase in phases if bool(phase["inference"]) == (script.task == "inference")]
    mine = wanted or phases
    later = said["later"] if script.task == "training" and wanted else []
    kinds = [phase["total"]["kind"] for phase in mine]
    kinds += ["unknown" for phase in later if phase["steps"] is None]
    kind = max(kinds, key=KINDS.index)
    counts: dict[str, float] = {}
    batch = max((phase["inference"] or {}).get("items_per_step") or 0.0 for phase in mine)
    batch = batch if batch > 1 else 0.0
    if kind in CERTAIN:
        for phase in mine:
            steps, made = phase["total"]["steps"], phase["inference"] or {}
            counts[phase["unit"]] = counts.get(phase["unit"], 0) + steps
            if made.get("items_per_step") and made["item"] != phase["unit"]:
                counts[made["item"]] = counts.get(made["item"], 0) + steps * made["items_per_step"]
        counts[mine[0]["unit"]] += sum(phase["steps"] for phase in later)
    how = " + ".join(phase["total"]["how"] for phase in mine)
    infers = bool(mine[0]["inference"])
    answer = Answer(script, kind, counts, batch, inference=infers, ended=bool(said["ended"]), how=how, **when)
    if script.beside and wanted and kind in CERTAIN:
        real = script.totals()[0][0] if kind == "upper_bound" and script.real else None
        answer = replace(answer, beside=scripts_beside.told(mine, real), at_most=scripts_beside.bounded(mine))
    named = next((note for note in said["notes"] if scripts_beside.names_evaluations(note)), "")
    seconds = {"here": said.get("here"), "real_seconds": said.get("real_seconds")}
    return replace(answer, named=named, whole=said.get("whole", False), **seconds)


def number(value: float | None) -> str:
    """Return a count, with separators."""
    return "" if value is None else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def section(answers: list[Answer]) -> list[str]:
    """Return a summary of answers, by kind and by framework, and the table of all of them."""
    known = [answer for answer in answers if answer.verdict != "no truth"]
    scripts = {answer.script.name for answer in known}
    inference = {answer.script.name for answer in known if answer.script.task == "inference"}
    verdicts = Counter(answer.verdict for answer in known)
    counts = [f"{verdicts[name]} {name}" for name in ("not known", "refused", "wrong", "invented")]
    told = Counter(f"{answer.version} ({answer.date})" for answer in known)
    rows = ", ".join(f"{commit}: {count} rows" for commit, count in told.most_common())
    share = verdicts["right"] / max(len(known), 1)
    summary = (
        f"{len(scripts)} scripts in {len(known)} rows, {len({answer.script.kind for answer in known})} kinds, "
        f"{len({answer.script.framework for answer in known})} frameworks, {len(inference)} scripts of inference: "
        f"**{verdicts['right']} right** ({share:.0%}), {', '.join(counts)}."
    )
    when = f"Asked of costgpu at states of its development, which the history need not hold: {rows}."
    lines = [when, "", summary]
    for title in ("kind", "framework"):
        lines += ["", f"| {title} | rows | right | not right |", "|---|---|---|---|"]
        for name in sorted({getattr(answer.script, title) for answer in known}):
            group = [answer for answer in known if getattr(answer.script, title) == name]
            bad = [answer.verdict for answer in group if answer.verdict != "right"]
            lines.append(f"| {name} | {len(group)} | {len(group) - len(bad)} | {', '.join(bad)} |")
    header = ["script", "kind", "framework", "task", "real", "told", "as", "verdict"]
    cells_of = []
    for answer in known:
        script = answer.script
        ways = ["measured as people do"] * answer.whole + ["it ended within the window"] * answer.ended
        kind = answer.kind + (f" ({', '.join(ways)})" if ways else "")
        cells = [script.name, script.kind, script.framework, script.task, real(script), answer.told, kind]
        cells_of.append([*cells, answer.verdict])
    return [*lines, *scripts_beside.table(header, cells_of)]


def page(answers: list[Answer], before: str) -> str:
    """Return the page benchmarks/scripts.md.

    Rows without ``beside`` as they stand `before`, unless all their answers are kept.
    """
    counted = [answer for answer in answers if answer.script.beside]
    others = [answer for answer in answers if not answer.script.beside]
    first = before.split(f"\n{BESIDE_TITLE}\n", maxsplit=1)[0]
    if len(others) == sum(not script.beside for script in load(HERE / "scripts.csv")):
        about = "Written by `python -m benchmarks.scripts_survey`, which README.md explains."
        first = "\n".join([TITLE, "", about, "", *section(others), ""])
    if not counted:
        return first
    return first + "\n".join(["", BESIDE_TITLE, "", *section(counted), *scripts_beside.section(counted), ""])


def real(script: Script) -> str:
    """Its real totals for people."""
    if script.real[0].isalpha():
        return script.real
    return " = ".join(f"{number(count)} {unit}" for count, unit in script.totals())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, metavar="FOLDER", help="folder of the repositories")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the frameworks of the scripts")
    parser.add_argument("--only", default="", help="part of a repository or path")
    parser.add_argument("--again", action="store_true", help="ask again where there is an answer")
    parser.add_argument("--known", action="store_true", help="only scripts whose real total is known")
    parser.add_argument("--run", action="store_true", help="run what is asked of to its end, and keep its seconds")
    parser.add_argument("--table", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    answers = []
    kept = arguments.corpus.resolve() / "survey"
    kept.mkdir(exist_ok=True)
    for script in load(HERE / "scripts.csv"):
        file = kept / f"{script.key}.json"
        chosen = arguments.only in f"{script.repository} {script.path} {script.arguments}"
        chosen = chosen and (bool(script.real) or not arguments.known)
        if chosen and not arguments.table and (arguments.again or not file.exists()):
            where = (script, arguments.corpus.resolve(), arguments.python)
            said = ask(*where)
            if script.beside and not said["code"] and read(script, said).verdict != "right":
                said = ask(*where, whole=True)
            if arguments.run and not said["code"]:
                timed = said if said["whole"] else ask(*where, whole=True)
                said["here"] = None if timed["ended"] else timed["here"]
                said["real_seconds"] = run(*where)
            file.write_text(json.dumps(said, indent=1))
        if file.exists():
            answer = read(script, json.loads(file.read_text()))
            answers.append(answer)
            if chosen:
                told = f"{answer.told} {answer.kind}"
                print(f"{answer.verdict:9} {script.real:>12} {told:32} {answer.seconds:4.0f} s  {script.name}")
                if answer.verdict != "right":
                    print(f"{'':12}{answer.how[:200]}", flush=True)
                if script.beside:
                    told = scripts_beside.words(answer.beside, answer.at_most, answer.named)
                    print(f"{'':12}beside: {scripts_beside.verdict(answer)}; {script.beside}, told {told}")
    written = HERE / "scripts.md"
    written.write_text(page(answers, written.read_text()))
    print(Counter(answer.verdict for answer in answers))


if __name__ == "__main__":
    main()
