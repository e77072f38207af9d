"""Faults in the middle of a launch: ``python -m tests.kills --rounds 17 --seed 1``.

A small launch is interrupted at a random moment of every stage: prepare, train, average, generate,
score and report. Either ``kill -9`` ends the launcher, and what it has started goes on without it,
or the disk is full from then on, and it must end with one line. The same command then continues, up
to the fault of the next stage. The results must be those of an uninterrupted launch, byte for byte.
"""
