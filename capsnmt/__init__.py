"""capsnmt: routing-by-agreement and its relatives, as a fairseq ``--user-dir`` plugin.

Importing the package imports nothing else. fairseq imports the folders ``tasks`` and ``models`` of
a ``--user-dir``; both import :mod:`capsnmt.plugin`, which registers everything.
"""

import os
import sys
from typing import List

__version__ = "0.1.0"


class _PackagePath(List[str]):
    """``__path__`` of the package; loads the plugin when fairseq looks a ``--user-dir`` up in it.

    fairseq imports a ``--user-dir`` only if no package of its name is imported yet. Otherwise it
    asks whether the folder is in the package's ``__path__``, and registers nothing: a program that
    has imported ``capsnmt.routing`` could not train. It also compares paths as text, and writes
    that of an installed package as ``.../fairseq/../capsnmt``.
    """

    def __contains__(self, folder: object) -> bool:
        if "fairseq" in sys.modules:
            import capsnmt.plugin  # noqa: F401
        wanted = os.path.realpath(str(folder))
        return any(os.path.realpath(own) == wanted for own in self)


__path__ = _PackagePath(__path__)
