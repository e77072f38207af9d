"""The door of a ``--user-dir``: fairseq imports the modules of its folder ``tasks`` first."""
