"""A sweep of bad inputs over all commands: ``python -m tests.fuzz --cases 1000 --seed 1``.

Each case starts from a command line that works, with its files, and spoils one or two things: a
flag, a text, a YAML or JSON file, an archive, a checkpoint, the environment. Or the command runs
in a folder of an odd name, in a read-only folder, or on a full disk. It may then succeed, or end
with one line and a status other than 0; never with a traceback. It must not hang, leave a
half-written file, or write outside its folder. The first case of each command spoils nothing and
must succeed. A failing case prints the numbers that repeat it.

**D**: of fairseq-train and fairseq-generate with the plugin, only what is ours is spoilt: flags
of the plugin, settings that it reads, the checkpoint of ``--init-from``. A traceback without a line
of ours is fairseq's: it reads checkpoints and data by itself, and reports errors that way.
"""
