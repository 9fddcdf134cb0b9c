"""Every option with its default, a folder for each group; a package, because Hydra reads `pkg://seqtrain.conf`."""
