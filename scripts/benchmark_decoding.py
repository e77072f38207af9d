#!/usr/bin/env python3
"""Measure beam search on a CPU: stock fairseq, ours and CTranslate2 with the same parameters.

    scripts/benchmark_decoding.py --path RUN/averaged.pt --data DATA/bin
    scripts/benchmark_decoding.py --size base --vocabulary 32000 --sentences 64 --length 20

The second command measures random parameters, with as many words in every translation as in its
source. All systems take turns in one process, on the same batches, and what counts is the processor
time of the process: other load on the machine does not. Loading is not timed. A table has the
median over the rounds of sentences per second and of the ratios to stock, with the extremes, and
how many best translations differ from stock's.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, List, Tuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fairseq.models
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import strip_pad
from omegaconf import OmegaConf

import capsnmt.plugin  # noqa: F401
from capsnmt.checkpoints.load import load_trained, save_checkpoint
from capsnmt.cli import ConfigurationError, at_least, positive, quiet
from capsnmt.export import stock_checkpoint
from capsnmt.machine import keep_freed_memory
from capsnmt.models.precision import decodes_in_bf16
from capsnmt.modules.autocast import bf16_obstacle
from capsnmt.translate.load import load_model
from scripts import harness
from scripts.harness import Ratio, machine, medians, take_turns
from scripts.paper_rows import PLAIN, SUFFIXES
from scripts.workload import parse, task

LANGUAGES = ("en", "de")
Translations = List[List[int]]
Run = Callable[[], Translations]


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = harness.build_parser(__doc__, threads=1)
    add = parser.add_argument
    add("--path", type=Path, metavar="FILE", help="checkpoint of a baseline")
    add("--data", type=Path, metavar="DIR", help="its binarised data")
    add("--subset", default="test", help="what is translated (default test)")
    add("--size", choices=SUFFIXES, help="of random parameters, without --path")
    words = "of random parameters (default 32000)"
    add("--vocabulary", type=at_least(5), default=32000, help=words)
    add("--sentences", type=positive, default=64, help="random ones (default 64)")
    add("--length", type=positive, default=20, help="their words (default 20)")
    add("--max-len-a", type=float, default=0, help="as fairseq-generate's (default 0)")
    add("--max-len-b", type=positive, default=200, help="as fairseq-generate's (default 200)")
    add("--beam", type=positive, default=5, help="default 5")
    add("--batch-size", type=positive, default=64, help="default 64")
    add("--rounds", type=positive, default=5, help="default 5")
    return parser


def random_checkpoint(args: argparse.Namespace, folder: Path) -> Path:
    """Write a checkpoint with random parameters, and its dictionaries beside it."""
    settings = parse(f"--arch {PLAIN}{SUFFIXES[args.size]}")
    settings.source_lang, settings.target_lang = LANGUAGES
    both = task(args.vocabulary)
    for language in LANGUAGES:
        both.source_dictionary.save(str(folder / f"dict.{language}.txt"))
    torch.manual_seed(1)
    model = fairseq.models.build_model(settings, both)
    settings.data, settings._name = str(folder), settings.arch
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(settings))
    history = {"criterion_name": "none", "optimizer_name": "none", "lr_scheduler_state": {}}
    state = {
        **{"args": None, "cfg": {**cfg, "model": settings}, "model": model.state_dict()},
        **{"optimizer_history": [{**history, "num_updates": 1}]},
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    path = folder / "random.pt"
    save_checkpoint(state, path)
    return path


def samples(args: argparse.Namespace, translation: Any) -> List[Dict[str, Any]]:
    """Return the batches, as fairseq-generate makes them, or random ones."""
    if args.path:
        translation.load_dataset(args.subset)
        batches = translation.get_batch_iterator(
            translation.dataset(args.subset), max_sentences=args.batch_size
        )
        return list(batches.next_epoch_itr(shuffle=False))
    words = torch.randint(4, args.vocabulary, (args.sentences, args.length))
    words[:, -1] = translation.source_dictionary.eos()
    lengths = torch.full((args.sentences,), args.length)
    return [
        {"net_input": {"src_tokens": some, "src_lengths": some_lengths}}
        for some, some_lengths in zip(words.split(args.batch_size), lengths.split(args.batch_size))
    ]


def systems(
    args: argparse.Namespace, path: Path, data: Path, folder: Path
) -> Tuple[Dict[str, Run], int]:
    """Return a function for each system that translates everything, and how many sentences."""
    ours, _, translation = load_model(path, data, {"autocast": "none"})
    stock_state = stock_checkpoint(load_trained(path), path)
    torch.save(stock_state, folder / "stock.pt")
    stock = fairseq.models.build_model(stock_state["cfg"]["model"], translation)
    stock.load_state_dict(stock_state["model"])
    batches = samples(args, translation)
    # the end is a word of fairseq's limits only here
    limits = {"max_len_a": args.max_len_a, "max_len_b": args.max_len_b}
    if not args.path:
        limits = {"max_len_b": args.length, "min_len": args.length}

    def fairseqs(model: Any) -> Run:
        model.eval().make_generation_fast_(need_attn=False)
        if model is stock:  # the plugin's own generator is not what fairseq alone has
            settings = {"search_strategy": BeamSearch(translation.target_dictionary), **limits}
            generator = SequenceGenerator(
                [model], translation.target_dictionary, beam_size=args.beam, **settings
            )
        else:
            options = argparse.Namespace(beam=args.beam, **limits)
            generator = translation.build_generator([model], options)
        return lambda: [
            hypotheses[0]["tokens"].tolist()
            for batch in batches
            for hypotheses in generator.generate([model], batch)
        ]

    runs = {"fairseq fp32": fairseqs(stock), "ours fp32": fairseqs(ours)}
    if bf16_obstacle("cpu") is None:
        model, _, _ = load_model(path, data, {"autocast": "bf16"})
        if decodes_in_bf16(model, "cpu"):  # a narrow one is decoded in fp32
            runs["ours bf16"] = fairseqs(model)
    try:
        runs.update(ctranslate2(args, data, folder, translation, batches))
    except ImportError:
        print("CTranslate2 is not installed", file=sys.stderr)
    return runs, sum(len(batch["net_input"]["src_tokens"]) for batch in batches)


def ctranslate2(
    args: argparse.Namespace, data: Path, folder: Path, translation: Any, batches: Any
) -> Dict[str, Run]:
    """Return functions that translate with CTranslate2, which ``capsnmt-export`` writes for."""
    from ctranslate2 import Translator
    from ctranslate2.converters import FairseqConverter

    languages = translation.cfg.source_lang, translation.cfg.target_lang
    converter = FairseqConverter(
        str(folder / "stock.pt"), str(data), *languages, unsafe_deserialization=True
    )
    converter.convert(str(folder / "ct2"), force=True)
    threads = {"inter_threads": 1, "intra_threads": args.threads}
    source, target = translation.source_dictionary, translation.target_dictionary
    limits = {"min_decoding_length": args.length} if not args.path else {}
    longest = [
        int(args.max_len_a * batch["net_input"]["src_tokens"].size(1) + args.max_len_b)
        if args.path
        else args.length
        for batch in batches
    ]
    texts = [
        [
            [source[word] for word in strip_pad(row, source.pad()).tolist()[:-1]]
            for row in batch["net_input"]["src_tokens"]
        ]
        for batch in batches
    ]

    def in_precision(compute_type: str) -> Run:
        translator = Translator(str(folder / "ct2"), compute_type=compute_type, **threads)
        return lambda: [
            [*(target.index(word) for word in result.hypotheses[0]), target.eos()]
            for text, most in zip(texts, longest)
            for result in translator.translate_batch(
                text, beam_size=args.beam, max_decoding_length=most, **limits
            )
        ]

    precisions = {"fp32": "float32", "int8": "int8"}
    return {f"CTranslate2 {name}": in_precision(each) for name, each in precisions.items()}


def compare(runs: Dict[str, Run], rounds: int, sentences: int) -> str:
    """Run the systems in turn and return a table."""
    translations = {name: run() for name, run in runs.items()}
    stock = next(iter(runs))
    times = take_turns(runs, rounds, time.process_time)
    lines = [harness.head(("system", "sentences/s", "of stock", "differ"))]
    for name, seconds in medians(times).items():
        ratio = Ratio.of(times[stock], times[name])
        differ = sum(one != other for one, other in zip(translations[name], translations[stock]))
        cells = (name, f"{sentences / seconds:.1f}", f"{ratio}", f"{differ} of {sentences}")
        lines.append(harness.line(cells))
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    args = harness.parse_arguments(build_parser(), None)
    harness.use_threads(args)
    if bool(args.path) == bool(args.size) or bool(args.path) != bool(args.data):
        raise ConfigurationError("give --path and --data, or --size")
    keep_freed_memory("cpu")
    with quiet(), warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # hydra's
        path = args.path or random_checkpoint(args, Path(folder))
        runs, sentences = systems(args, path, args.data or Path(folder), Path(folder))
        print(f"{machine('cpu')}; {args.threads} threads, beam {args.beam}, {args.rounds} rounds\n")
        print(compare(runs, args.rounds, sentences))


if __name__ == "__main__":
    harness.run_script(main)
