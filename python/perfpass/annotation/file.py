"""`perfpass annotate`: predictions into the metadata of an ONNX file, whatever its size, and out again byte for byte.

Protobuf messages that follow one another are merged, so a ModelProto that holds ``metadata_props`` and nothing else can
stand behind a model: our *block*. Its last entry, the *seal*, holds the block's length and SHA-256; it is written last,
so a block with a valid seal is whole and ours, and the file is restored by cutting it off.
docs/reference/annotate-format.md has the
format and what happens in every interruption.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.annotation import metadata as annotation
from perfpass.annotation.layout import MOST_BLOCK_BYTES, Layout, block_of, external_files, read_layout
from perfpass.annotation.metadata import Annotation
from perfpass.bounded_file import open_regular
from perfpass.decision import Limits
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, UnsupportedError

try:
    import fcntl
except ModuleNotFoundError as error:
    raise UnsupportedError(
        "annotating a file needs the file locks of Linux or macOS; predict from the file, or annotate it there"
    ) from error

# Protobuf messages, and with them ONNX files, end at 2 GiB (protobuf.dev/programming-guides/proto-limits).
_PROTOBUF_BYTES = 2**31 - 1
_LOCK_SECONDS = 10.0
# ioctl of linux/fs.h: the new file shares the blocks of the old one, where the file system can (btrfs, XFS, bcachefs).
_FICLONE = 0x40049409
_COPY_BYTES = 1 << 24


@dataclass(frozen=True)
class Found:
    """What `read` found: the annotation, and whether an interrupted write or another program left something behind."""

    annotation: Annotation
    body_bytes: int
    interrupted: bool
    scattered: bool

    @property
    def stale(self) -> tuple[str, ...]:
        """Devices whose prediction was made from a file of another size than this one has."""
        sizes = self.annotation.model_bytes
        return tuple(
            name for name in self.annotation.predictions if sizes.get(name, self.body_bytes) != self.body_bytes
        )


def read(path: str | os.PathLike[str]) -> Found:
    """The predictions in an ONNX file's metadata, without reading its graph or weights.

    Raises FileError (no such file, not readable), FormatError (not an ONNX model, damaged metadata).
    """
    with _opened(Path(path), os.O_RDONLY) as file:
        layout = read_layout(file, path)
    return Found(
        annotation.from_metadata(layout.metadata), layout.body_bytes, layout.interrupted, bool(layout.scattered)
    )


def annotate(
    model: str | os.PathLike[str],
    device: Any,
    output: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Annotation:
    """Predict a model's cost and keep the prediction in the metadata of its ONNX file; weights are not rewritten.

    ``device``: one, or a list of them, each as `perfpass.predict` takes it. ``output``: the file to write; without, the
    model's own file gets some kilobytes longer. ``options`` are those of `perfpass.predict` (``batch``, ``dims``,
    ``precision``, ...), with ``limits``: what is to be kept, by which the file's `Decision` is made; by default that it
    fits. A prediction for the same device is replaced, those for others stay. Returns all that the file
    holds then, as `read` does.

    Raises what `perfpass.predict` raises, FileError where the file cannot be written (it is then as it was) and
    LimitError where it would pass the 2 GiB that protobuf can read.
    """
    from perfpass.predictors import predict

    if not isinstance(model, (str, os.PathLike)):
        raise ArgumentError(f"annotate needs the path of an ONNX file, got {type(model).__name__}")
    devices: Sequence[Any] = device if isinstance(device, (list, tuple)) else [device]
    if not devices:
        raise ArgumentError("annotate needs at least one device")
    path = Path(model)
    body = _repaired(path, output)  # before predicting: whatever is no ONNX file ends here
    options["limits"] = options.get("limits") or Limits()
    predictions = [predict(path, one, **options) for one in devices]

    def noted(layout: Layout) -> Annotation:
        if layout.body_bytes != body:
            raise FileError(f"{path}: changed while its cost was predicted; annotate it again")
        found = _readable(layout)
        for prediction in predictions:
            found = found.with_prediction(prediction, body)
        return found

    return _write(path, output, noted)


def _repaired(path: Path, output: Any) -> int:
    """Size of the model without our metadata; what an interrupted write has left is gone then."""
    with _opened(path, os.O_RDONLY) as file:
        layout = read_layout(file, path)
    if layout.interrupted:
        if output is not None:
            raise FileError(
                f"{path}: an earlier write of metadata was interrupted; `perfpass annotate --remove {path}` repairs it"
            )
        _write(path, None, _readable)
    return layout.body_bytes


def _readable(layout: Layout) -> Annotation:
    """What the file holds; nothing where another version of perfpass wrote it, which is replaced as it is removed."""
    try:
        return annotation.from_metadata(layout.metadata)
    except FormatError:
        return Annotation()


def remove(model: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> bool:
    """Take our metadata out again: the file is then, byte for byte, what it was. False where there was none.

    Raises FileError and FormatError as `read` and `annotate` do.
    """
    path = Path(model)
    with _opened(path, os.O_RDONLY) as file:
        layout = read_layout(file, path)
    present = layout.size != layout.body_bytes
    if present or output is not None:
        _write(path, output, lambda _: Annotation())
    return present


def external_data(path: str | os.PathLike[str]) -> list[str]:
    """The files beside the model that its weights are in, as the model names them; none of them is touched here."""
    with _opened(Path(path), os.O_RDONLY) as file:
        return external_files(file)


def _write(path: Path, output: str | os.PathLike[str] | None, noted: Any) -> Annotation:
    """Replace the block of ``path``, in place or in a copy, by that of ``noted(layout)``."""
    if output is not None:
        with _opened(path, os.O_RDONLY) as file:
            layout = read_layout(file, path)
            found: Annotation = noted(layout)
            _copy(file, layout, _block(path, layout, found), Path(output))
        return found
    _refuse_in_place(path)
    with _opened(path, os.O_RDWR) as file:
        layout = read_layout(file, path)
        found = noted(layout)
        block = _block(path, layout, found)
        if layout.scattered:
            # Another program has put our entries into the middle of its own file: only a copy gets them out.
            _copy(file, layout, block, path)
        else:
            _replace_tail(file, path, layout, block)
    return found


def _block(path: Path, layout: Layout, found: Annotation) -> bytes:
    metadata = found.to_metadata()
    block = block_of(metadata) if metadata else b""
    clash = sorted(layout.foreign_keys & metadata.keys())
    if clash:
        raise FileError(f"{path}: has metadata {', '.join(clash)} of another program; keys must not occur twice")
    if len(block) > MOST_BLOCK_BYTES:
        raise LimitError(f"{path}: predictions take {len(block)} bytes; at most {MOST_BLOCK_BYTES} are written")
    size = layout.body_bytes
    if size <= _PROTOBUF_BYTES < size + len(block):
        raise LimitError(
            f"{path}: has {size} bytes, and with {len(block)} more it would pass the 2 GiB that protobuf can read; "
            "keep the weights in external data files"
        )
    return block


def _refuse_in_place(path: Path) -> None:
    """Files that other names share, or that were made read-only, are not changed under their owner."""
    try:
        status = path.lstat()
    except OSError as error:
        raise FileError(f"{path}: cannot be opened: {error.strerror}") from error
    way_out = "write a copy with -o FILE (output=)"
    if stat.S_ISLNK(status.st_mode):
        raise FileError(
            f"{path}: is a link to {os.path.realpath(path)}, which others may use; name that file, or {way_out}"
        )
    if status.st_nlink > 1:
        raise FileError(f"{path}: has {status.st_nlink} names (hard links) that would all change; {way_out}")
    if not status.st_mode & 0o222:
        raise FileError(f"{path}: is read-only; {way_out}")


@contextmanager
def _opened(path: Path, mode: int) -> Iterator[int]:
    """A locked descriptor: shared for reading, alone for writing."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        file = open_regular(path, "an ONNX model", mode)
        try:
            if _locked(file, path, mode, deadline) and os.path.samestat(os.fstat(file), os.stat(path)):
                yield file
                return
            # Another process has put a new file there meanwhile: that is the one to lock.
        except FileNotFoundError as error:
            raise FileError(f"{path}: has gone while it was opened") from error
        finally:
            os.close(file)


def _locked(file: int, path: Path, mode: int, deadline: float) -> bool:
    kind = fcntl.LOCK_SH if mode == os.O_RDONLY else fcntl.LOCK_EX
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise FileError(f"{path}: is locked by another process for {_LOCK_SECONDS:.0f} s; try again") from error
            time.sleep(0.01)
        except OSError as error:
            if mode == os.O_RDONLY:
                return True  # a file system without locks: reading needs none to be safe
            raise FileError(
                f"{path}: its file system has no locks ({error.strerror}), so two writers could mix; "
                "write a copy with -o FILE (output=)"
            ) from error


def _replace_tail(file: int, path: Path, layout: Layout, block: bytes) -> None:
    """Cut off what stands behind the body and append ``block``; on failure the file is as it was."""
    start, end = layout.body_end, layout.size
    old = os.pread(file, end - start, start)
    try:
        if old == block:
            return
        if block and old:
            # Once behind the old block first: a full disk shows here, with the old block still in place.
            _write_at(file, block, end)
        os.ftruncate(file, start)
        _write_at(file, block, start)
        os.fsync(file)
    except BaseException as error:
        _restore(file, start, old)
        if isinstance(error, OSError):
            raise FileError(f"{path}: cannot be written: {error.strerror}; it is as it was") from error
        raise


def _restore(file: int, start: int, old: bytes) -> None:
    """The file with its former tail, or without one where even that cannot be written."""
    try:
        if os.pread(file, len(old), start) != old:
            os.ftruncate(file, start)
            _write_at(file, old, start)
        os.ftruncate(file, start + len(old))
    except OSError:
        os.ftruncate(file, start)


def _write_at(file: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def _copy(file: int, layout: Layout, block: bytes, output: Path) -> None:
    """The body, without our entries in its middle, and ``block`` as a new file that takes the output's place whole."""
    if output.exists() and not output.is_file():
        raise FileError(f"{output}: is not a regular file; give the name of a file to write")
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        target = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileError(f"{output}: cannot be written: {error.strerror}") from error
    try:
        try:
            _copy_body(file, target, layout)
            _write_at(target, block, os.lseek(target, 0, os.SEEK_END))
            os.fchmod(target, stat.S_IMODE(os.fstat(file).st_mode) | stat.S_IWUSR)
            os.fsync(target)
        finally:
            os.close(target)
        os.replace(partial, output)
        folder = os.open(output.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileError(f"{output}: cannot be written: {error.strerror}; nothing was changed") from error
        raise


def _copy_body(file: int, target: int, layout: Layout) -> None:
    if not layout.scattered:
        try:
            fcntl.ioctl(target, _FICLONE, file)
            os.ftruncate(target, layout.body_end)
            return
        except OSError as error:
            if error.errno not in (
                errno.EOPNOTSUPP,
                errno.EXDEV,
                errno.EINVAL,
                errno.ENOTTY,
                errno.ENOSYS,
                errno.EPERM,
            ):
                raise
    start = 0
    for hole_start, hole_end in (*layout.scattered, (layout.body_end, layout.body_end)):
        _copy_range(file, target, start, hole_start)
        start = hole_end


def _copy_range(file: int, target: int, start: int, end: int) -> None:
    """Bytes [start, end) of ``file`` to the end of ``target``, by the kernel where it can."""
    at = os.lseek(target, 0, os.SEEK_END)
    by_kernel = True
    while start < end:
        wanted = min(end - start, _COPY_BYTES)
        copied = 0
        if by_kernel:
            try:
                copied = os.copy_file_range(file, target, wanted, start, at)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM):
                    raise
            by_kernel = copied > 0
        if not copied:
            data = os.pread(file, wanted, start)
            if not data:
                raise OSError(errno.EIO, "the model file ended while it was copied")
            _write_at(target, data, at)
            copied = len(data)
        start, at = start + copied, at + copied
