"""What deployment tools read: a layout as commands, configurations and manifests."""

from __future__ import annotations

from perfpass.deploy.outputs.written import check_formats, files, write_files

__all__ = ["check_formats", "engines", "files", "formats", "write_files"]
