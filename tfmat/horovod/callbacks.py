"""Horovod's callbacks for `model.fit`, under Horovod's names.

Their order in the list: what restores state when training begins, then BroadcastGlobalVariablesCallback,
MetricAverageCallback, the learning rate's, and then what reads the logs.
"""

from tfmat.horovod.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from tfmat.horovod.metric_average import MetricAverageCallback
from tfmat.horovod.synchronization import BroadcastGlobalVariablesCallback

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
