"""What the papers print: on which data set each row of ``scripts/rows.py`` was trained, and how."""

from __future__ import annotations

from typing import Dict, List, Tuple

from scripts.rows import ROWS, Row

EN_DE, ZH_EN, ES_EN, EN_VI = "wmt14_en_de", "wmt17_zh_en", "iwslt14_es_en", "iwslt15_en_vi"
DATASETS = (EN_DE, ZH_EN, ES_EN, EN_VI)

# Rows that are printed for Chinese-English: alone, or beside English-German.
ONLY_ZH_EN = {
    "disagreement: subspace",
    "disagreement: position",
    "disagreement: output",
    "capsule routing, encoder",
    "capsule routing, decoder",
    "capsule routing, vertical",
    "capsule routing, horizontal",
    "capsule routing, layers 1-3",
    "capsule routing, layers 4-6",
}
ZH_EN_TOO = {
    "EM, enc-self, layers 1,2 (effective)",
    "effective, big",
    "EM routing of layers",
    "EM routing of layers, big",
    "disagreement: output, all three",
    "disagreement and effective",
    "disagreement, big",
    "disagreement and effective, big",
    "capsule routing",
    "capsule routing, big",
}
# Tables 3 and 4 of Ampomah et al. have them in the small size, beside their rows of that size.
IWSLT_TOO = (
    "linear combination, encoder",
    "iterative combination, encoder",
    "transparent attention",
)


def datasets(row: Row) -> Tuple[str, ...]:
    """Where the row's paper prints it."""
    if row.size == "iwslt":
        return ES_EN, EN_VI
    if row.name in ONLY_ZH_EN:
        return (ZH_EN,)
    if row.name in ZH_EN_TOO:
        return EN_DE, ZH_EN
    return (EN_DE, ES_EN, EN_VI) if row.name in IWSLT_TOO else (EN_DE,)


def size(row: Row, dataset: str) -> str:
    """The size of its model there."""
    return "iwslt" if dataset in (ES_EN, EN_VI) else row.size


def settings(row: Row, dataset: str) -> str:
    """The configuration with the settings its paper trained it with there."""
    if row.paper in ("li2019", "dou2019", "li2021") or dataset in (ES_EN, EN_VI):
        return {"base": "base", "big": "big", "iwslt": "base"}[size(row, dataset)]
    return row.paper + {"base": "", "big": "_big"}[row.size]


# By data set: each configuration of the Transformer itself, and its settings.
BASELINES: Dict[str, Dict[str, str]] = {
    EN_DE: {
        "baseline": "base",
        "baseline_big": "big",
        "baseline_big_8_heads": "big",
        "ampomah2020_baseline": "ampomah2020",
        "duan2020_baseline": "duan2020",
        "duan2020_baseline_big": "duan2020_big",
    },
    ZH_EN: {
        "baseline": "base",
        "baseline_big": "big",
        "duan2020_baseline": "duan2020",
        "duan2020_baseline_big": "duan2020_big",
    },
    ES_EN: {"baseline": "base"},
    EN_VI: {"baseline": "base"},
}

# (data set, row) of all that is printed
PRINTED: List[Tuple[str, str]] = [
    (dataset, name) for name, row in ROWS.items() if row.paper for dataset in datasets(row)
]
