"""Models in Python: ``from_pretrained`` translates as ``fairseq-generate``."""

import argparse
import re
import shutil
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from fairseq.hub_utils import GeneratorHubInterface

from capsnmt import records
from capsnmt.analysis.__main__ import main as analyse
from capsnmt.checkpoints.load import count_parameters, load_checkpoint
from capsnmt.cli import ConfigurationError
from capsnmt.files import sha256
from capsnmt.models import CapsnmtTransformer
from capsnmt.runs.records import RunFolder
from capsnmt.translate import load
from tests.commands import succeed
from tests.translate.conftest import data_of
from tests.translate.test_translate import expected, source

pytestmark = pytest.mark.system
from_pretrained = CapsnmtTransformer.from_pretrained


@pytest.fixture
def state(runs: Dict[str, Path]) -> Dict[str, Any]:
    return load_checkpoint(RunFolder(runs["plain"]).last_checkpoint)


def refused(words: str, given: Any, data: Any = None, **settings: Any) -> None:
    """Check that a model is refused, in one line with the words."""
    with pytest.raises(ConfigurationError, match=rf"^.*(?:{words}).*\Z"):
        from_pretrained(given, data_name_or_path=data, **settings)


def test_a_run_is_enough_in_every_locale(
    runs: Dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """subword-nmt's parser of arguments, which fairseq asks, opens merges by the locale."""
    with monkeypatch.context() as context:
        latin = partial(Path.open, encoding="latin-1")
        context.setattr(argparse.FileType, "__call__", lambda _, path: latin(Path(path)))
        translator = from_pretrained(runs["plain"])
    assert translator.split("Straße") == [["Straße"]]
    assert isinstance(translator, GeneratorHubInterface)
    assert isinstance(translator.models[0], CapsnmtTransformer)
    lines = source(runs["plain"]).splitlines()
    best = [each[1] for each in expected(runs["plain"])]
    assert translator.translate(lines) == best
    assert translator.translate(lines[0]) == best[0]
    assert translator.translate([]) == []
    assert translator.translations(lines[0]) == translator.translations(lines[:1])
    assert translator.sample(lines[0], sampling=True, sampling_topk=1, beam=1)
    faults = {"len_pen": "len_pen.*lenpen", "beam": "beam is 0", "max_tokens": "from_pretrained"}
    for name, fault in faults.items():
        with pytest.raises(ConfigurationError, match=fault):  # which fairseq takes in silence
            translator.translate(lines, **{name: 0})
    encoded = translator.encode(lines[0])
    assert translator.decode(translator.generate(encoded)[0]["tokens"]) == best[0]
    assert len(translator.generate(encoded)) == 3


def test_a_model_that_is_kept_is_found_by_its_name(
    runs: Dict[str, Path], state: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = RunFolder(runs["plain"]), tmp_path / "data set" / "plain" / "seed-1"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "plain").symlink_to(run.row)
    given = ("--keep", tmp_path, "--models", "plain/seed-1")
    succeed("scripts.results", tmp_path / "runs", *given)
    monkeypatch.setattr(load, "bundled_folder", lambda kind: tmp_path)
    monkeypatch.chdir(tmp_path / "data set")  # the folder does not matter
    translator = from_pretrained("data set/plain")
    lines = source(run.path).splitlines()
    assert translator.translate(lines) == [each[1] for each in expected(run.path)]
    model = RunFolder(kept).model(run.read_config())
    assert f"`{sha256(model)}`" in (kept / "README.md").read_text("utf-8")
    kept_state = load_checkpoint(model)
    for name, tensor in state["model"].items():
        assert torch.equal(kept_state["model"][name], tensor.half()), name
    assert count_parameters(model) == count_parameters(run.last_checkpoint)
    folders = [path.read_bytes() for path in tmp_path.glob("data set/**/*") if path.is_file()]
    assert not any(str(run.path.parents[1]).encode() in content for content in folders)


def test_the_settings_of_the_run_are_defaults(runs: Dict[str, Path]) -> None:
    generation = from_pretrained(runs["plain"]).cfg.generation
    assert (generation.beam, generation.lenpen, generation.max_len_b) == (3, 0.6, 20)
    changed = from_pretrained(str(runs["routed"]), beam=2, lenpen=1.5)
    assert (changed.cfg.generation.beam, changed.cfg.generation.lenpen) == (2, 1.5)
    assert changed.models[0].encoder.routing_backend == "auto"  # this may be another machine
    refused("bean.*beam", runs["plain"], bean=3)
    refused("beam.*0.*1 or more", runs["plain"], beam=0)


def test_every_name_of_a_setting_of_the_run_is_understood(
    runs: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """A language model and references cannot be followed, which is said."""
    run = RunFolder(shutil.copytree(runs["plain"], tmp_path / "plain" / "seed-1"))
    config = run.read_config()
    config.settings.generate.update({"remove-bpe": "subword_nmt", "max-sentences": 8, "beam": 2})
    config.settings.generate["prefix-size"] = 1
    config.settings.generate.update({"lm-path": "lm.pt", "lm-weight": 0.2, "lenpen": "6e-1"})
    records.write(run.config, config)
    translator = from_pretrained(run.path)
    assert translator.cfg.common_eval.post_process == "subword_nmt"
    assert translator.cfg.generation.beam == 2
    assert translator.translate(source(run.path).splitlines()[0])
    said = capsys.readouterr().err
    assert "was scored with the language model of generate.lm-path" in said
    assert "was scored with the parts of references of generate.prefix-size" in said


def test_each_model_of_an_ensemble_is_changed_as_its_run_says(
    runs: Dict[str, Path], tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(runs["plain"], tmp_path / "plain" / "seed-1"))
    config = run.read_config()
    kept = "{'encoder_layers_to_keep': '1', 'decoder_layers_to_keep': '0'}"
    config.settings.generate["model-overrides"] = kept
    records.write(run.config, config)
    for first, second, layers in ((runs["plain"], run.path, [2, 1]), (run.path, run.path, [1, 1])):
        models = from_pretrained([first, second]).models
        assert [len(model.encoder.layers) for model in models] == layers


@pytest.mark.parametrize(
    ("files", "more", "words"),
    [
        ("bin/dict.*", b"more 1\n", "size mismatch for encoder.embed_tokens.weight"),
        ("bin/dict.*", b"\xff 1\n", "Incorrect encoding"),
        ("bpe/codes", b"t h\n", "is not the model of subwords that the data were prepared with"),
        ("bpe/codes", b"", "/data/manifest.json and prepare"),
    ],
)
def test_other_data_than_those_of_the_training(
    files: str, more: bytes, words: str, runs: Dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    """Subwords that were lost are made again as the refusal says, for the data are complete."""
    data = shutil.copytree(data_of(runs["plain"]).folder, tmp_path / "data")
    for file in data.glob(files):
        file.write_bytes(file.read_bytes() + more) if more else file.unlink()
    refused(re.escape(words), [RunFolder(runs["plain"]).last_checkpoint], data)
    if files == "bin/dict.*":
        recorded = f"{data}/bin/dict.en.txt is not the dictionary that"
        refused(re.escape(recorded), runs["plain"], data)
        given = [runs["plain"], "--data", data / "bin", "--output", tmp_path / "page"]
        assert analyse([*map(str, given)]) == 2
        assert recorded in capsys.readouterr().err


def test_another_dictionary_of_the_same_size_is_warned_of(
    runs: Dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model loads with it, and its translations are other words."""
    trained = data_of(runs["plain"]).folder
    data = shutil.copytree(trained, tmp_path / "data")
    checkpoint, dictionary = RunFolder(runs["plain"]).last_checkpoint, data / "bin/dict.de.txt"
    from_pretrained([checkpoint], data_name_or_path=data)
    assert "another dictionary" not in caplog.text
    dictionary.write_text("\n".join(reversed(dictionary.read_text("utf-8").split("\n")[:-1])))
    from_pretrained([checkpoint], data_name_or_path=data)
    assert f"with {trained}/bin/dict.de.txt, and {dictionary} is another dictionary" in caplog.text
    caplog.clear()
    state = load_checkpoint(checkpoint)
    del state["task_state"]["words"]  # as of an earlier version
    torch.save(state, tmp_path / "old.pt")
    from_pretrained([checkpoint, tmp_path / "old.pt"], data_name_or_path=data)
    assert caplog.text.count("is another dictionary") == 2
    state = load_checkpoint(checkpoint)  # now only the checkpoint says what it was
    state["cfg"]["task"]["data"] = str(tmp_path / "gone" / "bin")
    torch.save(state, tmp_path / "gone.pt")
    for place in (data, shutil.copytree(data, tmp_path / "gone")):
        caplog.clear()
        from_pretrained([tmp_path / "gone.pt"], data_name_or_path=place)
        assert f"{place}/bin/dict.de.txt is another dictionary" in caplog.text


def test_calls_as_in_fairseq(runs: Dict[str, Path]) -> None:
    data = data_of(runs["plain"])
    given = {
        "model_name_or_path": str(runs["plain"] / "checkpoints"),
        "checkpoint_file": "checkpoint_last.pt",
        "data_name_or_path": str(data.binarised),
    }
    with pytest.raises(ConfigurationError, match="len_pen is no setting; give lenpen"):
        from_pretrained(**given, len_pen=1)
    with pytest.raises(ConfigurationError, match=r"^--device is 'tpu'; choose cpu, cuda or auto$"):
        from_pretrained(**given, device="tpu")
    hub = from_pretrained(
        **given,
        device="cpu",
        bpe="subword_nmt",
        bpe_codes=str(data.folder / "bpe" / "codes"),
        tokenizer="moses",
        moses_no_escape=True,
        moses_no_dash_splits=True,
        source_lang="en",
        target_lang="de",
        lenpen=0.6,
        max_len_b=20,
    )
    assert type(hub) is GeneratorHubInterface
    lines = source(runs["plain"]).splitlines()
    assert hub.translate(lines, beam=3) == [each[1] for each in expected(runs["plain"])]


def test_the_score_of_a_line_in_parts_is_the_mean_over_tokens(runs: Dict[str, Path]) -> None:
    """Also where the length penalty is not 1, as that of these runs."""
    translator = load.from_run(runs["plain"], max_tokens=30)
    (found,) = translator.translations([line := f"{'x ' * 40}."])
    parts = [translator.binarize(" ".join(part)) for part in translator.split(line)]
    assert len(parts) == found.parts > 1
    scores = [x[0]["positional_scores"] for x in translator.generate(parts)]
    assert found.hypotheses[0].score == pytest.approx(float(torch.cat(scores).mean()) / log(2))


def test_a_checkpoint_is_prepared_on_the_device_where_it_decodes(
    runs: Dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU without bf16 would take the precision of its training from it."""
    prepared: List[str] = []

    def prepare(self: CapsnmtTransformer, _: Any) -> None:
        prepared.append(next(self.parameters()).device.type)

    monkeypatch.setattr(CapsnmtTransformer, "prepare_for_inference_", prepare)
    monkeypatch.setattr(load, "chosen_device", str)
    folder, data = str(runs["plain"] / "checkpoints"), str(data_of(runs["plain"]).binarised)
    from_pretrained(folder, "checkpoint_last.pt", data, device="meta")
    assert prepared == ["meta"]


@pytest.mark.parametrize("changed", ["pickle", "adaptive_softmax_cutoff", "arch", "_name", "task"])
def test_what_could_run_as_code(
    changed: str, state: Dict[str, Any], runs: Dict[str, Path], tmp_path: Path
) -> None:
    """By torch, and by fairseq, which evaluates settings."""
    proof = tmp_path / "proof"
    code = f"open({str(proof)!r}, 'w').close()"
    model, task = state["cfg"]["model"], state["cfg"]["task"]
    if changed == "pickle":
        state["extra"] = Path("a")
    elif changed == "task":
        task.update(_name="online_backtranslation", left_pad_source=code)
    elif changed == "adaptive_softmax_cutoff":
        vars(model).update(adaptive_softmax_cutoff=code)
    else:
        vars(model).update({changed: "fconv", "encoder_layers": code})
    torch.save(state, tmp_path / "model.pt")
    words = "which could run code" if changed == "pickle" else r"model\.pt has the "
    for given in (str(tmp_path), [tmp_path / "model.pt"]):
        refused(words, given, data_of(runs["plain"]).folder)
    assert not proof.exists()


def test_neither_a_run_nor_a_checkpoint(tmp_path: Path) -> None:
    refused(r"model\.pt: no such checkpoint", tmp_path)
    refused("--device is 'gpu'; choose cpu, cuda or auto", [tmp_path / "model.pt"], device="gpu")
    (tmp_path / "model.tar.gz").touch()
    for given in (tmp_path / "model.tar.gz", "https://127.0.0.1:9/model.tar.gz"):
        refused("which fairseq unpacks unchecked", str(given))
