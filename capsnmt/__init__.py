"""capsnmt: routing-by-agreement and related mechanisms, as a fairseq ``--user-dir`` plugin.

Importing the package imports nothing else. fairseq imports the ``tasks`` and ``models`` folders of
a ``--user-dir``; the first one imports :mod:`capsnmt.plugin`, which registers everything.
"""

import os
import sys

__version__ = "0.1.0"


class _PluginPath(list):
    """The package's ``__path__``; loads the plugin when fairseq looks up its ``--user-dir``.

    fairseq imports a ``--user-dir`` only if no package of that name is imported yet. Otherwise it
    checks that the folder is in the package's ``__path__`` and registers nothing, so a program that
    has imported ``capsnmt.routing`` could not train. The check compares strings, and fairseq spells
    the folder of an installed package ``.../fairseq/../capsnmt``; compare real paths instead.
    """

    def __contains__(self, folder: object) -> bool:
        real = os.path.realpath(str(folder))
        found = any(os.path.realpath(own) == real for own in self)
        if found and "fairseq" in sys.modules:
            import capsnmt.plugin  # noqa: F401
        return found


__path__ = _PluginPath(__path__)
