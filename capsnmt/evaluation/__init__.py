"""From fairseq-generate's output to scores, significance and averaged checkpoints.

Nothing is imported here: scoring needs no fairseq and no torch, averaging no sacreBLEU.
"""
