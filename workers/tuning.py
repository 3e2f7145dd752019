"""How much work a worker takes at once: a fixed number of activities, or as many as memory and processors bear."""

from typing import NamedTuple

from temporalio.worker import (
    PollerBehavior,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    WorkerTuner,
)

from waystation.settings import Settings


class Tuning(NamedTuple):
    """What one queue's worker takes on."""

    slots: WorkerTuner
    polling: PollerBehavior


def tuning(settings: Settings, at_once: int) -> Tuning:
    """At most `at_once` activities; fewer while memory or processors are used beyond the settings' targets."""
    memory, cpu = settings.target_memory, settings.target_cpu
    if memory is None and cpu is None:
        return Tuning(WorkerTuner.create_fixed(activity_slots=at_once), PollerBehaviorSimpleMaximum())
    slots = WorkerTuner.create_resource_based(
        target_memory_usage=1.0 if memory is None else memory,
        target_cpu_usage=1.0 if cpu is None else cpu,
        activity_config=ResourceBasedSlotConfig(maximum_slots=at_once),
    )
    return Tuning(slots, PollerBehaviorAutoscaling())
