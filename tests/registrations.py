"""``python -m tests.registrations ROUTE USER_DIR``: print what fairseq finds in the plugin.

Each route is a way in which fairseq imports a ``--user-dir``.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Dict, List


def load(user_dir: str) -> None:
    from fairseq.utils import import_user_module

    import_user_module(Namespace(user_dir=user_dir))


def registered() -> Dict[str, List[str]]:
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.data.encoders import TOKENIZER_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    registries = {
        "architectures": ARCH_MODEL_REGISTRY,
        "criterions": CRITERION_REGISTRY,
        "optimizers": OPTIMIZER_REGISTRY,
        "tasks": TASK_REGISTRY,
        "tokenizers": TOKENIZER_REGISTRY,
    }
    return {
        kind: sorted(name for name, cls in registry.items() if cls.__module__.startswith("capsnmt"))
        for kind, registry in registries.items()
    }


def report(index: int, user_dir: str) -> None:
    """Load the plugin and print its names; the body of a spawned worker."""
    load(user_dir)
    print(json.dumps(registered()), flush=True)


def twice(user_dir: str) -> None:
    """Load it twice, as to train and then generate, after the operators without fairseq."""
    import capsnmt.routing

    assert "capsnmt.plugin" not in sys.modules, capsnmt.routing
    load(user_dir)
    report(0, user_dir)


def spawned(user_dir: str) -> None:
    """Load it in a fresh worker process, as fairseq's distributed training does."""
    import torch.multiprocessing

    load(user_dir)
    torch.multiprocessing.spawn(report, (user_dir,), nprocs=1)


def hydra(user_dir: str) -> None:
    """Load it as fairseq-hydra-train does, from ``common.user_dir``; stop before the training."""
    from fairseq_cli import hydra_train, train

    def stop(task: object) -> None:
        print(json.dumps(registered()), flush=True)
        sys.exit(0)

    train.tasks.setup_task = stop
    configs = Path(__file__).parents[1] / "configs" / "hydra"
    config = ["--config-dir", str(configs), "--config-name", "wmt14_en_de_li2019_effective"]
    settings = [f"common.user_dir='{user_dir}'", "common.cpu=true", "common.fp16=false"]
    with TemporaryDirectory() as folder:
        sys.argv = ["fairseq-hydra-train", *config, *settings, f"hydra.run.dir='{folder}'"]
        hydra_train.cli_main()


if __name__ == "__main__":
    {"twice": twice, "spawned": spawned, "hydra": hydra}[sys.argv[1]](sys.argv[2])
