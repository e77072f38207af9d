"""The documentation site, made by ``sphinx-build -W docs site``.

It needs ``pip install ".[fairseq,demo,docs]"``, as the API is read from the imported modules.
"""

import re
import sys
from pathlib import Path
from typing import Any, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import capsnmt

project, version = "capsnmt", capsnmt.__version__
html_title = f"capsnmt {version}"
html_theme = "furo"
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.apidoc"]
exclude_patterns = ["figures", "api/modules.rst"]
myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # an attribute's short name may be found in two classes

NAMED_BY_PACKAGE = ("fast", "routing", "modules")
# The API: what users import. The other modules are behind a command.
BEHIND_COMMANDS = (
    *("analysis", "corpora", "launch", "pages", "plugin.py", "report"),
    *("cli.py", "files.py", "host.py", "lines.py", "machine.py", "process.py", "steps.py"),
    "**/__main__.py",
    # their packages name everything that users import
    *(f"{name}/[a-z]*" for name in NAMED_BY_PACKAGE),
)
apidoc_modules = [
    {
        "path": "../capsnmt",
        "destination": "api",
        "exclude_patterns": [f"../capsnmt/{name}" for name in BEHIND_COMMANDS],
        "separate_modules": True,
        "module_first": True,
    }
]
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_ivar = True  # an attribute is documented once

# A link of a page; %s is the way to the root of the repository.
OUTSIDE = r"\[([^\]]*)\]\(%s([^)#\s]+)[^)\s]*\)"


def site_link(label: str, path: str, up: str) -> str:
    """Return a link to a file of the repository for the site: to its API, or plain text.

    ``up`` is the way from the page to the root of the site.
    """
    package, *names = path.rstrip("/").removesuffix(".py").split("/")
    if package != "capsnmt":
        return label
    names = names[:1] if names[0] in NAMED_BY_PACKAGE else names
    return f"[{label}]({up}api/{'.'.join([package, *names])}.rst)"


def rewrite_links(app: Any, page: str, text: List[str]) -> None:
    """Rewrite the links of a page that lead out of this folder, which is all that the site has."""
    up = "../" * page.count("/")
    link = re.compile(OUTSIDE % re.escape(f"{up}../"))
    text[0] = link.sub(lambda found: site_link(*found.groups(), up), text[0])


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", rewrite_links)
