"""``python -m capsnmt.launch.train``: fairseq-train that stops on request, on any device.

The flags are those of fairseq-train. fairseq, torchrun or SLURM start the processes of GPUs. None
of them can start several processes on the CPU; :func:`train_on_cpu` does.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

import capsnmt.plugin  # noqa: F401  # isort: skip  (first: fairseq opens the root logger)

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from capsnmt.launch import preemption
from capsnmt.process import end_with_parent

PORTS = range(10000, 60000)


@dataclass(frozen=True)
class Place:
    """The node of this process among the nodes that train together."""

    node: int = 0
    nodes: int = 1
    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def of_step(cls, variables: Mapping[str, str]) -> Place:
        """Return the place of this task in its ``srun`` step; outside a step there is one node.

        **D**: the port is derived from the number of the job: every node knows it, and jobs on one
        machine have different ones.
        """
        nodes = int(variables.get("SLURM_STEP_NUM_NODES", 1))
        if nodes == 1:
            return cls()
        hosts = subprocess.run(
            ["scontrol", "show", "hostnames", variables["SLURM_STEP_NODELIST"]],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.split()
        port = PORTS[int(variables["SLURM_JOB_ID"]) % len(PORTS)]
        return cls(int(variables["SLURM_NODEID"]), nodes, hosts[0], port)


def cli_main(argv: Optional[List[str]] = None) -> None:
    """Train with the flags of fairseq-train."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Otherwise the workers outlive a killed torchrun, and overwrite later checkpoints.
        end_with_parent()
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=argv)
    cfg = convert_namespace_to_omegaconf(args)
    preemption.outlive()
    distributed = cfg.distributed_training
    place = Place.of_step(os.environ)
    alone = distributed.distributed_world_size == 1
    if cfg.common.cpu and not alone and distributed.distributed_init_method is None:
        train_on_cpu(cfg, place)
        return
    if place.nodes > 1:
        distributed.distributed_port = place.port
    distributed_utils.call_main(cfg, preemption.main)


def train_on_cpu(cfg: Any, place: Place) -> None:
    """Train with explicit ranks over gloo, ``world size / nodes`` processes on this node.

    Args:
        cfg: fairseq's configuration; its world size is that over all nodes.
        place: this node.
    """
    # fairseq would ask CUDA for the number of processes, and use a GPU to connect them.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    distributed = cfg.distributed_training
    processes = distributed.distributed_world_size // place.nodes
    distributed.distributed_init_method = f"tcp://{place.host}:{place.port or _free_port()}"
    distributed.distributed_backend = "gloo"
    distributed.ddp_backend = "legacy_ddp"
    distributed.distributed_no_spawn = True
    torch.multiprocessing.spawn(_rank, (cfg, place.node * processes), processes)


def _rank(process: int, cfg: Any, first: int) -> None:
    cfg.distributed_training.distributed_rank = first + process
    distributed_utils.distributed_main(process, preemption.main, cfg, {})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    cli_main()
