"""capsnmt: routing-by-agreement and its relatives, as a fairseq ``--user-dir`` plugin."""

__version__ = "0.1.0"
