"""A sweep of bad inputs over all commands: ``python -m tests.fuzz --cases 1000 --seed 1``.

Each case starts from a command line that works, with its files, and spoils one or two things: a
flag, a text, a YAML or JSON file, an archive, a checkpoint, the environment. A command may then
succeed, or end with one line and a status other than 0; never with a traceback. It must not hang,
leave a half-written file, or write outside its folder. A failing case prints the numbers that
repeat it.
"""
