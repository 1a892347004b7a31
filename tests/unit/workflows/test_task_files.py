"""Task files of SkyPilot and dstack become requests, or are refused in a sentence: nothing in them is ignored.

One file of more than 400 lines: both formats are held to the same rules.
"""

import random
import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import UsageError
from costgpu.workflows.runs.request import RunRequest, check
from costgpu.workflows.task_files import read_task
from costgpu.workflows.task_files.read_task import with_task_file
from tests.cli.here import told
from tests.unit.house.test_words_are_real import unreal
from tests.unit.workflows.reporter import ListReporter

KEYS = tomllib.loads(Path(read_task.__file__).with_name("keys.toml").read_text())


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "package").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    return folder


def asked(text: str, file: str = "task.yaml", **options: Any) -> RunRequest:
    Path(file).write_text(text)
    return with_task_file(RunRequest(command=(file,), **options), ListReporter())


def refusal(text: str, file: str = "task.yaml", **options: Any) -> str:
    with pytest.raises(UsageError) as refused:
        asked(text, file, **options)
    return f"{refused.value.message} {refused.value.hint}"


SKY = """
name: tuning
resources:
  infra: aws/us-east-1
  accelerators: A100:8
  cpus: 8+
  memory: 32+
  use_spot: true
  disk_size: 256
  labels: {team: nlp}
  autostop: {idle_minutes: 5, down: true}
num_nodes: 2
workdir: .
envs:
  LR: 0.10
  TOKEN: null
secrets:
  KEY: abc
setup: pip install -r requirements.txt
run: |
  # the only line
  python train.py \\
    --epochs 3
"""


def test_a_task_of_skypilot(project: Path) -> None:
    found = asked(SKY)
    assert found.command == ("python", str(project / "train.py"), "--epochs", "3")
    assert (found.workdir, found.name, found.nodes, found.launcher) == (str(project), "tuning", 2, "none")
    assert (found.infra, found.gpus, found.cpus, found.memory) == (("aws/us-east-1",), "A100:8", "8+", "32+")
    assert (found.spot, found.disk_gib, found.tags) == (True, 256, ("team=nlp",))
    assert (found.setup, found.estimate) == ("pip install -r requirements.txt", True)
    assert found.task_env == ("LR=0.10", "TOKEN", "KEY=abc")


DSTACK = """
type: task
name: tuning
nodes: 1
python: "3.12"
env:
  - TOKEN
  - LR=0.1
files: [train.py]
commands:
  - pip install -r requirements.txt
  - python train.py
resources: {cpu: 8.., memory: 32GB.., gpu: 'A100:80GB:2', disk: 200GB.., shm_size: 16GB}
spot_policy: on-demand
max_duration: 2h
stop_duration: 5m
backends: [aws]
regions: [us-east-1, eu-west-1]
idle_duration: 30m
tags: {team: nlp}
"""


def test_a_task_of_dstack(project: Path) -> None:
    found = asked(DSTACK, ".dstack.yml")
    assert found.command == ("python", str(project / "train.py"))
    assert (found.setup, found.workdir, found.name) == ("pip install -r requirements.txt", str(project), "tuning")
    assert (found.gpus, found.cpus, found.memory, found.disk_gib) == ("A100-80GB:2", "8..", "32..", 200)
    assert found.infra == ("aws/us-east-1", "aws/eu-west-1")
    assert (found.spot, found.max_duration, found.grace, found.idle_duration) == (False, "2h", "5m", None)
    assert found.task_env == ("TOKEN", "LR=0.1")
    assert found.tags == ("team=nlp",)


RENTED = "run: python train.py\nresources: "
DSTACK_RENTED = "type: task\ncommands: [python train.py]\nresources: "


@pytest.mark.parametrize(
    ("resources", "field", "wanted"),
    [
        *(
            (f"{DSTACK_RENTED}{{gpu: {gpu}}}", "gpus", wanted)
            for gpu, wanted in [
                ("24GB", "24GB:1"),
                ("'24GB..:2'", "24GB:2"),
                ("'nvidia:24GB:1..2'", "24GB:1..2"),
                ("'A100,L4'", "A100:1,L4:1"),
                ("'H100:80GB:8'", "H100-80GB:8"),
                ("'L4:4GB'", "L4:1"),
                ("'A100:60GB..'", "A100-80GB:1"),
                ("{name: [A100, H100], memory: 60GB.., count: 2}", "A100-80GB:2,H100:2"),
                ("'V100:20GB:1..2'", "V100-32GB:1..2"),
                ("2", "1GB:2"),
                ("0", "none"),
                ("{name: [A100, H100], count: 2}", "A100:2,H100:2"),
            ]
        ),
        *(
            (f"{RENTED}{{accelerators: {accelerators}}}", "gpus", wanted)
            for accelerators, wanted in [
                ("A100:8", "A100:8"),
                ("{A100: 8}", "A100:8"),
                ("{A100:1, L4:1}", "A100:1,L4:1"),
                ("[A100:1, L4]", "A100:1,L4:1"),
                ("A100", "A100:1"),
                ("{A100: }", "A100:1"),
                ("'A100, L4:2'", "A100:1,L4:2"),
                ("null", None),
            ]
        ),
        (DSTACK_RENTED + "{memory: 1TB..}", "memory", "1024.."),
        (RENTED + "{cloud: AWS}", "infra", ("aws",)),
        (RENTED + "{cloud: gcp, region: us-central1}", "infra", ("gcp/us-central1",)),
        (RENTED + "{region: us-east-1}", "infra", ("us-east-1",)),
        (RENTED + "{infra: aws/*}", "infra", ("aws",)),
        (RENTED + "{infra: '*/us-east-1'}", "infra", ("us-east-1",)),
    ],
)
def test_which_machine(resources: str, field: str, wanted: object) -> None:
    assert getattr(asked(resources), field) == wanted


def test_regions_of_dstack_are_those_of_its_backends() -> None:
    text = "type: task\ncommands: [ls]\nbackends: [aws, gcp]\nregions: [us-east-1, us-central1]"
    assert asked(text).infra == ("aws/us-east-1", "gcp/us-central1")
    assert asked(f"{text}\n".replace("us-central1", "mars-1")).infra == ("aws/us-east-1", "aws/mars-1", "gcp/mars-1")


class TestWhatRuns:
    def test_a_module(self) -> None:
        assert asked("run: python -m package --lr 1").command == ("python", "-m", "package", "--lr", "1")

    def test_a_launcher_starts_its_own_ranks(self, project: Path) -> None:
        found = asked("run: torchrun --nproc-per-node 2 train.py\nnum_nodes: 2")
        assert found.command[-1] == str(project / "train.py")
        assert found.launcher is None

    @pytest.mark.parametrize(
        "run",
        [
            "python train.py --lr $LR",
            "cd package && python train.py",
            "git clone somewhere x\npython train.py",
            "python made_on_the_machine.py",
            "uv run train.py",
            "./train.sh",
            "python 'train.py",
        ],
    )
    def test_all_else_is_for_the_shell(self, run: str) -> None:
        lines = "".join(f"  {line}\n" for line in run.splitlines())
        found = asked(f"envs: {{LR: 1}}\nrun: |\n{lines}")
        assert found.command[:2] == ("bash", "-c")
        assert found.command[2].strip() == run
        assert not found.estimate
        assert found.gpus == "none"

    def test_variables_that_the_tool_would_set(self) -> None:
        text = """run: |
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=${SKYPILOT_NODE_RANK} --master_addr=$MASTER_ADDR train.py
"""
        one, two = asked(text), asked(text, nodes=2)
        assert "export SKYPILOT_NUM_NODES=1\nexport SKYPILOT_NODE_RANK=0\nMASTER_ADDR=127.0.0.1\n" in one.command[2]
        assert "export SKYPILOT_NUM_NODES=$WORLD_SIZE\nexport SKYPILOT_NODE_RANK=$RANK\n" in two.command[2]
        assert "MASTER_ADDR=$MASTER_ADDR\n" in two.command[2]
        assert "head=127.0.0.1" in asked('run: head=`echo "$SKYPILOT_NODE_IPS" | head -1`').command[2]

    def test_a_variable_that_nobody_sets(self) -> None:
        assert "run names SKYPILOT_CLUSTER_INFO" in refusal("run: echo $SKYPILOT_CLUSTER_INFO")
        assert "names DSTACK_NODES_IPS" in refusal("type: task\nnodes: 2\ncommands: [echo $DSTACK_NODES_IPS]")
        assert "${{ run.args }}" in refusal("type: task\ncommands: ['python train.py ${{ run.args }}']")
        assert "~/sky_workdir" in refusal("run: python train.py\nsetup: ls ~/sky_workdir")
        assert asked("envs: {SKYPILOT_X: 1}\nrun: echo $SKYPILOT_X").command == ("bash", "-c", "echo $SKYPILOT_X")

    def test_the_id_of_a_job_is_another_one_each_time(self) -> None:
        first, second = (asked("run: echo $SKYPILOT_TASK_ID").command[2] for _ in range(2))
        assert re.fullmatch(r"export SKYPILOT_TASK_ID=[0-9a-f]{12}\necho \$SKYPILOT_TASK_ID", first)
        assert first != second

    def test_commands_end_with_the_first_that_fails(self) -> None:
        found = asked("type: task\nworking_dir: data\ncommands: [ls, python train.py]")
        assert found.command[2] == "cd data || exit\n{ ls\n} &&\n{ python train.py\n}"

    def test_a_set_up_for_bash(self) -> None:
        assert asked("run: python train.py\nsetup: |\n  a\n  b\n").setup == "bash -c 'a\nb'"

    @pytest.mark.parametrize("file", ["train.py", "package/ranks.py", "inner.sh"])
    def test_variables_that_a_program_reads(self, project: Path, file: str) -> None:
        (project / file).write_text("# SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES SKYPILOT_OTHER")
        found = asked("run: python train.py\nnum_nodes: 2")
        exports = "export SKYPILOT_NODE_RANK=$RANK\nexport SKYPILOT_NUM_NODES=$WORLD_SIZE\n"
        assert found.command == ("bash", "-c", f"{exports}python train.py")
        assert (found.launcher, found.estimate) == ("none", False)
        given = "envs: {SKYPILOT_NODE_RANK: 1, SKYPILOT_NUM_NODES: 1}\nrun: python train.py"
        assert asked(given).command == ("python", str(project / "train.py"))
        assert "names SKYPILOT_NODE_RANK" in refusal("run: torchrun train.py\nnum_nodes: 2")
        (project / file).write_text("# DSTACK_NODES_IPS")
        assert "names DSTACK_NODES_IPS" in refusal("type: task\nnodes: 2\ncommands: [bash inner.sh]")


class TestTheCommandLineWins:
    def test_options(self) -> None:
        found = asked(SKY, gpus="L4", spot=False, nodes=1, infra=("gcp",), name="mine", setup="")
        assert (found.gpus, found.cpus, found.memory, found.spot) == ("L4", None, None, False)
        assert (found.nodes, found.infra, found.name, found.setup) == (1, ("gcp",), "mine", "")

    def test_variables(self, project: Path) -> None:
        (project / "job.env").write_text("TOKEN=fromfile\n")
        found = asked(SKY, env=("LR=1",), env_file="job.env")
        assert found.task_env == ("KEY=abc",)

    def test_what_it_replaces_is_not_looked_at(self) -> None:
        text = "run: python train.py\nresources: {infra: azure, accelerators: tpu-v5e, memory: much}"
        assert asked(text, infra=("aws",), gpus="L4").infra == ("aws",)
        assert asked(text, infra=("local",)).gpus is None

    def test_this_machine_is_as_it_is(self) -> None:
        found = asked(SKY, infra=("local",))
        assert not any((found.gpus, found.cpus, found.memory, found.spot, found.disk_gib, found.tags))
        check(found)

    def test_values_in_the_file_are_not_there_later(self) -> None:
        found = asked("run: python train.py\nenvs: {LR: 1}")
        with pytest.raises(UsageError, match=r"^LR=\.\.\. is stored nowhere"):
            check(replace(found, queue=True))

    def test_a_yaml_file_behind_a_script_is_its_argument(self) -> None:
        request = RunRequest(command=("train.py", "config.yaml"))
        assert with_task_file(request, ListReporter()) is request
        assert "takes no arguments: --lr 1" in str(_refused(RunRequest(command=("task.yaml", "--lr", "1"))))


def _refused(request: RunRequest) -> UsageError:
    with pytest.raises(UsageError) as refused:
        with_task_file(request, ListReporter())
    return refused.value


class TestMounts:
    def test_the_same_path_is_sent_anyway(self) -> None:
        assert asked("run: python train.py\nfile_mounts: {data: ./data}").setup is None

    def test_another_path_is_a_link_on_a_rented_machine(self) -> None:
        text = "run: python train.py\nsetup: echo\nfile_mounts: {/d/in: ./data, ~/x y: train.py}"
        setup = asked(text, gpus="L4").setup or ""
        assert "to=/d/in;" in setup
        assert '$as ln -sfnT "$PWD"/data "$to"' in setup
        assert "to=~/'x y';" in setup
        assert setup.endswith("; } && echo")
        assert "made on rented machines only" in refusal(text)
        assert "made on rented machines only" in refusal(text, infra=("local",))

    def test_a_link_is_made_again_and_takes_nothing_away(self, tmp_path: Path) -> None:
        to = tmp_path / "in"
        setup = asked(f"run: python train.py\nfile_mounts: {{{to}: data}}", gpus="L4").setup or ""
        for _ in range(2):
            subprocess.run(["sh", "-c", setup], check=True)
            assert to.readlink() == Path.cwd() / "data"
        assert list(to.iterdir()) == []
        to.unlink()
        to.mkdir()
        failed = subprocess.run(["sh", "-c", setup], check=False, capture_output=True, text=True)
        assert (failed.returncode, failed.stderr) == (1, f"file_mounts: {to} is there already.\n")
        assert list(to.iterdir()) == []

    @pytest.mark.parametrize(
        ("mount", "words"),
        [
            ("/d: s3://bucket/x", "line 3: file_mounts./d mounts a bucket"),
            ("/d: {source: s3://b, mode: MOUNT}", "mounts a bucket"),
            ("/d: ../elsewhere", "not in the folder that is sent"),
            ("/d: nothing", "no such file here"),
            ("../d: data", "leaves the folder"),
            ("/: data", "line 3: file_mounts./ is a folder that is there already"),
            ("'': data", "line 3: file_mounts. is a folder"),
            (".: data", "line 3: file_mounts.. is a folder"),
            ("~/: data", "is a folder that is there already"),
        ],
    )
    def test_what_cannot_be_mounted(self, mount: str, words: str) -> None:
        assert words in refusal(f"run: python train.py\nfile_mounts:\n  {mount}\n", gpus="L4")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: x\nsetpu: y", "task.yaml, line 2: setpu is not known"),
        ("run: x\nresources:\n  acelerators: A100", "line 3: resources.acelerators is not known"),
        ("run: x\nresources:\n  image_id: docker:x", "line 3: resources.image_id is not supported"),
        ("run: x\nresources: {ports: 80}", "resources.ports is not supported"),
        ("run: x\nresources:\n  any_of:\n  - {cloud: aws}", "resources.any_of is not supported"),
        ("run: x\nresources: {zone: us-east-1a}", "resources.zone is not supported"),
        ("run: x\nresources: {infra: aws/us-east-1/us-east-1a}", "Name the region: infra: aws/us-east-1"),
        ("run: x\nresources: {disk_size: much}", "not a size"),
        ("run: x\nresources: [A100]", "line 2: resources is not a mapping"),
        ("run: x\nservice: {readiness_probe: /}", "service is not supported"),
        ("run: x\nworkdir: {url: https://github.com/a/b}", "workdir is a git repository"),
        ("run: x\nworkdir: nothing", "no such folder"),
        ("run: x\nnum_nodes: two", "num_nodes is 'two', and not a number from 1"),
        ("run: x\nenvs: {'A=B': c}", "line 2: envs.A=B has 'A=B', which is no name"),
        ("type: task\ncommands: [x]\nenv: [A B=c]", "line 3: env has 'A B', which is no name"),
        ("run: x\n[a]: b", "line 2: a list or mapping is no key that is read"),
        ("run: x\nresources:\n  infra: k8s/ctx/y", "line 3: resources.infra is k8s/ctx/y: machines are rented"),
        ("run: x\nresources:\n  memory: much", "line 3: resources.memory is not read"),
        ("type: task\ncommands: [x]\nresources: {cpu: 'arm:4..'}", "line 3: resources.cpu is not read"),
        ("run: x\nenvs: {DEBUG: true}", "envs.DEBUG is a truth value"),
        ("run: [x]", "run is not a text"),
        ("setup: x", "task.yaml: run is empty"),
        ("run: '# nothing'", "run is empty"),
        ("type: service\ncommands: [x]", "type is service: only tasks are run"),
        ("type: task\ncommands: [x]\nimage: y", "line 3: image is not supported"),
        ("type: task\ncommands: [x]\nresources: {gpu: 'amd:24GB'}", "one of amd"),
        ("type: task\ncommands: [x]\nresources: {gpu: 16GB..24GB}", "range of memory"),
        ("type: task\ncommands: [x]\nrepos: ['https://github.com/a/b']", "git repository"),
        ("type: task\ncommands: [x]\nfiles: [../elsewhere]", "line 3: files names ../elsewhere, and all of"),
        ("type: task\ncommands: [x]\nresources:\n  gpu: L4:80GB", "line 4: resources.gpu asks for 80GB of memory"),
        ("run: x\nresources:\n  accelerators: tpu-v5e:8", "line 3: resources.accelerators is not read: --gpus tpu-v5e"),
        ("run: x\nresources:\n  accelerators: A100:x", "line 3: resources.accelerators is not read: 'x'"),
        ("run: x\nresources:\n  infra: azure", "line 3: resources.infra is not read: --infra azure"),
        ("run: x\nresources:\n  disk_size: 0", "line 3: resources.disk_size is not read: 0 GiB"),
        ("run: x\nresources:\n  disk_size: 17TB", "line 3: resources.disk_size is not read: 17408 GiB"),
        ("run: x\nresources:\n  labels: {a: }", "line 3: resources.labels is not read"),
        ("run: x\nnum_nodes: 65", "line 2: num_nodes is '65', and not a number from 1 to 64"),
        ("type: task\ncommands: [x]\nbackends: [azure]", "line 3: backends is not read"),
        ("type: task\ncommands: [x]\nmax_duration: forever", "line 3: max_duration is not read"),
        ("type: task\ncommands: [x]\nstop_duration: 1y", "line 3: stop_duration is not read"),
        ("type: task\ncommands: [x]\nenv: ['A=${{ secrets.a }}']", "line 3: env has ${{ ... }}"),
        ("type: task\ncommands: [x]\nenv:\n  A: ${{ secrets.a }}", "line 4: env.A has ${{ ... }}"),
        ("type: task\ncommands: [x]\nenv: [A, A=1]", "line 3: env has 'A' twice"),
        ("type: task\ncommands: [x]\nresources: {gpu: 'A100:2:3'}", "gpu has two values for count, 2 and 3"),
        ("type: task\ncommands: [x]\nresources: {gpu: 'A100:L4'}", "gpu has two values for name, A100 and L4"),
        ("type: task\ncommands: [x]\nworking_dir: /x", "working_dir is /x"),
        ("type: task\ncommands: [x]\nmax_price: 2", "--max-cost"),
        ("type: task\ncommands: [pip install ~/sky_workdir, ls]", "line 2: commands names ~/sky_workdir"),
        ('run: "a\\0b"', "line 1: 'a\\x00b' has a character that no system takes"),
        ("run: x\nworkdir: " + "a" * 300, "names a path that cannot be looked at: File name too long"),
        ("run: x\nworkdir: ~nobody-here/x", "cannot be looked at: Could not determine home directory."),
        ("commands: [ls]", "type is None: only tasks are run"),
        ("type: adam\nlr: 0.1", "neither a task of SkyPilot"),
        ("lr: 0.1\nepochs: 3", "neither a task of SkyPilot nor one of dstack. An argument of a script"),
        ("- run: x", "neither a task of SkyPilot"),
        ("", "neither a task of SkyPilot"),
        ("just words", "neither a task of SkyPilot"),
        ("run: x\nrun: y", "line 1: run is there twice, the second time in line 2"),
        ("run: &a x\nsetup: *a", "line 2: aliases (*'a') are not read"),
        ("<<: {run: x}\nrun: y", "merge keys (<<)"),
        ("run: !!python/object:os.system x", "tags"),
        ("run: x\n---\nrun: y", "line 2: a second document begins"),
        ("run: x\nenvs:\n\tA: 1", "not with tabs"),
        ("run: [x", "is not YAML"),
        ("run: x\nname: \x01", "is not YAML"),
        ("? {a: b}\n: c\nrun: x", "is no key that is read"),
        ("run: x\n" + "#" * 2**20, "has more than"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(text: str, words: str) -> None:
    assert words in refusal(text)


def test_there_is_no_such_file() -> None:
    assert "nothing.yaml cannot be read" in _refused(RunRequest(command=("nothing.yaml",))).message


def test_what_asks_for_nothing_is_not_refused() -> None:
    assert asked("type: task\ncommands: [ls]\nports: []\nretry: false\nimage: ''\nvolumes:").command[0] == "bash"


@pytest.mark.parametrize("part", KEYS)
def test_what_a_refusal_advises_exists(part: str) -> None:
    sentences = [sentence for kind in KEYS[part].values() for sentence in kind.values()]
    assert [sentence for sentence in sentences if unreal(sentence.replace("In costgpu ", ""))] == []


def test_a_refusal_has_the_exit_code_of_wrong_usage() -> None:
    Path("task.yaml").write_text("run: x\nsetpu: y")
    told("run", "task.yaml").check(2, out="", err="task.yaml, line 2: setpu is not known.")
    Path("config.yaml").write_text("lr: 1")
    told("run", "--infra", "local", "config.yaml").check(2, out="", err="neither a task of SkyPilot nor one of dstack")
    told("estimate", "task.yaml").check(22, out="", err="costgpu run task.yaml")


def test_what_needs_nothing_is_told() -> None:
    notes = ListReporter()
    Path("task.yaml").write_text("run: python train.py\nresources: {disk_tier: best, autostop: true}\npriority: 5")
    with_task_file(RunRequest(command=("task.yaml",)), notes)
    assert [note.split(": ")[1] for note in notes.notes] == [
        "priority",
        "resources.disk_tier",
        "resources.autostop",
        f"it is the current one, {Path.cwd()}.",
    ]


ODD = r"""
    null [] {} '' true [1,{a:&b}] {a:[b]} a:b:c:d "\0" .. -1 &x é ../x s3://x !!binary / ~no/x [[]] 0..0 A,,L4 , gb
""".split()  # noqa: SIM905


def test_whatever_stands_in_a_file_it_is_read_or_refused() -> None:
    chance = random.Random(5)
    outcomes: set[type] = set()
    for _ in range(300):
        lines = chance.choice([SKY, DSTACK]).splitlines()
        for _ in range(chance.randint(0, 2)):
            at = chance.randrange(1, len(lines))
            lines[at] = f"{lines[at].partition(':')[0]}: {chance.choice(ODD)}"
        try:
            outcomes.add(type(asked("\n".join(lines))))
        except UsageError:
            outcomes.add(UsageError)
    assert outcomes == {RunRequest, UsageError}
