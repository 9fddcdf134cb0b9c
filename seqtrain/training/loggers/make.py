"""Names of the loggers in configs of older runs, needed to open and resume these runs."""

from seqtrain.training.loggers.mlflow_logger import MLflowLogger as mlflow
from seqtrain.training.loggers.tensorboard_logger import TensorBoardLogger as tensorboard
from seqtrain.training.loggers.wandb_logger import WandbLogger as wandb

__all__ = ("mlflow", "tensorboard", "wandb")
