"""Register everything, whatever fairseq imports of a ``--user-dir`` next."""

import capsnmt.plugin  # noqa: F401
