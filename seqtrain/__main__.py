"""Entry point of `python -m seqtrain`, the same program as the command `seqtrain`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the working folder: the command `seqtrain` imports nothing from it either
    from seqtrain.cli.main import command

    command()
