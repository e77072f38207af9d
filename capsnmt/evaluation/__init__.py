"""Scores, significance and BLEU by length of translations.

Nothing is imported here. No module of this package needs torch or fairseq, and numpy, sacreBLEU,
sacremoses and compare-mt are imported where they are used.
"""
