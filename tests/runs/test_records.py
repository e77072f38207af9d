"""A record is read as it was written; a damaged one is one line that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterable, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from capsnmt import records
from capsnmt.records import RecordError
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import (
    Batch,
    Bucket,
    ClassifierResult,
    Data,
    Device,
    InitialModel,
    Measures,
    RunConfig,
    Settings,
    SweepPoint,
    TrainingRecord,
)
from capsnmt.runs.trained_rows import training_differences

POINT = SweepPoint(row="em", flag="layer-capsules", value=8)
SETTINGS = Settings(
    arch="a",
    train={"lr": 0.1, "task": "translation"},
    batch=Batch(tokens_per_update=4),
    data=Data(source_lang="en", target_lang="de", test_sets={"test": "test"}),
)
CONFIG = RunConfig(
    row=POINT.name, seed=1, settings=SETTINGS, data="/data",
    mirrors=("https://a",), device=Device(gpus=2, threads=4), sweep=POINT, command=("capsnmt-run",),
)  # fmt: skip
INITIAL = InitialModel(row="a", checkpoint="a.pt", checksum="0", updates=80)
TRAINING = TrainingRecord(vocabulary={"dict.en.txt": "0"}, device="CPU", device_name="x86_64",
                          versions={"torch": "2"}, initial=INITIAL)  # fmt: skip
MEASURES = Measures(examples=2, accuracy=50.0, macro_f1=1.5, majority=50.0, f1_by_class={"a": 3.0},
                    by_bucket={7: Bucket(examples=1, accuracy=100.0)})  # fmt: skip
RESULT = ClassifierResult(task="probing", probing_task="WC", updates=1, parameters=9,
                          splits={"test": MEASURES})  # fmt: skip


def places(value: Any) -> List[List[Any]]:
    """The keys that lead to each value."""
    items: Iterable[Tuple[Any, Any]] = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    return [[], *([key, *rest] for key, inner in items for rest in places(inner))]


@given(st.data())
def test_a_change_is_another_record_or_one_line(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        path, record, read = data.draw(
            st.sampled_from(
                [
                    (folder.config, CONFIG, folder.read_config),
                    (folder.training, TRAINING, folder.read_training),
                    (folder.result, RESULT, lambda: records.read(folder.result, ClassifierResult)),
                ]
            )
        )
        records.write(path, record)
        assert read() == record
        content: Dict[str, Any] = json.loads(path.read_text("utf-8"))
        *before, last = data.draw(st.sampled_from(places(content)[1:]))
        inner: Any = content
        for key in before:
            inner = inner[key]
        inner[last] = data.draw(st.sampled_from([None, -1, "../x", [], {}, {"x": 1}, True, 1e400]))
        path.write_text(json.dumps(content), "utf-8")
        line = ""
        try:
            changed = read()
            if path == folder.config:
                list(training_differences(record, changed))
        except RecordError as error:
            line = str(error)
        assert not line or path.name in line
        assert "\n" not in line
