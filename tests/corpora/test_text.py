"""Readers of formats, tokenisers and subwords: pure functions of text."""

import errno
import gzip
import io
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.corpora import subwords
from capsnmt.corpora.archives import Text
from capsnmt.corpora.formats import read_text
from capsnmt.corpora.parallel import JOBS_A_WORKER, map_jobs
from capsnmt.corpora.recipe import Segmentation
from capsnmt.corpora.text import TOKENISERS, make_tokeniser, sentence_key
from capsnmt.evaluation.text import moses_detokenizer, remove_bpe


def _read(path, content, kind):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_text(Text(path, str(path)), kind, 2))  # a table's second column


SGM = (
    '<srcset setid="x">\n<doc docid="1">\n<url>http://x</url>\n<title>no sentence</title>\n'
    '<hl><seg id="1"> One &amp; two </seg></hl>\r\n<p><seg id="2">over\n\ntwo lines</seg>'
    '<SEG id=3>A & B</SEG>\n<seg id="4"></seg>\n</p></doc></srcset>\n'
)
SEGMENTS = ["One & two", "over two lines", "A & B", ""]
TALKS = (
    "<url>http://x</url>\n<keywords>a, b</keywords>\n<speaker>S</speaker>\n<talkid>1</talkid>\n"
    "<title>T</title>\n<description>D</description>\n First one. \n2 < 3 & <b>bold</b>\n"
    "<translator href='x'>T</translator>\n<reviewer>R</reviewer>\n<urls are words>\nLast.\n"
)
TABLE = gzip.compress("one\t一\n\t\ntwo\t二\textra\n\nthree\t三\n".encode(), mtime=0)
ESCAPED = "Tom &amp; Ann &#124; &lt;b&gt; &apos;s &quot; &#91; x &#93;\n"


@pytest.mark.parametrize(
    ("kind", "content", "lines"),
    [
        ("moses", ESCAPED, ["Tom & Ann | <b> 's \" [ x ]"]),
        ("moses", "one &#10;line &NewLine;more\n", ["one  line  more"]),
        ("subwords", "ab@@ c d@@\n", ["abc d"]),
        ("sgm", SGM, SEGMENTS),
        ("iwslt-xml", SGM, SEGMENTS),
        ("iwslt-tags", TALKS, ["First one.", "2 < 3 & <b>bold</b>", "<urls are words>", "Last."]),
        ("tsv", TABLE, ["一", "", "二", "", "三"]),
        ("plain", "a <b> c\n<seg> d\n", ["a <b> c", "<seg> d"]),
    ],
)
def test_each_format_has_its_sentences(tmp_path, kind, content, lines):
    name = "a.gz" if content is TABLE else "a"
    assert _read(tmp_path / name, content, kind) == lines


@pytest.mark.parametrize("separator", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_no_other_separator_ends_a_line_or_stays_in_it(tmp_path, separator):
    read = _read(tmp_path / "a", f"\ufeffone{separator}line\nnext\n", "plain")
    assert read == ["one line", "next"]


def test_markup_of_several_texts_is_one_line(tmp_path):
    """What else is not of its format: tests/frozen/data/refusals.txt."""
    with pytest.raises(ConfigurationError, match=r"^.*has ref and src, several texts.*$"):
        _read(tmp_path / "a", "<src>\n<seg>a</seg></src>\n<ref><seg>b</seg></ref>", "sgm")


@pytest.mark.parametrize(
    ("name", "language", "line", "tokens"),
    [
        ("moses", "de", "Der „Hund“ (z.B. Max) läuft…", 'Der " Hund " ( z.B. Max ) läuft ...'),
        ("moses", "en", "It's R&D, isn't it?", "It 's R & D , isn 't it ?"),
        ("moses", "de", "10\u00a0000,5 von 1\u202f000\u00a0Euro", "10 000,5 von 1 000 Euro"),
        ("moses", "en", "10\u00a0000.5 of 2\u2009500", "10 000.5 of 2 500"),
        ("moses", "hi", "१०\u00a0००० रुपये", "१० ००० रुपये"),
        ("moses", "ar", "١٢\u00a0٣٤٥", "١٢ ٣٤٥"),
        ("moses", "es", "¿Qué tal?", "¿ Qué tal ?"),
        ("moses", "vi", "Viê\u0323t Nam", "Việt Nam"),
        ("moses-escaped-lowercase", "en", "Tom’s R&D works.", "tom &apos;s r &amp; d works ."),
        ("moses-lowercase", "de", "Der Hund. Er bellt.", "der hund . er bellt ."),
        ("characters", "zh", "打开 Git 仓库。", "打 开 Git 仓 库 。"),
        ("jieba", "zh", "我们开始翻译", "我们 开始 翻译"),
        ("none", "vi", " Khoa học   đằng\x0bsau ", "Khoa học đằng sau"),
    ],
)
def test_tokeniser_gives_the_expected_tokens(name, language, line, tokens):
    assert make_tokeniser(name, language)(line) == tokens


@pytest.mark.parametrize(
    ("name", "language", "line"),
    [
        *(
            (name, "zh", line)
            for name in ("characters", "jieba")
            for line in ("并称“一切‘终于’好起来了”。", "10:30开始——54,000名代表……在Google公司。")
        ),
        ("moses", "de", "Wie geht's? Er sagt 'Halt' und Hans' Hund bellt."),
        ("moses", "nl", "Zo'n man, 's avonds"),
        ("moses", "nl", "Het is 's avonds in 's-Hertogenbosch; foto's van 't boek en m'n auto's."),
        ("moses", "af", "Dit is 'n man met 'n hond en foto's."),
        ("moses", "mt", "Il-president ta' Malta jista' jkun f'dan il-każ, ma' oħrajn."),
        ("moses", "he", 'צה"ל ומנכ"ל ארה"ב, צ\'ילי ומנצ\'סטר.'),
        ("moses", "it", "L'uomo dell'isola e un po' di \"acqua\", un po'."),
        ("moses", "el", "Πρώτη πρόταση· δεύτερη;"),
        ("moses", "de", "Um 12:30 Uhr stand es 3:1."),
        ("moses", "fin", "EU:n jäsenet: USA:ssa 1990:stä."),
        ("moses", "fra", "L'homme d'aujourd'hui, quelqu'un d'autre"),
        ("moses", "ita", "Quest'anno dell'isola, un po' tardi."),
        ("moses", "sv", "FN:s och EU:s länder: kl. 12:30."),
        ("moses", "ca", "l'home d'aquí, col·lecció"),
        ("moses", "tr", "Ankara'da 1990'larda 5'i"),
        ("moses", "de", "die 90'er Jahre"),
        ("moses", "de", "So 'schön' zu ihr? Ja 'ja' es, O'Neill und d'Artagnan."),
        ("moses", "nl", "Het is 'goed' zo, de 'oude' VVD'er en zzp'er heeft 'ie."),
        ("moses", "sv", "Bo i 'huset' på ön."),
        ("moses", "sv", "I 'huset' bor han."),
        ("moses", "pt", "O 'rei' e a 'rainha' de O'Neill."),
        ("moses", "es", "Y 'ella' dijo."),
        ("moses", "vi", "Từ 'tự kỉ' đã 'được' dùng ở 'nhà', O'Reilly nói."),
        ("moses", "cs", 'Od roku 1990 do roku 2005 "prší", asi 25.'),
        ("moses", "uk", "м'яч і п'ять"),
        ("moses", "it", "L'11 settembre, dell'80%."),
        ("moses", "fr", "L'11 septembre, qu'1 homme"),
        ("moses", "ca", "L'11 de setembre"),
        ("moses", "en", "In the '60s and '70s it's so."),
        ("characters", "zh", "去McDonald's吃"),
        ("moses", "tr", "Fiyatlar bu yıl %50 arttı."),
        ("moses", "de", "Es kostet 100 € pro Monat ($5 im Jahr), 5 $ pro Tag, 3 €."),
        ("moses", "vi", "giá 100.000 ₫ mỗi tháng"),
        ("moses", "en", "I don't; it's the dogs' bed."),
        ("moses", "fr", "l'homme d'ici"),
        ("moses", "fa", "می\u200cخواهم کتاب\u200cها را بخوانم، این خانه؟"),
        ("moses", "hi", 'राष्ट्र के मंत्री ने कहा, "यह सच है।" क्\u200dया?'),
        ("moses", "mr", "डॉ॰ आले."),
        ("moses", "th", "ผู้ที่อยู่ ที่นี่"),
        ("moses", "my", "ကျွန်တော် မြန်မာလို ရေးတယ်။"),
        ("moses", "km", "ខ្ញុំ\u200bសរសេរ។"),
        ("moses", "yo", "ọ̀rọ̀ náà ṣe pàtàkì gan-an."),
        ("moses", "he", "צה״ל, בְּרֵאשִׁית בבית־ספר."),
        ("moses", "ar", "۱۲٬۳۴۵ و ۳٫۵٪، نعم؟"),
        ("moses", "en", "a so\u2010called non\u2011word"),
        ("moses", "en", "so \U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea 1\ufe0f\u20e3"),
        ("moses", "en", "the \U0001f468\u200d\U0001f469\u200d\U0001f467 is \U0001f642 here"),
        ("moses", "bo", "བོད་ཡིག་འབྲི།"),
        ("moses", "hy", "Ինչո՞ւ եք գրում։"),
        ("moses", "am", "እኔ በአማርኛ፣ እጽፋለሁ።"),
        ("moses", "ur", "میں اردو میں لکھ رہا ہوں۔"),
        ("characters", "zh", "co\u00adoperate和我"),
        ("moses", "de", "Siehe http://a.org/x?y=1&z=2 oder ftp://b.de/c hier."),
        ("moses", "en", "Have you seen http://a.org:80/b? What is https://c.org/d: a page?"),
    ],
)
def test_text_comes_back_from_its_tokens(name, language, line):
    for kind in (name, "moses-escaped") if name == "moses" else (name,):
        texts = line, moses_detokenizer(language)(make_tokeniser(kind, language)(line))
        if "Hans" in line:  # whether it opens a quote, nobody knows
            texts = texts[0].partition("?")[0], texts[1].partition("?")[0]
        assert texts[1] == texts[0]


@settings(max_examples=30)
@given(line=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n")))
@pytest.mark.parametrize("name", [name for name in TOKENISERS if "jieba" not in name])
def test_a_line_stays_one_line_of_single_spaced_tokens(name, line):
    tokens = make_tokeniser(name, "en")(line)
    assert tokens == " ".join(tokens.split())
    assert len(tokens.splitlines()) <= 1


def test_sentences_that_differ_in_case_space_and_punctuation_have_one_key():
    same = ["Save the file.", "save  the ﬁle", "SAVE THE FILE!", " Save, the file…"]
    assert {sentence_key(sentence) for sentence in same} == {"savethefile"}
    assert sentence_key("?") != sentence_key("!")


# subwords and chunks


def test_codes_of_two_models_are_those_of_subword_nmt_on_their_complete_texts(tmp_path):
    from subword_nmt.learn_bpe import learn_bpe

    corpus, other = tmp_path / "text", tmp_path / "other"
    words = [f"wörd{number % 37} 词{number % 5}语 x\n" for number in range(400)]
    corpus.write_text("".join(words), encoding="utf-8")
    other.write_text("other words, otherwise worded\n" * 3, encoding="utf-8")
    models, texts = [tmp_path / "codes", tmp_path / "codes.other"], [[corpus] * 2, [corpus, other]]
    expected = []
    for paths in texts:
        lines = [line for path in paths for line in path.open(encoding="utf-8")]
        learn_bpe(lines, stream := io.StringIO(), 50)
        expected.append(stream.getvalue())
    subwords.learn(Segmentation(size=50), texts, 2, models)
    assert [path.read_text(encoding="utf-8") for path in models] == expected


def test_pieces_are_of_the_characters_of_the_text(tmp_path):
    """sentencepiece's own rule would make ASCII of full-width forms, on one side of a score."""
    text = "（你好，世界！）ＡＢ ① ﬁ ™ 1½"
    (tmp_path / "text").write_text(f"{text}\n" * 20, "utf-8")
    how = Segmentation(size=30, method="sentencepiece")
    subwords.learn(how, [[tmp_path / "text"]], 1, [tmp_path / "model"])
    pieces = subwords.segment("sentencepiece", tmp_path / "model", f"{text}\n".encode()).decode()
    assert remove_bpe(pieces.rstrip("\n"), "sentencepiece") == text


@pytest.mark.parametrize("method", ["bpe", "sentencepiece"])
def test_too_small_a_text_is_one_line(tmp_path, method):
    (tmp_path / "text").write_text("a b c\n")
    how = Segmentation(size=9000, method=method)
    with pytest.raises(ConfigurationError, match=r"^.*can be learned.*\Z"):
        subwords.learn(how, [[tmp_path / "text"]], 1, [tmp_path / "codes"])


def _double(number):
    if number == 450:
        raise ConfigurationError("line 451: not UTF-8")
    return 2 * number


@pytest.mark.parametrize(("workers", "semaphores"), [(1, True), (2, True), (2, False)])
def test_chunks_come_back_in_order_and_few_are_read_before_they_are_needed(
    workers, semaphores, monkeypatch
):
    if not semaphores:  # as without /dev/shm
        missing = "multiprocessing.synchronize._multiprocessing.SemLock"
        monkeypatch.setattr(missing, lambda *_: os.stat("/nowhere/shm"))
    read = []

    def chunks():
        for number in range(1000):
            read.append(number)
            yield (number,)

    results = map_jobs(_double, chunks(), workers)
    for number in range(450):
        assert next(results) == 2 * number
        assert len(read) <= number + workers * JOBS_A_WORKER + 1
    with pytest.raises(ConfigurationError, match="line 451: not UTF-8"):
        next(results)


def test_a_temporary_folder_that_is_full_is_named(monkeypatch):
    def fail(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space") as error:
        [*map_jobs(len, [(b"x",)] * 2, 2)]
    assert error.value.filename.startswith(tempfile.gettempdir())


def _written() -> str:
    return Path("/proc/self/io").read_text("utf-8").splitlines()[1]


def _large_or_killed(number: int) -> bytes:
    """Return 64 MB; the process of the second job is killed while it writes them."""
    before = _written()

    def kill() -> None:
        while _written() == before:  # their number comes first
            time.sleep(0.0001)
        os.kill(os.getpid(), signal.SIGKILL)

    if number == 1:
        threading.Thread(target=kill).start()
    return bytes(1 << 26)


def test_a_worker_that_is_killed_while_it_writes_its_result_is_noticed():
    found = Future()

    def read():
        with pytest.raises(ExecutionError, match="one of 2 workers was killed"):
            [*map_jobs(_large_or_killed, ((number,) for number in range(9)), 2)]
        found.set_result(True)

    threading.Thread(target=read, daemon=True).start()
    assert found.result(60)
