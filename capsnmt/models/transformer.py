"""The composable Transformer: each mechanism is a switch; with all off it is fairseq's."""

import argparse
import logging
from typing import Any, Optional

import torch.nn as nn
from fairseq import hub_utils
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from omegaconf import OmegaConf

from capsnmt.checkpoints.initialise import forget_starts, initialise_from, resumes
from capsnmt.checkpoints.load import SIDES, WORDS, check_dictionary, dictionary_of, words_of
from capsnmt.cli import ConfigurationError
from capsnmt.host import load_plugin
from capsnmt.machine import keep_freed_memory
from capsnmt.models.config import SwitchesConfig, changed
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.encoder import TransformerEncoder
from capsnmt.models.precision import prepare_linear_maps
from capsnmt.models.surface_fusion import SurfaceFusionDecoder
from capsnmt.models.validation import check_names, complete, validate

logger = logging.getLogger(__name__)


def check_text(saved: Any, task: Any) -> None:
    """Warn if a model reads other text than it was trained for: languages, or dictionaries.

    ``saved`` are the settings of the model, as of a checkpoint. fairseq infers the languages of a
    training that names none, and leaves them out of the model's settings: they are added. The task
    keeps the words of both dictionaries in its state, which fairseq saves and loads.
    """
    settings = saved
    if OmegaConf.is_config(saved):
        root = saved._get_root()
        settings = root.task if "task" in root else None
    given = getattr(task, "cfg", None)
    now = [getattr(given, side, None) for side in SIDES]
    trained = [getattr(settings, side, None) for side in SIDES]
    if None in trained and isinstance(saved, argparse.Namespace):
        vars(saved).update(zip(SIDES, now))
    elif None not in (*trained, *now) and trained != now:
        logger.warning(
            "the model was trained to translate from %s to %s, and now translates from %s to %s",
            *(*trained, *now),
        )
    if given is not None:
        files = {side: dictionary_of(given, side) for side in SIDES}
        for side, file in files.items():
            check_dictionary(task.state.state_dict, settings, side, file)
        task.state.merge_state_dict({WORDS: {side: words_of(files[side]) for side in SIDES}})


@register_model("capsnmt_transformer")
class CapsnmtTransformer(TransformerModel):
    """The translation model of the plugin; its architectures are presets of its switches.

    With every switch off it is fairseq's ``transformer``: same parameters under the same names,
    same outputs; stock checkpoints load.

    Attributes:
        num_updates: the updates before the current one, for a criterion that depends on them.
    """

    num_updates = 0

    def set_num_updates(self, num_updates: int) -> None:
        """Take the number of updates, which fairseq's trainer sets before each of them."""
        super().set_num_updates(num_updates)
        self.num_updates = num_updates

    @classmethod
    def add_args(cls, parser: Any) -> None:
        super().add_args(parser)
        # no defaults: a preset applies where the user has set no attribute
        gen_parser_from_dataclass(parser, SwitchesConfig(), delete_default=True)

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: Any,
        checkpoint_file: str = "model.pt",
        data_name_or_path: Optional[str] = None,
        **kwargs: Any,
    ) -> Any:
        """Load a translation model with fairseq's hub interface.

        Args:
            model_name_or_path: the folder of a finished run, from which the checkpoint, the
                dictionaries, the tokeniser and the subwords are taken, or the name of a model of
                the project, such as ``multi30k_lowercase/em_routing``; several are an ensemble. Or,
                as in fairseq, a folder with ``checkpoint_file``.
            checkpoint_file: checkpoint in a folder that is not a run; several separated by colons.
            data_name_or_path: of a run, the folder of capsnmt-prepare if it has moved; otherwise
                the folder with the dictionaries.
            kwargs: settings of fairseq, such as ``beam`` and ``lenpen``, or ``bpe`` and
                ``bpe_codes`` of a model that is not a run; and ``device``.

        Raises:
            ConfigurationError: the run, checkpoint, data or device cannot be used.
        """
        load_plugin()  # a program may have imported the models alone
        from capsnmt.translate import load

        several = isinstance(model_name_or_path, (list, tuple))
        if several or load.is_run(model_name_or_path, checkpoint_file):
            return load.from_run(model_name_or_path, data_name_or_path, **kwargs)
        folder, data = str(model_name_or_path), str(data_name_or_path or ".")
        device = load.chosen_device(str(kwargs.pop("device", "cpu")))
        load.check_checkpoints(folder, checkpoint_file, kwargs)
        found = hub_utils.from_pretrained(folder, checkpoint_file, data, cls.hub_models(), **kwargs)
        models = [model.to(device) for model in found["models"]]  # which is where it prepares them
        return hub_utils.GeneratorHubInterface(found["args"], found["task"], models).to(device)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> nn.Module:
        saved = args
        if OmegaConf.is_config(args):
            # from a configuration of fairseq-hydra-train, fairseq reads its own options only
            args = argparse.Namespace(**OmegaConf.to_container(args, resolve=True))
            # an option of the task, which the command line has among those of the model
            args.load_alignments = getattr(getattr(task, "cfg", None), "load_alignments", False)
        # as in fairseq, arguments that no architecture has completed get the base model's values
        base_architecture(args)
        check_names(args, cls)
        complete(args, {})
        validate(args)
        model = super().build_model(args, task)
        check_text(saved, task)
        if args.init_from and not resumes(saved):
            initialise_from(model, args, task, changed)
        forget_starts(saved)
        return model

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Prepare for decoding: store the linear maps as it reads them fastest."""
        super().make_generation_fast_(**kwargs)
        prepare_linear_maps(self)

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare for decoding. A command, which has a ``--path``, also keeps freed memory."""
        share = getattr(cfg.generation, "sampling_topp", 0)
        if share > 0 and isinstance(self.decoder, SurfaceFusionDecoder):
            raise ConfigurationError(
                f"--sampling-topp is {share}, a share of probabilities that add up to 1, and those "
                f"of --surface-fusion add up to less; give --sampling-topk, or drop it"
            )
        super().prepare_for_inference_(cfg)
        if cfg.common_eval.path is not None:
            keep_freed_memory(next(self.parameters()).device.type)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> TransformerEncoder:
        return TransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> TransformerDecoder:
        decoder = SurfaceFusionDecoder if cfg.surface_fusion > 0 else TransformerDecoder
        return decoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)
