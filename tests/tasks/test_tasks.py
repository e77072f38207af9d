"""The tasks: dictionaries and classes, batches, and what a checkpoint keeps of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest
import torch
from capsnmt.sentences.logical_inference.generate import generate
from capsnmt.sentences.probing.tasks import TASKS
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from capsnmt.cli import ConfigurationError
from capsnmt.tasks import LogicalInferenceTask, ProbingTask
from capsnmt.tasks.logical_inference import LogicalInferenceConfig
from capsnmt.tasks.probing import ProbingConfig, cached_task


def probing(folder: Path, lines: List[str], **settings: Any) -> ProbingTask:
    cached_task.cache_clear()
    (folder / TASKS["Tense"].file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {"data": str(folder), "probing_task": "Tense", **settings}
    return ProbingTask(OmegaConf.structured(ProbingConfig(**settings)))


LINES = [
    *("tr\tPRES\tit runs and runs", "tr\tPAST\tit ran and stopped"),
    *("va\tPAST\tit sat", "te\tPRES\tit runs"),
]


def test_the_dictionary_has_the_training_words_that_are_frequent_enough(tmp_path: Path) -> None:
    task = probing(tmp_path, LINES)
    assert task.state.symbols == ["and", "it", "runs"]
    assert task.state.classes == ["PAST", "PRES"]
    task.load_dataset("valid")
    unknown = task.source_dictionary.unk()
    tokens = task.dataset("valid")[0]["sentences"][0].tolist()
    assert tokens == [task.source_dictionary.index("it"), unknown, task.source_dictionary.eos()]
    assert len(probing(tmp_path, LINES, min_count=1).state.symbols) == 5


def test_the_dictionary_and_segmentation_of_a_translation_model_can_be_given(
    tmp_path: Path,
) -> None:
    dictionary = Dictionary()
    for word in ("st@@", "op@@", "ped", "it"):
        dictionary.add_symbol(word)
    dictionary.save(str(tmp_path / "dict.en.txt"))
    (tmp_path / "codes").write_text("#version: 0.2\ns t\no p\np e\npe d</w>\ni t</w>\n", "utf-8")
    given = {"dictionary": str(tmp_path / "dict.en.txt"), "bpe_codes": str(tmp_path / "codes")}
    task = probing(tmp_path, LINES, **given)
    assert task.source_dictionary.symbols == dictionary.symbols
    assert task.segment("it stopped") == ["it", "st@@", "op@@", "ped"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [*LINES, "va\tFUTURE\tit will"],
            "line 5: the label 'FUTURE' is not in the training data: PAST, PRES",
        ),
        ([line.replace("PRES", "PAST") for line in LINES], "all training sentences have the label"),
    ],
)
def test_a_label_that_cannot_be_learned_is_one_line(
    lines: List[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        probing(tmp_path, lines).load_dataset("valid")
    assert str(error.value).startswith(str(tmp_path / TASKS["Tense"].file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"probing_task": "Tens"}, "--probing-task: 'Tens': choose from SentLen"),
        ({"min_count": 0}, "--min-count: 0: give 1 or more"),
        ({"min_count": 3, "dictionary": "x"}, "--min-count 3 has no effect because --dictionary"),
        ({"bpe_codes": "nowhere"}, "--bpe-codes nowhere: No such file"),
    ],
)
def test_a_bad_setting_is_one_line(settings: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        probing(tmp_path, LINES, **settings)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigurationError, match="--dictionary nowhere: not a fairseq dictionary"):
        assert probing(tmp_path, LINES, dictionary="nowhere").source_dictionary
    with pytest.raises(ConfigurationError, match="--max-operators: 13: give 0 to 12"):
        LogicalInferenceTask(OmegaConf.structured(LogicalInferenceConfig(max_operators=13)))


def test_a_checkpoint_keeps_its_dictionary_and_classes_and_refuses_others(tmp_path: Path) -> None:
    trained = probing(tmp_path, LINES)
    assert trained.num_classes == 2
    state = {"symbols": list(trained.state.symbols), "classes": list(trained.state.classes)}
    assert trained.state_dict() == state
    others = [line.replace("it", "she").replace("PAST", "A") for line in LINES]
    evaluated = probing(tmp_path, others)
    evaluated.load_state_dict(state)
    assert evaluated.source_dictionary.symbols == trained.source_dictionary.symbols
    resumed = probing(tmp_path, others)
    assert len(resumed.source_dictionary) == 7
    with pytest.raises(ConfigurationError, match="the symbols of the checkpoint"):
        resumed.load_state_dict(state)


def test_a_batch_of_pairs_has_all_first_sentences_then_all_second(tmp_path: Path) -> None:
    generate(tmp_path, 30, 5, 1)
    config = LogicalInferenceConfig(data=str(tmp_path), max_operators=3)
    task = LogicalInferenceTask(OmegaConf.structured(config))
    task.load_dataset("train")
    dataset = task.dataset("train")
    rows = [dataset[index] for index in (3, 40, 70)]
    sample = dataset.collater(rows)
    assert sample["net_input"]["src_tokens"].shape[0] == 6
    pad = task.source_dictionary.pad()
    for place, tokens in enumerate(sample["net_input"]["src_tokens"]):
        sentence = rows[place % 3]["sentences"][place // 3]
        assert torch.equal(tokens[tokens.ne(pad)], sentence)
    assert torch.equal(sample["target"], torch.stack([row["label"] for row in rows]))
    assert dataset.num_tokens(40) == 2 * max(map(len, dataset.sentences[40]))
    lengths = [dataset.size(index) for index in dataset.ordered_indices()]
    assert lengths == sorted(lengths)


def test_a_split_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown split 'dev': choose from train"):
        probing(tmp_path, LINES).load_dataset("dev")
