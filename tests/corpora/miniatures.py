"""Miniatures of the papers' corpora, packed as they are published, with their irregularities."""

import gzip
import hashlib
import html
import io
import re
import tarfile
import zipfile
from pathlib import Path

import yaml

from capsnmt.files import bundled_folder

NOUNS = ["house", "tree", "river", "cat", "road", "book"]
VERBS = ["sees", "likes", "finds", "knows"]
WORDS = {
    "de": "Haus Baum Fluß Katze Straße Buch sieht mag findet kennt",
    "es": "casa árbol río gato calle libro ve quiere halla sabe",
    "vi": "nhà cây sông mèo đường sách thấy thích tìm biết",
    "zh": "房子 树木 河流 小猫 道路 书本 看见 喜欢 发现 知道",
}


def sentence(number: int, language: str) -> str:
    """The same sentence in any language; the number identifies it."""
    first, verb, second = NOUNS[number % 6], VERBS[number % 4], NOUNS[(number // 6) % 6]
    if language == "en":
        return f"The {first} {verb} & the {second}, {number} times."
    words = dict(zip([*NOUNS, *VERBS], WORDS[language].split()))
    parts = words[first], words[verb], words[second]
    if language == "zh":
        return f"{''.join(parts)}，{number}次。"
    return f"{' '.join(parts)} & {number}."


def lines(numbers: range, language: str, end: str = "\n") -> bytes:
    return "".join(f"{sentence(number, language)}{end}" for number in numbers).encode()


def write_own(folder: Path) -> None:
    """Write text as of a user's own: pairs of files in three languages, and a table."""
    for name, numbers in (("a", range(0, 60)), ("b", range(60, 90)), ("v", range(90, 96))):
        for side in ("en", "de", "zh"):
            (folder / f"{name}.{side}").write_bytes(lines(numbers, side))
    (folder / "b.de.gz").write_bytes(gzip.compress((folder / "b.de").read_bytes()))
    (folder / "a.de.txt").write_bytes((folder / "a.de").read_bytes())
    (folder / "a.en.txt.gz").write_bytes(gzip.compress((folder / "a.en").read_bytes()))
    sides = ((folder / f"a.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
    table = "".join("\t".join(pair) + "\n" for pair in zip(*sides))
    (folder / "a.tsv").write_text(table, "utf-8")


def sgm(numbers: range, language: str, kind: str) -> bytes:
    """NIST's SGM, as WMT's tests come: entities, a segment over two lines, CRLF."""
    segments = [sentence(number, language).replace("&", "&amp;") for number in numbers]
    segments[0] = segments[0].replace(" ", "\n", 1)
    body = "\r\n".join(f'<seg id="{n}">{text}</seg>' for n, text in enumerate(segments, 1))
    return (
        f'<{kind}set setid="newstest" srclang="any" trglang="{language}">\n'
        f'<doc sysid="ref" docid="a" genre="news">\n<hl>\n{body}\n</hl>\n</doc>\n</{kind}set>\n'
    ).encode()


def xml(numbers: range, language: str) -> bytes:
    """IWSLT's test sets: not well-formed, because ``&`` stands for itself."""
    body = "\n".join(
        f'<seg id="{n}"> {sentence(number, language)} </seg>' for n, number in enumerate(numbers, 1)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<refset setid="tst" trglang="x">\n'
        f'<doc docid="1">\n<url>http://www.ted.com/1</url>\n<title>A talk</title>\n{body}\n'
        "</doc>\n</refset>\n</mteval>\n"
    ).encode()


def tags(numbers: range, language: str) -> bytes:
    """IWSLT's training text, with descriptions of each talk between the sentences."""
    about = "".join(
        f"<{tag}>{sentence(0, language)}</{tag}>\n"
        for tag in ("url", "keywords", "speaker", "talkid", "title", "description")
    )
    middle = numbers[len(numbers) // 2]
    first, second = range(numbers.start, middle), range(middle, numbers.stop)
    reviewer = b'<reviewer href="x">Somebody</reviewer>\n' if language != "en" else b""
    return b"".join(
        [about.encode(), lines(first, language), about.encode(), reviewer, lines(second, language)]
    )


def tar_of(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, packed: str = "gz") -> bytes:
    """A compressed tar of members of one kind, of which two may have one name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{packed}") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "" if kind == tarfile.REGTYPE else "/etc/hostname"
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def tgz(members: dict[str, bytes]) -> bytes:
    return tar_of(*members.items())


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def ar(members: dict[str, bytes]) -> bytes:
    """An archive of ar(5), as a package of Debian is."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        parts += [f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()]
        parts += [content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


def both(name: str, numbers: range, languages: str, end: str = "\n") -> dict[str, bytes]:
    """Two aligned members; ``{}`` in `name` stands for the language."""
    return {name.format(side): lines(numbers, side, end) for side in languages.split()}


def wmt14_en_de() -> dict[str, bytes]:
    other = {"training/europarl-v7.fr-en.fr": b"Bonjour\n"}
    sets = [("src", "en"), ("ref", "de"), ("src", "de"), ("ref", "en")]
    return {
        "training-parallel-europarl-v7.tgz": tgz(
            {**other, **both("training/europarl-v7.de-en.{}", range(0, 20), "de en")}
        ),
        "training-parallel-commoncrawl.tgz": tgz(
            {"commoncrawl.de-en.annotation": b"x\n"}
            | both("commoncrawl.de-en.{}", range(20, 40), "de en", "\r\n")
        ),
        "training-parallel-nc-v9.tgz": tgz(
            both("training/news-commentary-v9.de-en.{}", range(40, 50), "de en")
        ),
        "dev.tgz": tgz(both("dev/newstest2013.{}", range(50, 55), "de en")),
        "test-full.tgz": tgz(
            {
                f"test-full/newstest2014-deen-{kind}.{side}.sgm": sgm(range(60, 66), side, kind)
                for kind, side in sets
            }
        ),
    }


def wmt17_zh_en() -> dict[str, bytes]:
    books = {}
    for book in (1, 2, 10):
        books[f"datum2017/Book{book}_en.txt"] = lines(range(book * 50, book * 50 + 3), "en")
        # CWMT's books are segmented; the recipe's own tokeniser has to do that.
        chinese = lines(range(book * 50, book * 50 + 3), "zh").decode()
        spaced = "".join(f"{character} " if character != "\n" else "\n" for character in chinese)
        books[f"datum2017/Book{book}_cn.txt"] = spaced.encode()
    names = {"casia2015": "casia2015", "casict2011": "casict-A", "casict2015": "casict2015"}
    names.update(datum2015="datum", neu2017="NEU")
    packed = {"datum2017.zip": zipped(books)}
    for number, (name, stem) in enumerate(names.items()):
        numbers = range(600 + 10 * number, 605 + 10 * number)
        chinese = "cn" if name == "neu2017" else "ch"
        packed[f"{name}.zip"] = zipped(
            {
                f"{name}/{stem}_{chinese}.txt": lines(numbers, "zh"),
                f"{name}/{stem}_en.txt": lines(numbers, "en", "\r\n"),
            }
        )
    sets = {"dev": range(800, 805), "test": range(900, 906)}
    for name, numbers in sets.items():
        stem = f"{name}/news{name}2017-zhen"
        packed[f"{name}.tgz"] = tgz(
            {
                f"{stem}-src.zh.sgm": sgm(numbers, "zh", "src"),
                f"{stem}-ref.en.sgm": sgm(numbers, "en", "ref"),
            }
        )
    return {
        "training-parallel-nc-v12.tgz": tgz(
            both("training/news-commentary-v12.zh-en.{}", range(0, 20), "zh en")
        ),
        "UNv1.0.en-zh.tar.gz": tgz(both("en-zh/UNv1.0.en-zh.{}", range(20, 40), "zh en")),
        **packed,
    }


def iwslt14_es_en() -> dict[str, bytes]:
    inner = {f"es-en/train.tags.es-en.{side}": tags(range(0, 40), side) for side in ("es", "en")}
    starts = {"dev2010": 100, "tst2010": 110, "tst2011": 120, "tst2012": 130}
    for name, start in starts.items():
        for side in ("es", "en"):
            member = f"es-en/IWSLT14.TED.{name}.es-en.{side}.xml"
            inner[member] = xml(range(start, start + 2), side)
    test = {
        f"es-en/IWSLT14.TED.tst2014.es-en.{side}.xml": xml(range(200, 206), side)
        for side in ("es", "en")
    }
    reverse = {"en-es/train.tags.en-es.en": b"The other direction is not read\n"}
    return {
        "2014-01.tgz": tgz(
            {
                "2014-01/texts/en/es/en-es.tgz": tgz(reverse),
                "2014-01/texts/es/en/es-en.tgz": tgz(inner),
            }
        ),
        "2014-01-test.tgz": tgz({"2014-01-test/texts/es/en/es-en.tgz": tgz(test)}),
    }


def iwslt15_en_vi() -> dict[str, bytes]:
    splits = {"train": range(0, 40), "tst2012": range(50, 55), "tst2013": range(60, 66)}
    return {
        f"{stem}.{side}": lines(numbers, side).replace(b"&", b"&amp;").replace(b".", b" .")
        for stem, numbers in splits.items()
        for side in ("en", "vi")
    }


def spoken(text: str) -> str:
    """German as long as the English, but for every tenth sentence, which cleaning drops."""
    return re.sub(r"& (\d*[0-46-9])\.$", r"& \1 Mal, Herr Dr. Maß.", text)


def iwslt14_de_en() -> dict[str, bytes]:
    def german(content: bytes) -> bytes:
        ends = re.compile(r"(.*?)(\s*(?:</.*>)?)")
        found = (ends.fullmatch(line).groups() for line in content.decode().split("\n"))
        return "\n".join(spoken(text) + end for text, end in found).encode()

    members = {"de-en/README": b"TED\n"}
    for side, made in (("de", german), ("en", bytes)):
        members[f"de-en/train.tags.de-en.{side}"] = made(tags(range(0, 100), side))
        for name, start in (
            *(("TED.dev2010", 100), ("TEDX.dev2012", 110), ("TED.tst2010", 120)),
            *(("TED.tst2011", 130), ("TED.tst2012", 140)),
        ):
            content = made(xml(range(start, start + 2), side))
            members[f"de-en/IWSLT14.{name}.de-en.{side}.xml"] = content
    return {"de-en.tgz": tgz(members)}


def help_page(numbers: range, language: str) -> bytes:
    """A page of help, in an order of its own in each language, and what no pair is made of."""
    paragraphs = []
    for number in numbers:
        first, _, rest = html.escape(sentence(number, language)).partition(" ")
        variants = '<span hidden="true" id="MAC1" class="MAC"><span class="k">Mac</span></span>'
        variants += f'<span hidden="true" id="default1">{first}</span>'
        paragraphs.append(
            f'<p id="par_id{number}" class="paragraph" dir="auto"><a name="x"></a>'
            f'<span id="sw1" class="switchinline">{variants}</span><br>\n{rest}</p>'
        )
    others = {
        "bm_id1": f"this is no text of {language}",
        "hd_id1": "Only three words" if language == "en" else f"in {language} it is longer",
        "par_idu": "this has not been translated",
        f"par_id{language}": f"only {language} has this one",
        "par_id": f"one of two texts in {language}",
        "par_idh": f'of {language} <span hidden="true" id="CALC1" class="CALC">it is one</span>',
    }
    paragraphs += [f'<h1 id="{key}" dir="auto">{text}</h1>' for key, text in others.items()]
    paragraphs.append(f'<h1 id="par_id">the other of two texts in {language}</h1>')
    body = "\n".join(paragraphs if language == "en" else reversed(paragraphs))
    code = {"en": "en-US", "zh": "zh-CN"}.get(language, language)
    return f'<!DOCTYPE html>\n<html lang="{code}">\n<body>\n{body}\n</body></html>\n'.encode()


def libreoffice_help() -> dict[str, bytes]:
    """Debian's packages of five languages: 20 pages of three sentences, the last of the next."""
    packages = {}
    for language in ("en", "de", "es", "vi", "zh"):
        code = {"en": "en-US", "zh": "zh-CN"}.get(language, language)
        folder = f"./usr/share/libreoffice/help/{code}"
        pages = {
            f"{folder}/text/{'swriter' if page < 9 else 'scalc'}/00/{page}.html": help_page(
                range(page * 2, page * 2 + 3), language
            )
            for page in range(20)
        }
        pages[f"{folder}/text/only/{code}.html"] = help_page(range(90, 95), language)
        pages[f"{folder}/contents.html"] = b"<p>No page</p>"
        packages[f"libreoffice-help-{code.lower()}_7.4.7-1+deb12u14_all.deb"] = ar(
            {
                "debian-binary": b"2.0\n",
                "control.tar.xz": tar_of(("./control", b"Package: x\n"), packed="xz"),
                "data.tar.xz": tar_of(*pages.items(), packed="xz"),
            }
        )
    return packages


MINIATURES = {
    make.__name__: make
    for make in (
        *(wmt14_en_de, wmt17_zh_en, iwslt14_es_en, iwslt15_en_vi, iwslt14_de_en),
        libreoffice_help,
    )
}


def published(name: str, number: int, language: str) -> str:
    """A sentence as the miniature ``name`` is made to ``raw/`` of."""
    text = sentence(number, language)
    if name == "iwslt15_en_vi":
        return text.replace(".", " .")
    if name == "iwslt14_de_en":
        return (spoken(text) if language == "de" else text).lower()
    return text


EVERY_23RD = [22, 48, 71, 97]  # of those that cleaning keeps: it drops 5, 15, ...
SPLITS = {
    "wmt14_en_de": {"train": range(0, 50), "valid": range(50, 55), "test": range(60, 66)},
    "wmt17_zh_en": {
        # News Commentary, UN, then the archives of CWMT and datum2017's books 10, 1 and 2
        "train": [
            *range(0, 40),
            *(start + n for start in (600, 610, 620, 630) for n in range(5)),
            *(start + n for start in (500, 50, 100) for n in range(3)),
            *range(640, 645),
        ],
        "valid": range(800, 805),
        "test": range(900, 906),
    },
    "iwslt14_es_en": {
        "train": range(0, 40),
        "valid": [100, 101, 110, 111, 120, 121, 130, 131],
        "test": range(200, 206),
    },
    "iwslt15_en_vi": {"train": range(0, 40), "valid": range(50, 55), "test": range(60, 66)},
    "iwslt14_de_en": {
        # title and description of both talks are sentence 0
        "train": [n for n in (0, 0, *range(50), 0, 0, *range(50, 100)) if n not in EVERY_23RD],
        "valid": EVERY_23RD,
        "test": [100, 101, 110, 111, 120, 121, 130, 131, 140, 141],
    },
    "libreoffice_help": {
        # pages 16 and 5, 12 and 14, and the others without their sentences
        "test": [32, 33, 34, 10, 11, 12],
        "valid": [24, 25, 26, 28, 29, 30],
        "train": [
            *(27, 22, 23, 16, 17, 18, 6, 7, 8, 4, 5, 6, 2, 3, 4, 38, 39, 40, 13, 14, 20, 21, 22),
            *(36, 37, 38, 14, 15, 16, 35, 36, 8, 9, 18, 19, 20, 31, 0, 1, 2),
        ],
    },
}


def recipe_for(name: str, files: dict[str, bytes], folder: Path, **changes: object) -> Path:
    """The recipe `name` with the checksums of a miniature, and of a miniature's size."""
    recipe = yaml.safe_load(
        (bundled_folder("recipes") / f"{name}.yaml").read_text(encoding="utf-8")
    )
    for file, source in recipe["files"].items():
        if source.get("checksum") and file in files:
            kind = "md5" if source["checksum"].startswith("md5:") else "sha256"
            digest = hashlib.new(kind, files[file]).hexdigest()
            source["checksum"] = f"md5:{digest}" if kind == "md5" else digest
        elif file in files:
            source.pop("checksum", None)
    recipe["segmentation"]["size"] = 40
    if "held-out" in recipe:
        recipe["held-out"] = {"test": 5, "valid": 4}
    recipe.update(changes)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path
