"""How archives of PyTorch show what they hold: programs of torch.export, TorchScript, compiled packages, pickles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfpass.importers.formats.content import Content

OLD_PROGRAM = "serialized_exported_program.json"  # before torch 2.8


def is_export(content: Content) -> bool:
    """Whether it is what ``torch.export.save`` writes, or a compiled package in the same form (refused when read)."""
    if not content.is_archive:
        return False
    return (
        content.any_entry(OLD_PROGRAM)
        or content.any_entry("archive_format")
        or any("/data/aotinductor/" in f"/{name}" for name in content.entries)
    )


def is_torchscript(content: Content) -> bool:
    """Whether it is what ``torch.jit.save`` writes: pickled sizes beside a program in its own text."""
    if not content.is_archive or not content.any_entry("constants.pkl"):
        return False
    return any("/code/" in f"/{name}" for name in content.entries) or content.any_entry("bytecode.pkl")


def is_pickle_archive(content: Content) -> bool:
    """Whether it is what ``torch.save`` writes: a pickle and the bytes of its tensors."""
    return content.is_archive and content.any_entry("data.pkl") and not is_torchscript(content)
