"""`perfpass measure` killed at random moments, and on a full and a read-only file system of its own.

    python benchmarks/faults.py [--kills N] [--seed N] [--json FILE]

A campaign of small networks runs once undisturbed. Then the same campaign is killed N times at random moments after its
first record, each time in another way: the campaign by SIGKILL, SIGTERM or SIGINT, its worker, the measuring child, all
at once; after every second kill the journal's end is torn at a random byte as by a power cut. At last it runs to the
end. Then it runs on file systems with too little room, and on after room was made. Each time: no record is lost,
altered or doubled, every record and its facts are whole, no process is left behind, and the campaign that was completed
holds the same configurations as the undisturbed one. Linux; file systems are mounted in a namespace (util-linux's
unshare), as root or where users may. Some ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from report import publish, table

from perfpass.errors import FileError
from perfpass.measure.journal import read
from perfpass.whole_file import end_of_lines

CAMPAIGN = """
name = "faults"
[protocol]
warmup_max_s = 0.05
measure_min_s = 0.02
measure_max_s = 0.1
[[sweep]]
model = ["hf:bert-tiny", "unet:temperature-downscaling"]
batch = {batches}
threads = 1
"""
MANY, FEW = list(range(1, 18)), list(range(1, 6))  # batch sizes
WAYS = ("SIGKILL", "SIGTERM", "SIGINT", "worker", "child", "all")
PAGE_BYTES = 4096
FREE_PAGES = (0, 1, 2)  # the few need three: a line of facts, and records of some 1,200 bytes
PACKAGES = ("torch", "transformers")
EVERY_RECORD = ("key", "environment", "configuration", "measured_at", "status", "campaign", "elapsed_s")
EVERY_RESULT = ("latency_ms", "throughput_per_s", "memory", "energy", "ran", "host", "flags", "reference_ms")


def start(campaign: Path, folder: Path) -> subprocess.Popen[str]:
    """The campaign as a process group of its own."""
    command = [sys.executable, "-m", "perfpass", "measure", "--campaign", str(campaign), "-o", str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def content_of(folder: Path) -> bytes:
    path = folder / "records.jsonl"
    return path.read_bytes() if path.exists() else b""


def checked(folder: Path, before: bytes = b"") -> dict[str, Any]:
    """Configurations by key, after asserting that all is whole and that the lines of ``before`` stand as they stood."""
    whole = before[: end_of_lines(before)]
    assert content_of(folder).startswith(whole), "a record was lost or altered"
    contents = read(folder / "records.jsonl")
    keys = [record["key"] for record in contents.records]
    assert len(keys) == len(set(keys)), "a configuration was recorded twice"
    lines = content_of(folder).count(b'{"kind":"facts"')
    assert lines == len(contents.facts) <= 1, "facts were written twice"
    for record in contents.records:
        missing = [name for name in EVERY_RECORD if name not in record]
        if record["status"] == "ok":
            missing += [name for name in EVERY_RESULT if name not in record]
        assert not missing, f"a record lacks {missing}"
        facts = contents.facts[record["environment"]]
        assert facts["software"]["torch"] and facts["capability"]["gemm_flop_s"], "provenance is not whole"
    left = sorted(path.name for path in folder.iterdir() if path.name not in ("records.jsonl", "workers.log"))
    assert not left, f"left behind: {left}"
    return {record["key"]: record["configuration"] | {"status": record["status"]} for record in contents.records}


def wait_for(process: subprocess.Popen[str], folder: Path, size: int) -> bool:
    """Until the journal is longer than ``size`` bytes and holds a record; False where the campaign ended before."""
    while process.poll() is None:
        content = content_of(folder)
        if len(content) > size and b'{"kind":"record"' in content:
            return True
        time.sleep(0.005)
    return False


def victims(process: subprocess.Popen[str], way: str) -> tuple[list[psutil.Process], int]:
    """Which processes to kill, and by which signal; it waits for a worker or a child that is not there yet."""
    campaign = psutil.Process(process.pid)
    while True:
        try:
            workers = campaign.children()
            children = [child for worker in workers for child in worker.children()]
        except psutil.NoSuchProcess:
            continue
        if {"worker": workers, "child": children}.get(way, [campaign]):
            break
        time.sleep(0.002)
    if way == "worker":
        return workers, signal.SIGKILL
    if way == "child":
        return children, signal.SIGKILL
    if way == "all":
        return [*children, *workers, campaign], signal.SIGTERM
    return [campaign], signal.Signals[way]


def kill(process: subprocess.Popen[str], way: str) -> bool:
    """Kills what ``way`` names; True where the campaign ends of it. Nothing of it is left behind."""
    family = psutil.Process(process.pid).children(recursive=True)
    chosen, number = victims(process, way)
    for victim in chosen:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(number)
    if way in ("worker", "child"):
        return False
    _, said = process.communicate(timeout=600)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, f"left behind: {alive}"
    if way == "SIGINT":
        assert process.returncode == 130 and said == "perfpass: interrupted\n", (process.returncode, said)
    else:
        assert said == "", said
    return True


def kills(campaign: Path, folder: Path, count: int, seed: int, undisturbed: dict[str, Any]) -> dict[str, Any]:
    """The campaign killed ``count`` times, then to its end."""
    generator = random.Random(seed)
    ways = [WAYS[i % len(WAYS)] for i in range(count)]
    done, rows, torn, by_way, fresh = 0, [], 0, Counter[str](), False
    process = start(campaign, folder)
    assert wait_for(process, folder, 0), "the campaign ended before its first record"
    for number, way in enumerate(ways):
        # Some kills meet the start (reading the journal, opening workers), some the measuring and writing. A
        # configuration whose worker dies twice is a finding, and Python itself says of an interrupt before it is up.
        at_start = generator.random() < 0.8 and fresh and way in ("SIGKILL", "SIGTERM", "all")
        if not at_start and not wait_for(process, folder, len(content_of(folder))):
            break
        moment = generator.uniform(0.0, 2.0 if number % 2 else 0.2)
        time.sleep(moment)
        if process.poll() is not None:
            break
        before = content_of(folder)
        fresh = kill(process, way)
        done += 1
        by_way[way] += 1
        if fresh:
            found = checked(folder, before)
            if generator.random() < 0.5:
                torn += tear(folder, generator)
            rows.append([str(number + 1), way, f"{moment:.2f}", str(len(found))])
            process = start(campaign, folder)
        else:
            rows.append([str(number + 1), way, f"{moment:.2f}", str(len(checked_while_running(folder)))])
        print(*rows[-1], file=sys.stderr)
    _, said = process.communicate()
    assert process.returncode == 0, said
    found = checked(folder)
    same(found, undisturbed)
    print(table(["kill", "of", "after, s", "records then"], rows) + "\n")
    return {"kills": done, "by_way": dict(by_way), "torn_ends": torn, "records": len(found), "lost": 0, "doubled": 0}


def checked_while_running(folder: Path) -> list[str]:
    """Keys of whole lines while the campaign may be writing."""
    content = content_of(folder)
    lines = content[: end_of_lines(content)].splitlines()
    keys = [entry["key"] for entry in map(json.loads, lines) if entry["kind"] == "record"]
    assert len(keys) == len(set(keys)), "a configuration was recorded twice"
    return keys


def tear(folder: Path, generator: random.Random) -> int:
    """A line that a power cut has torn behind the last one: cut at a random byte, or with empty pages."""
    path = folder / "records.jsonl"
    content = path.read_bytes()
    line = content.splitlines(keepends=True)[-1]
    part = line[: generator.randrange(1, len(line))]
    if generator.random() < 0.5:
        part = part[: len(part) // 2] + bytes(len(part) - len(part) // 2) + b"\n"
    path.write_bytes(content + part)
    return 1


def same(found: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    """The same configurations with the same ends; one whose worker was killed twice is a finding of its own."""
    assert found.keys() == undisturbed.keys(), "other configurations than undisturbed"
    different = [key for key in found if found[key] != undisturbed[key]]
    assert not different, f"other ends than undisturbed: {[found[key] for key in different]}"


def one_line(process: subprocess.Popen[str], code: int) -> str:
    """What a campaign said that ended with ``code`` and one line."""
    _, said = process.communicate(timeout=600)
    assert process.returncode == code, (process.returncode, said)
    assert said.count("\n") == 1 and said.startswith("perfpass: error: "), said
    return said.strip()


def full(campaign: Path, place: Path, undisturbed: dict[str, Any]) -> list[dict[str, Any]]:
    """The campaign on a file system with room for so many pages only, then with room."""
    out = []
    for pages in FREE_PAGES:
        mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place))
        folder, filler = place / "records", place / "filler"
        filler.write_bytes(bytes(2**20 - pages * PAGE_BYTES))
        said = one_line(start(campaign, folder), FileError.exit_code)
        before = content_of(folder)
        records = len(checked(folder, before)) if before else 0
        filler.unlink()
        out.append({"free_pages": pages, "records_then": records, "said": said.replace(str(place), "DIR")})
        complete(campaign, folder, before, undisturbed)
        subprocess.run(["umount", str(place)], check=True)
    return out


def read_only(campaign: Path, place: Path, undisturbed: dict[str, Any]) -> list[dict[str, Any]]:
    """The campaign on a file system that was made read-only: before its start, and after some records."""
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place))
    folder = place / "records"
    mount("-o", "remount,ro", str(place))
    said = [one_line(start(campaign, folder), FileError.exit_code)]
    mount("-o", "remount,rw", str(place))
    process = start(campaign, folder)
    assert wait_for(process, folder, 0)
    kill(process, "SIGKILL")
    before = content_of(folder)
    mount("-o", "remount,ro", str(place))
    said.append(one_line(start(campaign, folder), FileError.exit_code))
    mount("-o", "remount,rw", str(place))
    complete(campaign, folder, before, undisturbed)
    subprocess.run(["umount", str(place)], check=True)
    return [{"said": line.replace(str(place), "DIR")} for line in said]


def complete(campaign: Path, folder: Path, before: bytes, undisturbed: dict[str, Any]) -> None:
    process = start(campaign, folder)
    _, said = process.communicate()
    assert process.returncode == 0, said
    same(checked(folder, before), undisturbed)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def undisturbed_run(campaign: Path, folder: Path) -> dict[str, Any]:
    process = start(campaign, folder)
    _, said = process.communicate()
    assert process.returncode == 0, said
    found = checked(folder)
    assert {configuration["status"] for configuration in found.values()} == {"ok"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="how often to kill (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would ours
    if "PERFPASS_FAULTS_MOUNTS" not in os.environ:
        command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), sys.executable]
        os.execvpe(command[0], [*command, *sys.argv], {**os.environ, "PERFPASS_FAULTS_MOUNTS": "1"})

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "faults.toml").write_text(CAMPAIGN.format(batches=MANY))
        (place / "few.toml").write_text(CAMPAIGN.format(batches=FEW))
        started = time.monotonic()
        undisturbed = undisturbed_run(place / "faults.toml", place / "undisturbed")
        print(f"undisturbed: {len(undisturbed)} records, {time.monotonic() - started:.0f} s\n", flush=True)
        killed = kills(place / "faults.toml", place / "killed", options.kills, options.seed, undisturbed)
        print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in killed.items()) + "\n", flush=True)
        few = {key: value for key, value in undisturbed.items() if value["batch"] in FEW}
        (place / "mounted").mkdir()
        filled = full(place / "few.toml", place / "mounted", few)
        print(
            table(["free pages", "records then", "said"], [[str(value) for value in row.values()] for row in filled])
            + "\n",
            flush=True,
        )
        refused = read_only(place / "few.toml", place / "mounted", few)
        print("\n".join(row["said"] for row in refused) + "\n")
        publish("faults", {"killed": killed, "full": filled, "read_only": refused}, PACKAGES, options.json)


if __name__ == "__main__":
    main()
