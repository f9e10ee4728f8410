"""What the name of a device says, and what sources only dress it in: all spellings are made one here (names.toml)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from perfpass.late import dataclass
from perfpass.toml_table import parse

_SHIPPED = Path(__file__).with_name("names.toml")

# Words that sources write or leave out at will; a name is the same with and without them.
_MAKERS = {"nvidia", "amd", "intel", "apple", "google"}
# Words of one maker's boards alone: a Tesla M4 is no Apple M4.
_MAKER_OF = {
    **dict.fromkeys(("nvidia", "tesla", "geforce", "quadro", "jetson"), "NVIDIA"),
    **dict.fromkeys(("amd", "radeon", "instinct"), "AMD"),
    **dict.fromkeys(("apple", "macbook", "imac"), "Apple"),
}
_FILLER = frozenset(
    {*_MAKERS, "geforce", "tesla", "instinct", "radeon", "core", "cores", "xeon", "gpu", "cpu", "r", "tm"}
)
# Spellings of one thing in lower case: "Mobile", "Notebook", "Laptop GPU", "4050M"; "with Max-Q Design"; "80G", "80GB".
# What a text holds where one matches, the pattern, what stands for it. A pattern is compiled where it may match.
_SAME = (
    (("mobile", "notebook"), r"\b(?:mobile|notebook)\b(?: +gpu\b)?", "laptop"),
    (("max",), r"(?: +with)? +max-?q\b(?: +design\b)?", " max q"),
    (("g",), r"(?<![a-z0-9.])(\d+) ?gi?b?(?![a-z0-9.])", r"\1gb"),
    (("0m", "0 m"), r"\b([2-5]0[5-9]0) ?m\b", r"\1 laptop"),
    (("laptop",), r"^([2-5]0[5-9]0(?: ti)? laptop)", r"rtx \1"),
    # Of a chip the cores of the processor do not tell which GPU it has: "M3 Max 16C CPU 40C GPU".
    (("cpu",), r"\b\d{1,2}[ -]?c(?:ores?)? cpu\b(?=.*\d[ -]?c(?:ores?)?\b)", ""),
    (("c",), r"\b(\d{1,2})[ -]?c(?: gpu)?\b", r"\1 core"),
)
# What /proc/cpuinfo appends to the name of a processor: "CPU @ 2.30GHz", "64-Core Processor", "with Radeon Graphics".
_CPU_TAIL_HAS = ("@", "processor", "-cores", "graphics")
_CPU_TAIL = (
    r"(?i)\s*(?:CPU\s*)?@\s*[\d.]+\s*GHz|\s+\d+-Core Processor|(?<=WX)\s+\d+-Cores$|\s+Processor$|"
    r"\s+with Radeon(?: Vega)? Graphics$"
)

# How names are dressed (`_peels`). Each takes off a layer and keeps groups: name, count (devices), memory (GiB), rest.
_PEELS = (
    # torch, as system-information pages print it: NAME (1) (sm_86) (8, 6) cuda:11.7 cudnn:8500 24GB
    r"(?P<name>.+?) \((?P<count>\d+)\) (?P<rest>(?:\((?:sm|compute)_\d+\) )?(?:\(\d+, \d+\) )?(?:cuda|hip):.*?)"
    r"(?: (?P<driver_memory>\d+)GB)?$",
    r"\['(?P<name>[^']+)'(?:, '(?P=name)')*\]$",  # a Python list of one name
    r"(?P<name>gfx[0-9a-f]+)(?P<rest>:(?:sramecc|xnack)[-+:a-z]*)$",  # rocminfo
    r"(?P<rest>(?:amd )?radeon(?:\(tm\))? graphics) \((?P<name>gfx[0-9a-f]+)\)$",  # torch on ROCm
    r"(?P<rest>\d+th gen) (?P<name>intel.+)$",  # /proc/cpuinfo
    r"(?P<rest>gx\d[a-z]?-\d+x\d+x)(?P<count>\d+)(?P<name>[a-z]+\d+[a-z]*)$",  # IBM Cloud
    r"GPU \d+: (?P<name>.+?)(?P<rest> \(UUID.*)?$",  # nvidia-smi -L
    r"(?P<rest>(?:macbook(?: pro| air)?|imac) \(\d\d-inch), (?P<name>m\d[^()]*)\)$",
    r"(?P<rest>.+?) (?:w/|with) (?P<name>radeon .+)$",  # /proc/cpuinfo of a processor with a GPU
    r"(?P<rest>.*)\[(?P<name>[^\[\]']+)\](?: \(rev \w+\))?$",  # lspci
    r"(?P<rest>.+?)\((?P<count>\d+)\s*x\s*(?P<name>[^(),]+)(?:,[^)]*)?\)?$",  # SYSTEM (8x NAME, SOFTWARE)
    r"(?P<name>[^()]+?)\s*\(x(?P<count>\d+)\)(?P<rest>.*)$",
    r"(?P<name>[^()]+?)\s*\((?P<memory>\d+) ?Gi?B?\)(?P<rest>.*)$",
    r"(?P<name>intel\(r\) .+?)\s*\((?P<memory>\d+) ?Gi?B?\)$",  # WMI
    r"(?P<name>[^()]+?)\s*(?P<rest>\([^()]*\)(?:,.*)?)$",
    r"\(?(?P<count>\d{1,5}|\d~\d)\)?\s?x[\s-]?(?P<name>(?:[a-z]|\d{3,4}D?(?![a-z0-9])).*)$",
    r"(?P<count>\d{1,5}) (?P<name>(?:NVIDIA|AMD|Intel|Google) .+?)(?P<rest>,.*)?$",
    r"(?P<name>.+(?:[\dbs]|\s))[x*]\s?(?P<count>\d{1,3})$",
    r"(?P<name>.+?)(?P<rest>(?:, .*)?\swith\s(?:FP|TF|BF|INT)\d+)$",
    r"(?P<name>.+?)(?P<rest>\sand\s(?:PyTorch|TensorFlow)|\sLatency|(?<=[a-z])_\d{1,3}|_[a-z]+oci[-a-z]*|_dgxc)$",
    r"(?P<rest>[^:\[\]]*\b(?:performance|inference|training|tuning|leaderboard|offline|online|accuracy|section)\b"
    r"[^:]*(?::(?:.+\son)?|\son))\s+(?P<name>[^:]+)$",
    r"(?P<name>(?:nvidia )?dgx-\d)\swith\s(?P<memory>\d+)G$",
    r"(?P<rest>virtualized|nvidia corporation|dual|cpu:|an|a|single)\s+(?P<name>.+)$",
    r"(?P<rest>(?:macbook(?: pro| air)?|mac ?studio|mac ?mini|imac|mac)(?: \d\d(?:-inch|\")?)?|(?:google )?colab|"
    r"kaggle)\s+(?P<name>(?!\().+)$",
    r"(?P<name>.+?)(?P<rest>[\s-]CTS|\sGPUs|\sgraphics|\sseries|\sinstances?|\saccelerators?|/PCIe/SSE2)$",
    r"(?P<name>.+?)(?P<rest>\sOAM|\sVF|\sLite Hash Rate|\s/ Max-Q|\sDeveloper Kit|\sDual Slot|\sTensor Core GPU)$",
    r"(?P<name>.+?)(?P<rest>\s(?:HBM\d?e?|GDDR\dX?|\d+ ?W))$",
    r"(?P<name>.+?)[\s-]*\b(?P<memory>\d{1,3}) ?Gi?B?$",
)
_MOST_LAYERS = 8
# A memory beside other remarks in brackets: "(80GB, SXM)". Not one of several: "(40 or 80 GB not stated)".
_REMARKED_MEMORY = r"(?i)(?<![\w.])(\d{1,3}) ?Gi?B?\b"
_ALTERNATIVES = r"(?i)\bor\b|not stated|assumed"


@dataclass(frozen=True)
class Reading:
    """A name with its dress taken off: ``count`` devices, ``memory_gib`` each where it is said, ``unused`` words.

    ``driver_gib`` is the memory that a driver reported, rounded, and not one that the name asks for.
    """

    name: str
    count: str = "1"
    memory_gib: int | None = None
    driver_gib: int | None = None
    unused: tuple[str, ...] = ()


def readings(name: str) -> Iterator[Reading]:
    """The name with one layer of its dress taken off, then two, and so on; nothing where it has none.

    What stands in brackets is first tried as a part of the name: "A100 (80GB, PCIe)".
    """
    read = Reading(without_cpu_tail(name).strip())
    for _ in range(_MOST_LAYERS):
        if "(" in read.name:
            yield replace(read, name=" ".join(re.sub(r"[(),]", " ", read.name).split()))
        match = next(filter(None, (peel.match(read.name) for peel in _peels())), None)
        if match is None:
            return
        groups = match.groupdict()
        rest = " ".join((groups.get("rest") or "").split()).strip(" ,")
        memory = groups.get("memory") or _remarked_memory(rest)
        read = Reading(
            groups["name"].strip(" ,-"),
            groups.get("count") or read.count,
            int(memory) if memory else read.memory_gib,
            int(groups["driver_memory"]) if groups.get("driver_memory") else read.driver_gib,
            (*read.unused, rest) if rest else read.unused,
        )
        if not read.name:
            return
        yield read


@cache
def _peels() -> tuple[re.Pattern[str], ...]:
    # Compiled where a name is dressed: most are not, and twenty patterns take as long as a small prediction.
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _PEELS)


def _remarked_memory(rest: str) -> str | None:
    """The memory that remarks in brackets name, where they name one."""
    if not rest.startswith("(") or re.search(_ALTERNATIVES, rest):
        return None
    named = re.findall(_REMARKED_MEMORY, rest[: rest.index(")") if ")" in rest else None])
    return named[0] if len(named) == 1 else None


def may_be_of(name: str, vendor: str) -> bool:
    """Whether a name says nothing of a maker, or this one among others."""
    makers = {_MAKER_OF[word] for word in re.findall(r"[a-z]+", name.lower()) if word in _MAKER_OF}
    return not makers or vendor in makers or vendor not in _MAKER_OF.values()


def refusal(name: str) -> str | None:
    """Why a name is none of a device that is predicted: a phone, a part of a GPU, no name at all; None for others."""
    text = " ".join(name.lower().split())
    return next((reason for pattern, reason in _beyond() if pattern.search(text)), None)


def _lines(name: str) -> dict[str, tuple[str, ...]]:
    """A table of the file whose lines are a name and ids, which JSON reads in a tenth of the time; names `joined`."""
    text = _SHIPPED.read_text(encoding="utf-8")
    start = text.index(f"\n[{name}]\n")
    lines = text[start : text.index("\n[", start + 1)].split("\n")
    pairs = (line.split(" = ", 1) for line in lines if line.startswith('"'))
    return {joined(json.loads(key)): tuple(json.loads(ids)) for key, ids in pairs}


@cache
def shared() -> dict[str, tuple[str, ...]]:
    """A name that several boards have, as `joined` has it -> their ids, the one that it is read as first."""
    return _lines("shared")


@cache
def alike() -> dict[str, tuple[str, ...]]:
    """A name of one board, as `joined` has it -> ids of others that are called the same, by the driver or by people."""
    return _lines("alike")


@cache
def _beyond() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(f"(?:{'|'.join(group['names'])})"), group["reason"])
        for group in parse(_SHIPPED.read_text(encoding="utf-8"))["beyond"]
    )


def without_cpu_tail(name: str) -> str:
    """A processor's name without what /proc/cpuinfo appends to it."""
    lower = name.lower()
    return re.sub(_CPU_TAIL, "", name) if any(part in lower for part in _CPU_TAIL_HAS) else name


def _plain(text: str) -> str:
    text = text.lower()
    for has, pattern, same in _SAME:
        if any(part in text for part in has):
            text = re.sub(pattern, same, text)
    return text


@lru_cache(maxsize=8192)
def tokens(name: str) -> tuple[str, ...]:
    """The words of a name, without those that may be left out."""
    words = re.findall(r"[a-z0-9]+", _plain(name))
    return tuple(w for w in words if w not in _FILLER) or tuple(words)


@lru_cache(maxsize=8192)
def joined(name: str) -> str:
    """A spelling under which a name is found: its letters and digits in order."""
    return "".join(tokens(name))


@lru_cache(maxsize=8192)
def in_any_order(name: str) -> str:
    """Another: its words, in any order."""
    return " ".join(sorted(re.findall(r"[a-z]+|\d+", " ".join(tokens(name)))))
