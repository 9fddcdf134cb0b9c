"""The only package that turns config into objects; what is named here is what others may call."""

from seqtrain.build.data import Data, Say, make_data, make_source
from seqtrain.build.memory import check_memory, check_model
from seqtrain.build.objects import make
from seqtrain.build.opened import Opened, checked_config, open_run, run_config
from seqtrain.build.pair import check_optimizer, make_model, make_pair, make_task, task_class
from seqtrain.build.session import Session, begin_from, cost, make_session
from seqtrain.build.trainer import make_trainer, on_gpu, settle, surroundings, trainer_options

__all__ = [
    "Data",
    "Opened",
    "Say",
    "Session",
    "begin_from",
    "check_memory",
    "check_model",
    "check_optimizer",
    "checked_config",
    "cost",
    "make",
    "make_data",
    "make_model",
    "make_pair",
    "make_session",
    "make_source",
    "make_task",
    "make_trainer",
    "on_gpu",
    "open_run",
    "run_config",
    "settle",
    "surroundings",
    "task_class",
    "trainer_options",
]
