"""All targets by name."""

from __future__ import annotations

from . import on_annotations, on_commands, on_core, on_files, on_folders, on_formats, on_models, on_records, on_training
from .target import Target

READERS: tuple[str, ...] = (  # of models
    *("configuration", "built-configuration"),
    *(target.name for room in (on_core, on_formats, on_folders) for target in room.TARGETS),
)
TARGETS: dict[str, Target] = {
    target.name: target
    for room in (
        on_models,
        on_core,
        on_formats,
        on_folders,
        on_files,
        on_records,
        on_training,
        on_annotations,
        on_commands,
    )
    for target in room.TARGETS
}
