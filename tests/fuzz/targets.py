"""All targets by name."""

from __future__ import annotations

from . import on_annotations, on_commands, on_files, on_formats, on_models, on_records, on_training
from .target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for room in (on_models, on_formats, on_files, on_records, on_training, on_annotations, on_commands)
    for target in room.TARGETS
}
