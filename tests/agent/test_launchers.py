"""The command line of each launcher, and what its ranks are told."""

from typing import Any

import pytest
import pytest_socket

from costgpu.job.agent.launchers import hosts, interface_of, job_command, job_environment

HOME = "/opt/costgpu"


@pytest.fixture(autouse=True)
def interfaces_can_be_asked_for() -> None:
    pytest_socket.enable_socket()


def order(launcher: str, *options: str, node: int = 1, processes: int = -1, **changes: Any) -> dict[str, Any]:
    """What machine `node` of two is told to run."""
    rendezvous = {
        "nodes": 2,
        "node": node,
        "address": "10.0.0.1",
        "port": 29500,
        "own_address": f"10.0.0.{node + 1}",
        "launcher": launcher,
        "launcher_options": list(options),
        "min_nodes": 0,
        "max_restarts": 0,
    }
    return {"argv": ["train.py", "--lr", "1"], "processes": processes, "rendezvous": rendezvous | changes}


def command(launcher: str, *options: str, gpus: int = 8, **changes: Any) -> str:
    return " ".join(job_command(order(launcher, *options, **changes), "python", gpus, HOME))


def test_torchrun_meets_at_machine_0() -> None:
    told = command("torchrun", "--max-restarts=2")
    assert told == (
        "python -m torch.distributed.run --nnodes 2 --nproc-per-node 8 --max-restarts 0 --rdzv-backend c10d"
        " --rdzv-endpoint 10.0.0.1:29500 --rdzv-id costgpu --rdzv-conf is_host=0,join_timeout=300"
        " --local-addr node-0001 --tee 3 --log-dir /opt/costgpu/rank-logs --max-restarts=2 train.py --lr 1"
    )
    first = command("torchrun", node=0)
    assert "is_host=1," in first
    assert "--local-addr 10.0.0.1 " in first


def test_a_program_is_started_without_python() -> None:
    told = order("none", processes=0) | {"argv": ["bash", "launch.sh"], "program": True}
    assert job_command(told, "python", 8, HOME) == ["bash", "launch.sh"]
    assert job_command({**told, "rendezvous": None}, "python", 8, HOME) == ["bash", "launch.sh"]


def test_torchrun_may_go_on_with_fewer() -> None:
    assert "--nnodes 1:2 " in command("torchrun", min_nodes=1)


@pytest.mark.parametrize(("gpus", "processes", "each"), [(8, -1, 8), (0, -1, 1), (8, 3, 3)])
def test_ranks_are_as_many_as_gpus_or_as_asked_for(gpus: int, processes: int, each: int) -> None:
    assert f"--nproc-per-node {each} " in command("torchrun", gpus=gpus, processes=processes)
    assert f"--num_processes {2 * each} " in command("accelerate", gpus=gpus, processes=processes)
    assert hosts(order("deepspeed", processes=processes), gpus) == f"node-0 slots={each}\nnode-1 slots={each}\n"


def test_accelerate_is_told_all_it_would_ask_for() -> None:
    told = command("accelerate", "--mixed_precision", "bf16")
    assert told == (
        "python -m accelerate.commands.launch --num_machines 2 --machine_rank 1 --num_processes 16"
        " --main_process_ip 10.0.0.1 --main_process_port 29500 --tee 3 --log_dir /opt/costgpu/rank-logs"
        " --multi_gpu --mixed_precision bf16 train.py --lr 1"
    )


@pytest.mark.parametrize("option", ["--use_fsdp", "--use-deepspeed", "--config_file=fsdp.yaml", "--cpu"])
def test_the_kind_of_ranks_stays_the_users(option: str) -> None:
    assert "--multi_gpu" not in command("accelerate", option)


def test_deepspeed_logs_in_nowhere() -> None:
    told = command("deepspeed", "--bind_cores_to_rank")
    assert told == (
        "python -m deepspeed.launcher.runner --hostfile /opt/costgpu/hostfile --no_ssh --node_rank 1"
        " --master_addr 10.0.0.1 --master_port 29500 --bind_cores_to_rank train.py --lr 1"
    )


def test_without_a_launcher_the_command_runs_once_on_each() -> None:
    assert command("none") == "python train.py --lr 1"
    told = job_environment(order("none"))
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"], told["LOCAL_WORLD_SIZE"]) == ("1", "2", "0", "1")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"], told["NODE_RANK"]) == ("10.0.0.1", "29500", "1")


def test_one_machine_needs_nothing_of_that() -> None:
    alone = {"argv": ["train.py"], "processes": -1}
    assert job_environment(alone) == {}
    told = job_command(alone, "python", 4)
    assert " ".join(told) == "python -m torch.distributed.run --standalone --nproc-per-node 4 train.py"
    assert job_command({**alone, "processes": 0}, "python", 4) == ["python", "train.py"]


def test_ranks_talk_at_the_interface_of_the_private_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.77") == ""
    told = job_environment(order("torchrun", own_address="127.0.0.1"))
    assert (told["GLOO_SOCKET_IFNAME"], told["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
    elsewhere = job_environment(order("torchrun", own_address="192.0.2.77"))
    assert "GLOO_SOCKET_IFNAME" not in elsewhere
    assert "MASTER_ADDR" not in elsewhere
