"""Say to uv what pip is told: where packages are, and how to reach them.

``python scripts/pip_settings.py`` prints what tells uv the same as this interpreter's pip is told
by variables and files: lines ``NAME=VALUE``, and flags. A variable that is set stays.
"""

import ast
import os
import subprocess
import sys
from typing import Dict, List

# setting of pip -> variable of uv, and what separates its values there
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
}
SECTIONS = ("global", "install", ":env:")  # a later one wins


def settings(lines: List[str]) -> Dict[str, str]:
    """Return the settings of ``pip install`` in the output of ``pip config list``."""
    found: Dict[str, str] = {}
    for section in SECTIONS:
        for line in lines:
            name, _, value = line.partition("=")
            if name.startswith(f"{section}.") and value not in ("", "''"):  # an empty one is none
                found[name[len(section) + 1 :].replace("_", "-")] = str(ast.literal_eval(value))
    return found


def variables(told: Dict[str, str]) -> Dict[str, str]:
    """Return the variables of uv for settings of pip."""
    if "default-timeout" in told:  # PIP_DEFAULT_TIMEOUT, of old
        told.setdefault("timeout", told["default-timeout"])
    given = {}
    for setting, (variable, separator) in VARIABLES.items():
        if told.get(setting):
            # several values may stand on lines of a file, or between the spaces of a variable
            value = separator.join(told[setting].split()) if separator else told[setting].strip()
            given[variable] = value
    # pip takes the best version of all indexes, uv that of the first one with the package
    if "UV_INDEX" in given:
        given["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    # pip asks the system which authorities it trusts
    if "SSL_CERT_FILE" not in given and not os.environ.get("SSL_CERT_FILE"):
        given["UV_SYSTEM_CERTS"] = "true"
    return {name: value for name, value in given.items() if name not in os.environ}


if __name__ == "__main__":
    # pip's own rules say which file and which variable counts
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={**os.environ, "PIP_QUIET": "0"},  # or it lists nothing
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    told = settings(listed.stdout.splitlines())
    for name, value in variables(told).items():
        print(f"{name}={value}")
    if told.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        print("--no-index")
