"""``capsnmt.launch.train``, whose processes on the CPU are forks of it.

They save the seconds in which fresh interpreters import torch and fairseq.
"""

from __future__ import annotations

import functools

import torch.multiprocessing

from capsnmt.launch import train as training

if __name__ == "__main__":
    torch.multiprocessing.spawn = functools.partial(
        torch.multiprocessing.start_processes, start_method="fork"
    )
    training.cli_main()
