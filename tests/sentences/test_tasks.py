"""The tasks: dictionaries and classes, batches, and what a checkpoint keeps of both."""

from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks import setup_task
from omegaconf import OmegaConf

import capsnmt.plugin  # noqa: F401  registers the tasks
from capsnmt.sentences.logical_inference import main

LINES = [
    *("tr\tPRES \tit runs and runs", "tr\tPAST\tit ran and stopped"),  # a space that says nothing
    *("va\tPAST\tit sat", "te\tPRES\tit runs"),
]


def probing(folder: Path, lines: List[str], **settings: Any) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "past_present.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {"data": str(folder), "probing_task": "Tense", **settings}
    return setup_task(OmegaConf.create({"_name": "probing", **settings}))


def refusal(call: Any, *arguments: Any) -> str:
    """The one line in which a call is refused."""
    with pytest.raises(ValueError, match=r"[:;]") as error:
        call(*arguments)
    (line,) = str(error.value).splitlines()
    return line


def test_the_dictionary_has_the_training_words_that_are_frequent_enough(tmp_path: Path) -> None:
    task = probing(tmp_path, LINES)
    assert task.state.symbols == ["and", "it", "runs"]
    assert task.state.classes == ["PAST", "PRES"]
    task.load_dataset("valid")
    words = task.source_dictionary
    tokens = task.dataset("valid")[0]["sentences"][0].tolist()
    assert tokens == [words.index("it"), words.unk(), words.eos()]
    assert len(probing(tmp_path, LINES, min_count=1).state.symbols) == 5


def test_the_dictionary_and_segmentation_of_a_translation_model_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture
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
    # most are not in it, as where a model of lower-case text probes SentEval's
    lacking = (
        f"warning: --dictionary {given['dictionary']} lacks 17 of the 22 words of the training"
    )
    assert capsys.readouterr().err.startswith(lacking)
    frequent = ["tr\tPRES\tit", "tr\tPAST\tit it", "va\tPRES\tit", "te\tPRES\tit"]
    assert probing(tmp_path / "a", frequent, **given).source_dictionary  # nothing to split
    (tmp_path / "codes").write_text("#version: 0.2\ns t\no p\np e\n", "utf-8")
    assert probing(tmp_path, LINES, **given).source_dictionary
    assert f"split 2 of the 2 whole words of --dictionary {given['dictionary']}" in (
        capsys.readouterr().err
    )
    del given["bpe_codes"]
    whole = probing(tmp_path, LINES, **given)
    assert "have only whole words" in refusal(lambda: whole.source_dictionary)


def test_bad_labels_splits_and_settings_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a" / "past_present.txt"
    future = probing(tmp_path / "a", [*LINES, "va\tFUTURE\tit will"])
    expected = f"{file}, line 5: the label 'FUTURE' is not in the training data: PAST, PRES"
    assert refusal(future.load_dataset, "valid") == expected
    assert "unknown split 'dev'; choose from train" in refusal(future.load_dataset, "dev")
    same = probing(tmp_path / "b", [line.replace("PRES", "PAST") for line in LINES])
    assert "all training sentences have the label 'PAST'" in refusal(same.load_dataset, "valid")
    for settings, message in (
        ({"probing_task": "Tens"}, "--probing-task is 'Tens'; choose from SentLen"),
        ({"min_count": 0}, "--min-count is 0; give 1 or more"),
        ({"min_count": 3, "dictionary": "x"}, "--min-count 3 has no effect because --dictionary"),
        ({"bpe_codes": "nowhere"}, "--bpe-codes nowhere: No such file"),
        ({"bpe_codes": __file__}, f"--bpe-codes {__file__}: Error: invalid line 1 in BPE codes"),
        ({"dictionary": "nowhere"}, "--dictionary nowhere: not a fairseq dictionary"),
    ):
        assert message in refusal(
            lambda given: probing(tmp_path, LINES, **given).source_dictionary, settings
        )
    long = OmegaConf.create({"_name": "logical_inference", "max_operators": 13})
    assert "--max-operators is 13; give 0 to 12" in refusal(setup_task, long)


def test_examples_that_are_trained_on_are_counted_in_either_order(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    probing(tmp_path / "own", [*LINES, "te\tPAST\tit ran and stopped"]).load_dataset("test")
    assert "own: 1 of 2 test examples are trained on" in capsys.readouterr().err
    logic = tmp_path / "logic"
    main(["--output", str(logic), "--train", "30", "--test", "9"])
    task = setup_task(OmegaConf.create({"_name": "logical_inference", "data": str(logic)}))
    task.load_dataset("valid")
    trained = next(each for each in task.read_examples("train") if each.label == "<")
    assert capsys.readouterr().err == ""
    with (logic / f"test{trained.bucket}").open("a", encoding="utf-8") as file:
        file.write("\t".join((">", *reversed(trained.sentences))) + "\n")
    task.load_dataset("test")
    assert f"logic: 1 of {len(task.dataset('test'))} test" in capsys.readouterr().err


def test_a_checkpoint_keeps_its_dictionary_and_classes_and_refuses_others(tmp_path: Path) -> None:
    trained = probing(tmp_path / "a", LINES)
    state = {"symbols": ["and", "it", "runs"], "classes": ["PAST", "PRES"]}
    assert trained.source_dictionary.symbols[-3:] == state["symbols"]
    assert trained.num_classes == 2
    assert trained.state_dict() == state
    others = [line.replace("it", "she").replace("PAST", "A") for line in LINES]
    evaluated, resumed = (probing(tmp_path / "b", others) for _ in range(2))
    evaluated.load_state_dict(state)
    assert evaluated.source_dictionary.symbols == trained.source_dictionary.symbols
    assert len(resumed.source_dictionary) == 7
    assert "the symbols of the checkpoint" in refusal(resumed.load_state_dict, state)


def test_a_checkpoint_keeps_its_segmentation(tmp_path: Path) -> None:
    """Codes that were learned anew would split its words into others."""
    codes, lines = tmp_path / "codes", ["#version: 0.2", "r u", "ru n", "i t</w>"]
    codes.write_text("\n".join(lines) + "\n", "utf-8")
    given = {"bpe_codes": str(codes), "min_count": 1}
    trained = probing(tmp_path, LINES, **given)
    trained.load_dataset("test")
    encoded = trained.dataset("test")[0]["sentences"][0].tolist()
    codes.write_text("\n".join(lines[:2]) + "\n", "utf-8")
    resumed = probing(tmp_path, LINES, **given)
    assert resumed.segment("it runs") == ["i@@", "t", "ru@@", "n@@", "s"]
    assert "the codes of the checkpoint" in refusal(resumed.load_state_dict, trained.state_dict())
    codes.unlink()
    evaluated = probing(tmp_path, LINES, **given)
    evaluated.load_state_dict(trained.state_dict())
    evaluated.load_dataset("test")
    assert evaluated.dataset("test")[0]["sentences"][0].tolist() == encoded


def test_a_batch_of_pairs_has_all_first_sentences_then_all_second(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path), "--train", "30", "--test", "5"]) == 0
    settings = {"_name": "logical_inference", "data": str(tmp_path), "max_operators": 3}
    task = setup_task(OmegaConf.create(settings))
    task.load_dataset("train")
    dataset = task.dataset("train")
    rows = [dataset[index] for index in (3, 40, 70)]
    sample = dataset.collater(rows)
    assert sample["net_input"]["src_tokens"].shape[0] == 6
    pad = task.source_dictionary.pad()
    for place, tokens in enumerate(sample["net_input"]["src_tokens"]):
        sentence = rows[place % 3]["sentences"][place // 3]
        assert torch.equal(tokens[tokens.ne(pad)], sentence)
    assert torch.equal(sample["target"], dataset.labels[[3, 40, 70]])
    assert dataset.num_tokens(40) == 2 * max(map(len, dataset[40]["sentences"]))
    lengths = [dataset.size(index) for index in dataset.ordered_indices()]
    assert lengths == sorted(lengths)
