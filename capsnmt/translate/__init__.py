"""Translation of raw text with finished runs: ``from_pretrained`` and ``capsnmt-translate``."""
