from __future__ import annotations

import hashlib
import json
from collections import Counter

import polib
import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.catalogues import Catalogues, catalogue_messages
from capsnmt.corpora.message_filter import fault
from tests.corpora.conftest import WRITERS, write_recipe, write_wheel

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


def _mo(tmp_path) -> bytes:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.append(polib.POEntry(msgid="Compiled only", msgstr="Nur übersetzt"))
    catalogue.save_as_mofile(str(tmp_path / "catalogue.mo"))
    return (tmp_path / "catalogue.mo").read_bytes()


def _contents(tmp_path) -> dict[str, bytes]:
    english_also = PO.replace("Save the file", "From the compiled twin").encode()
    return {
        FOLDER.format("de", ".po"): PO.encode(),
        FOLDER.format("de", ".mo"): english_also,
        FOLDER.format("de", "-js.mo"): _mo(tmp_path),
        FOLDER.format("fr", ".po"): PO.replace("Datei speichern", "Enregistrer").encode(),
        "tool/de/LC_MESSAGES.po": b"not below a folder of that name",
        "tool/__init__.py": b"raise SystemExit('executed')",
        "setup.py": b"raise SystemExit('executed')",
    }


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_good_messages_of_one_language_are_read_from_either_archive(tmp_path, name, write):
    counts: Counter[str] = Counter()
    path = write(tmp_path / name, _contents(tmp_path))
    assert list(catalogue_messages(path, ("de",), counts)) == [
        ("Compiled only", "Nur übersetzt"),
        ("Save the file", "Datei speichern"),
        ("Nobody has translated this", ""),
        ('Say "hello" to the world', "Sagen Sie der Welt »Hallo«"),
    ]
    assert counts == {"fuzzy": 1, "plural": 1, "obsolete": 1}


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".po", b"no catalogue"), (".po", PO.encode("latin-1")), (".mo", b"123"), (".mo", b"\0" * 99)],
)
def test_a_damaged_catalogue_names_archive_and_member(tmp_path, suffix, content):
    member = FOLDER.format("de", suffix)
    path = write_wheel(tmp_path / "tool-1.0-py3-none-any.whl", {member: content})
    with pytest.raises(ConfigurationError) as error:
        list(catalogue_messages(path, ("de",), Counter()))
    assert f"{path}: {member} is not a gettext catalogue" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("english", "translation", "reason"),
    [
        ("Save the file", "Datei speichern", None),
        ("Don't stop at 50 percent.", "Hören Sie nicht bei 50 Prozent auf.", None),
        ("Nghi\u0323", "Vie\u0302\u0323t Nam", None),
        ("Untranslated", "", "untranslated"),
        ("Status", "STATUS", "equal"),
        ("Hello %s", "Hallo %s", "placeholder"),
        ("Hello %(name)s", "Hallo", "placeholder"),
        ("Hello", "Hallo %5.2f", "placeholder"),
        ("Hello {name}", "Hallo", "placeholder"),
        ("Hello {{ name }}", "Hallo", "placeholder"),
        ("Hello ${name} you", "Hallo", "placeholder"),
        ("Hello $name", "Hallo", "placeholder"),
        ("A <b>bold</b> word", "Ein fettes Wort", "markup"),
        ("Ham &amp; eggs", "Schinken", "markup"),
        ("&Open", "Öffnen", "markup"),
        ("_Open", "Öffnen", "markup"),
        ("Set max_length", "Grenze setzen", "markup"),
        ("Use `this`", "Nimm das", "markup"),
        ("See https://example.org", "Siehe dort", "address"),
        ("Write to me@example.org", "Schreiben Sie", "address"),
        ("12:34:56 h", "12-34-56 Uhr", "not letters"),
        ("A very long explanation of it all", "Kurz", "ratio"),
        ("word " * 100, "Wort " * 100, "length"),
    ],
)
def test_messages_that_are_no_sentences_are_dropped_with_the_reason(english, translation, reason):
    assert fault(english, translation, max_ratio=2.5) == reason


def _catalogue(messages):
    entries = (f'msgid "{english}"\nmsgstr "{german}"\n' for english, german in messages)
    return (HEADER + "\n".join(entries)).encode()


def _many(word, count):
    names = (f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst")
    return [
        (f"Please do {word} the {n}", f"Bitte {n} {word}en") for n, _ in zip(names, range(count))
    ]


def _corpus(tmp_path, packages, **settings):
    sources = {
        name: write_wheel(tmp_path / name, {FOLDER.format("de", ".po"): _catalogue(messages)})
        for name, messages in packages.items()
    }
    held_out = {"valid": 100, "test": 200}
    return Catalogues(dict.fromkeys(packages, ""), ("de",), held_out, **settings), sources


def test_direction_decides_the_sides_and_not_the_splits(tmp_path):
    corpus, sources = _corpus(tmp_path, {"a-1-py3-none-any.whl": _many("save", 100)})
    forward, notes = corpus.pairs(sources, "en", "de")
    backward, _ = corpus.pairs(sources, "de", "en")
    assert all(forward.values())
    assert sum(notes["pairs"].values()) == 100
    for split, pairs in forward.items():
        assert [(target, source) for source, target in pairs] == list(backward[split])


def test_a_package_added_at_the_end_moves_and_removes_nothing(tmp_path):
    first = {"a-1-py3-none-any.whl": _many("save", 100)}
    more = {"b-1-py3-none-any.whl": _many("save", 120)[50:] + _many("open", 50)}
    before, _ = (lambda made: made[0].pairs(made[1], "en", "de"))(_corpus(tmp_path, first))
    after, _ = (lambda made: made[0].pairs(made[1], "en", "de"))(
        _corpus(tmp_path, {**first, **more})
    )
    for split, pairs in before.items():
        assert list(after[split])[: len(list(pairs))] == list(pairs)
    assert sum(map(len, map(list, after.values()))) == 170


def test_short_messages_are_for_training_only(tmp_path):
    messages = {"a-1-py3-none-any.whl": _many("save", 100)}
    corpus, sources = _corpus(tmp_path, messages, held_out_words=5)
    splits, _ = corpus.pairs(sources, "en", "de")
    assert list(splits["test"])
    corpus, sources = _corpus(tmp_path, messages, held_out_words=6)
    with pytest.raises(ConfigurationError, match=r"no pair for valid, test: .* in de; add pack"):
        corpus.pairs(sources, "en", "de")


def test_the_command_line_makes_a_corpus_of_catalogues(run, tmp_path, no_fairseq):
    name = "tool-1.0-py3-none-any.whl"
    content = {FOLDER.format("de", ".po"): _catalogue([*_many("save", 60), ("Hi %s", "Na %s")])}
    checksum = hashlib.sha256(write_wheel(tmp_path / name, content).read_bytes()).hexdigest()
    recipe = {
        "description": "a test",
        "pair": "en-de",
        "corpus": {
            "kind": "catalogues",
            "packages": {name: checksum},
            "locales": ["de"],
            "held_out": {"valid": 100, "test": 200},
        },
        "tokenisers": {"en": "moses", "de": "moses"},
        "segmentation": {"size": 30},
    }
    folder = tmp_path / "prepared"
    path = write_recipe(tmp_path / "tiny.yaml", recipe)
    status, printed = run(path, "--data", tmp_path, "--output", folder)
    assert status == 0, printed
    assert "note:" not in printed
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    notes = manifest["steps"]["raw"]["notes"]
    assert notes["dropped"] == {"placeholder": 1}
    assert notes["clean messages"] == {name: 60}
    files = manifest["steps"]["raw"]["files"]
    for split, pairs in notes["pairs"].items():
        assert files[f"raw/{split}.en"]["lines"] == files[f"raw/{split}.de"]["lines"] == pairs
