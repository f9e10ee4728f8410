"""The device catalogue: names resolve, figures are plausible and sourced, device files are checked."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace

import pytest
import tomllib

import perfpass
from perfpass import devices
from perfpass.devices import PRECISIONS, catalogue, device, lookup, shipped
from perfpass.devices.host import host
from perfpass.devices.sheet import device_sheet
from perfpass.devices.spec import CORE_BYTES_PER_CYCLE, UNREAD
from perfpass.devices.toml_file import read
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, LimitError, PerfPassError
from perfpass.predictors.way import Way

FILES = [shipped.FOLDER / f"{name}.toml" for name in shipped.FILES]

# Every device string of the measured records that names a product of the catalogue, with the product it means.
RECORDED = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA GB200": "gb200-186gb",
    "NVIDIA B300 SXM6 AC": "b300-sxm-288gb",
    "AMD MI250 GPU": "mi250-gcd",
    "AMD Instinct MI250X (1 GCD)": "mi250x-gcd",
    "AMD Instinct MI100": "mi100",
    "AMD MI300X GPU": "mi300x",
    "Nvidia A100 GPU": "a100-sxm4-40gb",
    "Nvidia GH200 GPU": "gh200-96gb",
    "Nvidia H100 GPU": "h100-sxm5-80gb",
    "NVIDIA GeForce GTX 1080 Ti": "gtx-1080-ti",
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
    "NVIDIA TITAN X": "titan-x-pascal",
    "NVIDIA TITAN Xp": "titan-xp",
    "NVIDIA TITAN V": "titan-v",
    "NVIDIA TITAN RTX": "titan-rtx",
    "NVIDIA A10": "a10",
    "NVIDIA T4": "t4",
    "NVIDIA V100": "v100-sxm2-16gb",
    "AMD Instinct MI325": "mi325x",
    "NVIDIA A100-40GB": "a100-sxm4-40gb",
    "NVIDIA A100-80GB": "a100-sxm4-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A40": "a40",
    "NVIDIA L4": "l4",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "NVIDIA P100": "p100-pcie-16gb",
    "NVIDIA Quadro RTX 6000": "quadro-rtx-6000",
    "a100-80gb": "a100-sxm4-80gb",
    "h100-80gb": "h100-sxm5-80gb",
    "Intel Core i7-12700H": "core-i7-12700h",
    "Intel Core i9-10940X": "core-i9-10940x",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q": "rtx-pro-6000-blackwell-max-q",
    "NVIDIA H100-NVL-94GB": "h100-nvl-94gb",
    "NVIDIA H100-PCIe-80GB": "h100-pcie-80gb",
    "NVIDIA GH200 Grace Hopper Superchip 144GB": "gh200-144gb",
    "AMD Instinct MI300X-NPS1-SPX-192GB-750W": "mi300x",
    "NVIDIA A10G": "a10g",
    "1xA10G": "a10g",
    "NVIDIA A800": "a800-sxm4-80gb",
    "NVIDIA A800 80GB PCIe": "a800-pcie-80gb",
    "NVIDIA H800": "h800-sxm5-80gb",
    "NVIDIA GB300": "gb300-279gb",
    "NVIDIA Tesla P40": "p40",
    "NVIDIA Tesla M40 24GB": "m40-24gb",
    "NVIDIA Tesla V100S-PCIE-32GB": "v100s-pcie-32gb",
    "NVIDIA Tesla V100-SXM3-32GB": "v100-sxm3-32gb",
    "NVIDIA GeForce GTX TITAN X (Maxwell)": "gtx-titan-x-maxwell",
    "NVIDIA GeForce GTX 1060": "gtx-1060-6gb",
    "NVIDIA GeForce GTX 1650 Ti": "gtx-1650-ti",
    "NVIDIA GeForce RTX 2070 SUPER": "rtx-2070-super",
    "NVIDIA GeForce RTX 3050": "rtx-3050-8gb",
    "NVIDIA GeForce RTX 3060": "rtx-3060-12gb",
    "NVIDIA GeForce RTX 3080 Laptop GPU": "rtx-3080-laptop-gpu",
    "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti",
    "NVIDIA GeForce RTX 4070 Laptop GPU": "rtx-4070-laptop-gpu",
    "NVIDIA GeForce RTX 4090 D": "rtx-4090-d",
    "4 x RTX 4090": "rtx-4090",
    "NVIDIA Quadro RTX 5000": "quadro-rtx-5000",
    "NVIDIA RTX A5000 GPU": "rtx-a5000",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "RTX 6000 Pro Blackwell Server Edition": "rtx-pro-6000-server",
    "NVIDIA Jetson TX2": "jetson-tx2-8gb",
    "NVIDIA Xavier NX": "jetson-xavier-nx-8gb",
    "NVIDIA Jetson AGX Orin 32G": "jetson-agx-orin-32gb",
    "NVIDIA Orin NX 16G": "jetson-orin-nx-16gb",
    "NVIDIA Orin": "jetson-agx-orin-64gb",
    "NVIDIA Grace CPU": "grace-cpu",
    "AMD Radeon RX 6900 XT": "rx-6900-xt",
    "AMD Radeon RX 580 Series": "rx-580-8gb",
    "AMD Ryzen AI Max+ 395 (Radeon 8060S)": "ryzen-ai-max-plus-395",
    "Radeon 8060S Graphics": "ryzen-ai-max-plus-395",
    "Apple M1 Pro": "apple-m1-pro",
    "Intel® Gaudi® 2 AI Accelerator": "gaudi2-96gb",
    "TPU v5e": "tpu-v5e",
    "Google TPU v6e (Trillium)": "tpu-v6e",
    "Google TPU7x (Ironwood)": "tpu-v7x",
    "Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz": "xeon-gold-6248r",
    "Intel(R) Xeon(R) Platinum 8480+ 56-Core Processor": "xeon-platinum-8480-plus",
    "INTEL(R) XEON(R) 6980P": "xeon-6980p",
    "AMD EPYC 7742 64-Core Processor": "epyc-7742",
    "2xAMD EPYC 9374F": "epyc-9374f",
    "AMD Ryzen 9 7950X 16-Core Processor": "ryzen-9-7950x",
    "Intel Core i7-11700": "core-i7-11700",
    "Ampere Altra Q80-30": "altra-q80-30",
}

MINE = """
schema = 1
[[device]]
id = "my-gpu"
name = "My GPU 16GB"
aliases = ["mine"]
peak_tflops = { fp32 = 10, fp16 = 20 }
memory_gib = 16
bandwidth_gb_s = 500
sm_count = 40
boost_mhz = 1500
power_limit_w = 200
source = "its datasheet"
"""


@pytest.fixture(autouse=True)
def only_shipped_devices(monkeypatch, tmp_path):
    """No device files of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PERFPASS_DEVICES", raising=False)
    monkeypatch.setattr(lookup, "_added", {})


@pytest.mark.parametrize(("recorded", "expected"), RECORDED.items())
def test_device_strings_of_the_records_resolve(recorded, expected):
    assert device(recorded).id == expected


@pytest.mark.parametrize("spelling", ["rtx3090", "RTX-3090", "geforce rtx 3090", "NVIDIA GeForce RTX 3090", " 3090 "])
def test_spellings_of_one_device_are_one_device(spelling):
    assert device(spelling).id == "rtx-3090"


def test_every_id_name_and_alias_leads_to_its_device_alone():
    for known in catalogue():
        for name in (known.id, known.name, *known.aliases):
            assert device(name).id == known.id, name


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("a100", "a100-pcie-80gb"),
        ("H100", "h100-nvl-94gb"),
        ("v100", "v100-pcie-32gb"),
        ("p100", "p100-sxm2-16gb"),
        ("mi250", "mi250-module"),
    ],
)
def test_an_ambiguous_name_says_how_it_was_read(name, others):
    assert f"{name!r} was read as" in device(name).notes[-1]
    assert others in device(name).notes[-1]


@pytest.mark.parametrize("name", ["l40", "L40S", "t4", "NVIDIA H100 80GB HBM3", "mi250-gcd"])
def test_an_exact_name_carries_no_such_note(name):
    assert not any("was read as" in note for note in device(name).notes)


def test_an_unknown_device_names_the_nearest_and_the_way_to_add_one():
    with pytest.raises(DeviceError, match=r"a1000.*a100-sxm4-40gb.*perfpass devices.*PERFPASS_DEVICES"):
        device("a1000")


@pytest.mark.parametrize("name", ["", "   ", "x" * 201, None, 3, b"a100"])
def test_a_name_that_is_none_is_an_argument_error(name):
    with pytest.raises(ArgumentError):
        device(name)


def test_figures_are_plausible_and_consistent():
    for known in catalogue():
        assert set(known.peak_flops) <= set(PRECISIONS) and "fp32" in known.peak_flops, known.id
        assert 1e10 < known.peak_flops["fp32"] < 1e15, known.id
        assert 2**30 <= known.memory_bytes <= 8192 * 2**30, known.id
        assert 2e10 < known.memory_bandwidth_bytes_s < 2e13, known.id
        assert 0 < known.idle_power_w < known.power_limit_w <= 1500, known.id
        assert 0 < known.base_clock_hz <= known.clock_hz < 6.5e9, known.id
        assert 0 < known.l2_bytes < 2**31, known.id
        assert known.kind in ("gpu", "cpu"), known.id
        assert known.launch_date and re.fullmatch(r"20(1[2-9]|2[0-6])-(0[1-9]|1[0-2])", known.launch_date), known.id
        assert (known.compute_capability is not None) == (known.vendor == "NVIDIA" and known.is_gpu), known.id


def test_half_precision_is_no_slower_than_single_where_there_is_hardware_for_it():
    """Boards of compute capability 6.1 run fp16 at 1/64; CPUs without fp16 arithmetic convert it."""
    for known in catalogue():
        if known.is_gpu and known.compute_capability != (6, 1):
            for half in {"fp16", "bf16"} & set(known.peak_flops):
                assert known.peak_flops[half] >= known.peak_flops["fp32"], (known.id, half)


def test_a_board_of_two_gpus_is_the_one_that_a_program_sees():
    for die, module in (("mi250-gcd", "mi250-module"), ("mi250x-gcd", "mi250x-module")):
        one, both = device(die), device(module)
        assert (2 * one.memory_bytes, 2 * one.sm_count) == (both.memory_bytes, both.sm_count)
        assert 2 * one.memory_bandwidth_bytes_s == both.memory_bandwidth_bytes_s
        assert 2 * one.peak("fp16") == pytest.approx(both.peak("fp16"), rel=1e-3)
    assert device("MI250").id == device("mi250").id == "mi250-gcd"
    assert device("m60").memory_bytes == 8 * 2**30


def test_check_bits_take_a_sixteenth_of_server_boards_with_gddr():
    # MiB that nvidia-smi shows of them
    for name, shown in (("t4", 15_360), ("l40s", 46_068), ("a10", 23_028), ("k80", 11_441), ("p40", 22_919)):
        board = device(name)
        assert board.inline_ecc and board.usable_bytes / 2**20 == pytest.approx(shown, rel=0.008), name
    for name in ("a100-sxm4-80gb", "rtx-4090", "rtx-a6000", "a100:1g.5gb"):  # HBM, ECC off as sold, a slice
        assert device(name).usable_bytes == device(name).memory_bytes
    # A slice of a board of one's own that keeps them: the driver lists what is left.
    listed = device("a100-40gb:1g.5gb").memory_bytes
    assert replace(device("a100-40gb"), inline_ecc=True).mig_slice("1g.5gb").usable_bytes == listed
    assert "16 GiB GDDR6 (15 GiB without check bits)" in device_sheet(device("t4"))


def test_memory_shared_with_the_host_is_said():
    for name in ("jetson-agx-orin-64gb", "gb10", "apple-m2-max", "ryzen-ai-max-plus-395", "mi300a"):
        assert any("memory is shared with" in note for note in device(name).notes), name


def test_nvidia_vector_rates_follow_from_cores_and_clock():
    """fp32 = SMs x lanes x 2 x boost: 192 lanes per SM on Kepler, 64 on GP100, Volta, Turing, GA100, else 128."""
    for known in catalogue():
        if known.vendor != "NVIDIA" or not known.is_gpu:
            continue
        if known.id in ("h100-nvl-94gb", "gb200-186gb", "b300-sxm-288gb", "h20-96gb"):
            continue  # stated at another clock than the boost clock of the catalogue
        lanes = 64 if known.compute_capability in ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)) else 128
        lanes = 192 if known.compute_capability[0] == 3 else lanes
        expected = known.sm_count * lanes * 2 * known.clock_hz
        assert math.isclose(known.peak_flops["fp32"], expected, rel_tol=0.05), known.id


def test_every_figure_names_its_source():
    for known in catalogue():
        figures = {"peak_tflops", "memory_gib", "bandwidth_gb_s", "sm_count", "power_limit_w", "l2_mib"}
        assert figures <= set(known.sources), known.id
        assert all(len(title) > 8 for title in known.sources.values()), known.id


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_of_the_catalogue_is_declared_and_used(path):
    document = tomllib.loads(path.read_text())
    used = set()
    for row in document["device"]:
        used |= {row["source"], *row.get("sources", {}).values()}
        if row.get("vendor", "NVIDIA") == "NVIDIA" and row.get("kind") != "cpu":
            used.add("cuda-guide")  # of what the compute capability says
    assert used == set(document["sources"])


def test_one_source_has_one_title():
    titles: dict[str, str] = {}
    for path in FILES:
        for key, title in tomllib.loads(path.read_text())["sources"].items():
            assert titles.setdefault(key, title) == title, key


def test_estimated_figures_say_how_they_were_made():
    for known in catalogue():
        assert not known.estimated or known.notes, known.id
        assert "idle_power_w" in known.estimated, "no vendor publishes it; a source would be news"


def test_the_block_parser_reads_the_file_as_tomllib_does():
    rows = [row for path in FILES for row in tomllib.loads(path.read_text())["device"]]
    assert [d.id for d in catalogue()] == [row["id"] for row in rows] == list(lookup.device_ids())
    assert [(d.name, *d.aliases) for d in catalogue()] == [(row["name"], *row.get("aliases", [])) for row in rows]
    assert {path.stem for path in shipped.FOLDER.iterdir()} == {*shipped.FILES, "architectures"}


def test_boards_are_found_without_reading_processors():
    apart = [known for known in catalogue() if known.kind != "cpu" and not known.unified_memory]
    assert list(catalogue(boards=True)) == apart


def test_a_device_can_be_pickled_hashed_and_passed_back():
    a100 = device("a100-sxm4-80gb")
    assert pickle.loads(pickle.dumps(a100)) == a100
    assert {a100: 1}[device("NVIDIA A100-SXM4-80GB")] == 1
    assert device(a100) is a100
    assert perfpass.device("t4") == device("t4")


def test_a_missing_rate_is_a_device_error_that_lists_the_others():
    with pytest.raises(DeviceError, match=r"no bf16 rate.*fp16"):
        device("v100").peak("bf16")


def test_a_device_file_adds_a_device(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    (added,) = devices.add_file(path)
    assert device("mine") == added == device("my gpu 16gb")
    assert added.peak_flops == {"fp32": 10e12, "fp16": 20e12}
    assert added.memory_bytes == 16 << 30
    assert added.memory_bandwidth_bytes_s == 500e9
    assert added.sources["memory_gib"] == "its datasheet"
    assert added.idle_power_w == pytest.approx(24) and "idle_power_w" in added.estimated
    assert added in catalogue()


def test_devices_of_a_user_that_are_spelled_alike_are_told_apart_by_their_ids(tmp_path):
    entry = '[[device]]\nid = "{0}"\nname = "Odd {1}"\nkind = "{1}"\narchitecture = "mystery"\nmemory_gib = 8\n'
    entry += 'peak_tflops = {{ fp32 = 1 }}\nmemory_type = "DDR4"\nbandwidth_gb_s = 40\nsm_count = 1\n'
    entry += 'power_limit_w = 50\nsource = "x"\n'
    file = tmp_path / "odd.toml"
    file.write_text("schema = 1\n" + entry.format("odd-cpu", "cpu") + entry.format("odd-gpu", "gpu"), encoding="utf-8")
    devices.add_file(file)
    assert [devices.device(name).kind for name in ("odd-cpu", "odd-gpu")] == ["cpu", "gpu"]


def test_device_files_are_found_in_the_configuration_folder_and_the_environment(tmp_path, monkeypatch):
    folder = tmp_path / "config" / "perfpass" / "devices"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(MINE)
    other = tmp_path / "other.toml"
    other.write_text(MINE.replace("my-gpu", "their-gpu").replace("My GPU", "Their GPU").replace("mine", "theirs"))
    monkeypatch.setenv("PERFPASS_DEVICES", str(other))
    assert device("mine").id == "my-gpu"
    assert device("theirs").id == "their-gpu"


def test_a_users_device_replaces_a_shipped_one_of_the_same_id(tmp_path):
    path = tmp_path / "t4.toml"
    path.write_text(MINE.replace("my-gpu", "t4").replace("My GPU 16GB", "T4 at 50 W").replace("mine", "t4 eco"))
    assert device("t4").power_limit_w == 70  # what was found of a name is not kept beyond it
    devices.add_file(path)
    assert device("t4").power_limit_w == 200
    assert sum(d.id == "t4" for d in catalogue()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_gib = 16", "memory_gib = 17179869184"), "memory_gib 17179869184; .*check the unit"),
        (("memory_gib = 16", "memory_gib = -1"), "memory_gib -1"),
        (("memory_gib = 16", 'memory_gib = "16"'), "memory_gib '16'; it is a finite number"),
        (("memory_gib = 16", "memory_gib = true"), "memory_gib True; it is a finite number"),
        (("memory_gib = 16", "memory_gib = nan"), "memory_gib nan"),
        (("memory_gib = 16", "memory_gib = inf"), "memory_gib inf"),
        (("memory_gib = 16", ""), "lacks memory_gib"),
        (("memory_gib = 16", 'memory_gib = 16\nlaunch = "gpu"'), "launch 'gpu'; it is a year, or a year and month"),
        (("memory_gib = 16", 'memory_gib = 16\nlaunch = "9999-01"'), "launch '9999-01'"),
        (("memory_gib = 16", 'memory_gib = 16\nlaunch = "inf-"'), "launch 'inf-'"),
        (("fp32 = 10", "fp32 = 1e13"), r"peak_tflops: fp32 1.*10\^12"),
        (("fp32 = 10, ", ""), "peak_tflops: lacks fp32"),
        (("fp16 = 20", "fp17 = 20"), "peak_tflops: unknown 'fp17'"),
        (("sm_count = 40", "sm_count = 40.5"), "whole number"),
        (("boost_mhz = 1500", "boost_mhz = 1500\nbase_mhz = 1600"), "base_mhz 1600 is above"),
        (("boost_mhz = 1500", "boost_mhz = 1500\nspeed = 3"), "unknown 'speed'"),
        (("boost_mhz = 1500", 'kind = "tpu"'), "kind 'tpu'"),
        (("boost_mhz = 1500", 'mig = "a101"'), "unknown MIG geometry"),
        (("boost_mhz = 1500", "idle_power_w = 300"), "not below power_limit_w"),
        (("boost_mhz = 1500", "compute_capability = [8]"), "compute_capability"),
        (("boost_mhz = 1500", "link_group = 1"), "link_group 1 counts .* it is 2 or more; leave it out"),
        (("boost_mhz = 1500", "link_group = 3\nlink_peers = 3"), "it is 4 or more beside link_peers 3"),
        (("boost_mhz = 1500", "link_group = 2.5"), "link_group 2.5; it is a whole number"),
        (("boost_mhz = 1500", "link_group = -2"), "link_group -2"),
        (("boost_mhz = 1500", 'link_group = "two"'), "link_group 'two'; it is a finite number"),
        (("boost_mhz = 1500", 'sources = { l2_mib = "x" }'), "does not state"),
        (("boost_mhz = 1500", "notes = [1]"), "notes, value 1, 1; it is a printable text"),
        (('id = "my-gpu"', 'id = "my\\u001bgpu"'), "printable"),
        (('id = "my-gpu"', f'id = "{"x" * 501}"'), "1 to 500 characters"),
        (('id = "my-gpu"', 'id = ""'), "id ''; it is a printable text"),
        (("schema = 1", "schema = 2"), "schema 2"),
        (("[[device]]", "[gadgets]\n[[device]]"), "unknown 'gadgets'"),
        (("[[device]]", "[device]"), "it is a list of .* .\\[\\[device\\]\\] blocks"),
        (("[[device]]", "[[device"), "not a TOML file"),
    ],
)
def test_a_wrong_device_file_is_an_error_that_names_file_and_figure(tmp_path, change, message):
    path = tmp_path / "wrong.toml"
    path.write_text(MINE.replace(*change))
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert "wrong.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "a:1g.5gb", ".hidden", "a b", "x" * 101, "-v"])
def test_an_id_is_a_word_for_command_lines_and_file_names(tmp_path, name):
    (tmp_path / "d.toml").write_text(MINE.replace('"my-gpu"', f'"{name}"'))
    with pytest.raises(FormatError, match=r"d\.toml.* an id has letters, digits"):
        read(tmp_path / "d.toml")


def test_two_blocks_of_one_id_are_an_error_however_it_is_written(tmp_path):
    second = MINE.replace("schema = 1", "")
    for other in ("my-gpu", "My_GPU"):
        (tmp_path / "d.toml").write_text(MINE + second.replace('"my-gpu"', f'"{other}"'))
        with pytest.raises(FormatError, match=r"2 \[\[device\]\] blocks have the id"):
            read(tmp_path / "d.toml")
    (tmp_path / "d.toml").write_text(MINE.replace('["mine"]', '["CPU"]'))
    with pytest.raises(FormatError, match="is called 'cpu', as the machine"):
        read(tmp_path / "d.toml")


@pytest.mark.parametrize("change", [('"my-gpu"', '"a100"'), ('["mine"]', '["A100"]'), ("My GPU 16GB", "a100")])
def test_a_users_device_that_hides_a_name_of_the_catalogue_says_so(tmp_path, change):
    (tmp_path / "d.toml").write_text(MINE.replace(*change))
    (mine,) = devices.add_file(tmp_path / "d.toml")
    found = device("a100")
    assert found.id == mine.id and "the catalogue's a100-sxm4-40gb has that name too" in found.read_as
    assert found.read_as in found.notes and device("a100-sxm4-40gb").id == "a100-sxm4-40gb"


def test_a_device_that_replaces_a_shipped_one_of_its_id_is_no_surprise(tmp_path):
    (tmp_path / "d.toml").write_text(MINE.replace('"my-gpu"', '"t4"'))
    devices.add_file(tmp_path / "d.toml")
    assert device("t4").memory_bandwidth_bytes_s == 500e9 and not device("t4").read_as


@pytest.mark.parametrize("name", ["a100:", "a100: ", "a100/", "A100 MIG", "a100:::", ":1g.5gb", ":a100", "a100:-"])
def test_a_slice_without_a_profile_is_not_the_whole_gpu(name):
    with pytest.raises(DeviceError, match="names no MIG profile or no device"):
        device(name)


@pytest.mark.parametrize("name", ["epyc-9654:32", "AMD EPYC 9654:32", "epyc-9654:32 threads", "epyc-9654:32c"])
def test_a_number_of_threads_is_so_many_cores_of_a_cpu(name):
    whole, found = device("epyc-9654"), device(name)
    assert (found.id, found.sm_count, found.parent) == ("epyc-9654:32", 32, "epyc-9654")
    assert found.peak_flops["fp32"] == pytest.approx(whole.peak_flops["fp32"] / 3)
    assert (found.l3_bytes, found.memory_bytes) == (whole.l3_bytes, whole.memory_bytes)
    assert "32 of its 96 cores" in found.read_as
    assert device("epyc-9654:96") == whole


def test_few_threads_ask_for_less_than_all_of_the_memorys_bandwidth():
    whole = device("epyc-9654")
    bandwidth = [whole.of_threads(n).memory_bandwidth_bytes_s for n in (1, 2, 48, 96)]
    assert bandwidth[0] == CORE_BYTES_PER_CYCLE * whole.base_clock_hz
    assert bandwidth == sorted(bandwidth) and bandwidth[-1] == whole.memory_bandwidth_bytes_s


@pytest.mark.parametrize("name", ["epyc-9654:0", "epyc-9654:97", "a100-80gb:4"])
def test_threads_that_are_not_there_are_refused_with_what_is(name):
    with pytest.raises(DeviceError, match=r"ask for 1 to 96|is a GPU"):
        device(name)


def test_hostile_device_files_are_refused(tmp_path):
    big, binary, deep = tmp_path / "big.toml", tmp_path / "binary.toml", tmp_path / "deep.toml"
    big.write_bytes(b"#" * (1 << 21))
    binary.write_bytes(bytes(range(256)))
    deep.write_text("a = " + "[" * 5000 + "]" * 5000)
    for path, error in ((big, LimitError), (binary, FormatError), (deep, FormatError), (tmp_path / "no", FileError)):
        with pytest.raises(error, match=path.name):
            read(path)


def test_a_broken_file_in_the_configuration_folder_is_named(tmp_path, monkeypatch):
    path = tmp_path / "broken.toml"
    path.write_text("device = 3")
    monkeypatch.setenv("PERFPASS_DEVICES", str(path))
    with pytest.raises(PerfPassError, match=r"broken\.toml"):
        device("t4")


def test_this_machine_is_a_device():
    cpu = device("cpu")
    assert cpu == device("host")
    assert cpu.kind == "cpu" and cpu.sm_count >= 1 and cpu.memory_bytes > 2**28
    assert {"memory_bandwidth_bytes_s", "power_limit_w"} <= set(cpu.estimated)


EPYC = """processor\t: {n}
vendor_id\t: AuthenticAMD
cpu family\t: {family}
model\t: {model}
model name\t: AMD EPYC
core id\t: {n}
cpu MHz\t: 2500.000
flags\t: fpu sse2 avx avx2 fma{wide}
"""
WIDE = " avx512f avx512_vnni avx512_bf16"
# Zen 3, Zen 4, Zen 5 of servers, Zen 5 of laptops: a virtual machine calls those of servers alike.
GENERATIONS = [(25, 1, "", 32, False), (25, 17, WIDE, 32, True), (26, 2, WIDE, 64, False), (26, 0x24, WIDE, 32, True)]


@pytest.mark.parametrize(("family", "model", "wide", "flop_per_cycle", "halved"), GENERATIONS)
def test_cores_that_take_two_cycles_for_512_bits_are_told_apart(tmp_path, family, model, wide, flop_per_cycle, halved):
    (tmp_path / "proc").mkdir()
    blocks = [EPYC.format(n=n, family=family, model=model, wide=wide) for n in range(2)]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(blocks))
    (tmp_path / "proc/meminfo").write_text("MemTotal:       8000000 kB\n")
    cpu = host(tmp_path)
    assert cpu.peak_flops["fp32"] == 2 * 2.5e9 * flop_per_cycle
    assert cpu.peak_flops["int8"] == (4 if wide else 2) * cpu.peak_flops["fp32"]  # as the catalogue's EPYC 7763
    assert any("512 bits take two cycles" in note for note in cpu.notes) == halved
    assert Way(cpu).on_measured_cpu(["AMD EPYC"]) == (flop_per_cycle == 64)


XEON = """processor\t: {n}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
physical id\t: {socket}
core id\t: {core}
cpu MHz\t: 2000.000
flags\t: fpu sse2 avx avx2 fma avx512f avx512_vnni avx512_bf16 amx_bf16 amx_int8
"""


def test_cpu_detection_counts_cores_clock_caches_and_vector_units(tmp_path):
    """Two sockets of two cores with two threads each, on a made-up /proc and /sys."""
    blocks = [XEON.format(n=n, socket=n // 4, core=n % 2) for n in range(8)]
    cache = tmp_path / "sys/devices/system/cpu/cpu0/cache"
    for index, (level, text, shared) in enumerate([(1, "48K", "0,4"), (2, "2048K", "0,4"), (3, "105M", "0-3")]):
        folder = cache / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{text}\n")
        (folder / "shared_cpu_list").write_text(f"{shared}\n")
    (tmp_path / "sys/devices/system/cpu/cpu0/cpufreq").mkdir()
    (tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").write_text("3800000\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("\n".join(blocks))
    (tmp_path / "proc/meminfo").write_text("MemTotal:       263000000 kB\nMemFree: 1 kB\n")
    cpu = host(tmp_path)
    assert cpu.name == "Intel Xeon Platinum 8480+" and cpu.vendor == "Intel"
    assert cpu.sm_count == 4
    assert cpu.clock_hz == 3.8e9 and "clock_hz" not in cpu.estimated
    assert cpu.memory_bytes == 263000000 * 1024
    assert cpu.l2_bytes == 4 * 2048 * 1024  # one per core, two threads share it
    assert cpu.l3_bytes == 2 * 105 << 20  # one per socket
    assert cpu.peak_flops["fp32"] == 4 * 64 * 3.8e9
    assert cpu.peak_flops["bf16"] == 4 * 2048 * 3.8e9
    assert cpu.peak_flops["int8"] == 4 * 4096 * 3.8e9


def test_cpu_detection_without_proc_says_what_to_do(tmp_path):
    with pytest.raises(DeviceError, match="device file"):
        host(tmp_path)


def test_to_dict_is_complete_strict_json():
    import dataclasses
    import json

    for known in (*catalogue(), device("cpu"), device("a100:1g.5gb")):
        as_dict = json.loads(json.dumps(known.to_dict(), allow_nan=False))
        fields = {f.name for f in dataclasses.fields(known)} - {"mig_geometry"}
        assert fields <= set(as_dict)


def test_figures_that_were_read_in_no_source_are_estimated_and_said():
    from perfpass.prediction import Support

    assert device("rtx-4090").unread == ""
    said = device("radeon-780m").unread
    assert "bandwidth_gb_s" in said and "memory_gib" in said
    assert Support("in range").at_most("near", said) == Support("near", (said,))
    assert Support("outside", ("first",)).at_most("near", said) == Support("outside", ("first", said))
    for one in catalogue():
        unread = [figure for figure, title in one.sources.items() if title.startswith(UNREAD)]
        assert set(unread) <= {*one.estimated, "boost_mhz", "base_mhz", "sm_count"} or one.kind == "cpu", one.id


def test_links_to_each_peer_give_two_devices_one_of_them():
    meshed, switched = device("mi300x"), device("h100")
    assert [meshed.link_bytes_s(n) / 1e9 for n in (2, 4, 8)] == [64, 192, 448]
    assert switched.link_bytes_s(2) == switched.link_bytes_s(8) == switched.nvlink_bandwidth_bytes_s / 2
    assert device("a100-80gb:1g.10gb").link_bytes_s(2) == 0


def test_every_board_that_a_bridge_links_says_how_many_it_joins():
    switched = re.compile(r"sxm|^g[bh]\d|^h20-")  # modules of HGX and NVL72, joined by switches
    for known in catalogue():
        if known.vendor == "NVIDIA" and known.nvlink_bandwidth_bytes_s:
            of_a_bridge = 0 if switched.search(known.id) else 4 if known.id.startswith("h200-nvl") else 2
            assert known.link_group == of_a_bridge, known.id
    assert device("mi100").link_group == device("mi210").link_group == 4
    assert all(d.nvlink_bandwidth_bytes_s and d.sources["link_group"] for d in catalogue() if d.link_group)


def test_beyond_its_bridge_a_board_has_no_link():
    pair, four, mesh = device("rtx-a6000"), device("h200-nvl"), device("mi210")
    assert [pair.link_bytes_s(n) / 1e9 for n in (1, 2, 3, 8)] == [56.25, 56.25, 0, 0]
    assert [four.link_bytes_s(n) / 1e9 for n in (2, 4, 8)] == [450, 450, 0]
    assert [mesh.link_bytes_s(n) / 1e9 for n in (2, 4, 8)] == [50, 150, 0]
    assert "a bridge joins 2" in device_sheet(pair) and "a bridge" not in device_sheet(device("h100"))
    assert device("a100-pcie-80gb:1g.10gb").link_group == 0


def test_a_device_file_says_how_many_its_bridge_joins(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("boost_mhz = 1500", "boost_mhz = 1500\nnvlink_gb_s = 100\nlink_group = 2"))
    (mine,) = read(path)
    assert mine.link_group == mine.to_dict()["link_group"] == 2
    assert [mine.link_bytes_s(n) / 1e9 for n in (2, 4)] == [50, 0]


@pytest.mark.parametrize(
    "name", ["Ryzen AI Max+ 395 CPU", "Ryzen AI Max+ 395 CPU:8", "M4 Max CPU", "Apple M2 processor"]
)
def test_a_processor_of_which_the_gpu_alone_is_known_is_not_read_as_that(name):
    with pytest.raises(DeviceError, match=r"asks for a processor's cores; the catalogue has its GPU alone \("):
        device(name)


def test_names_that_end_in_cpu_find_processors_as_before():
    assert device("Grace CPU").kind == device("Intel(R) Core(TM) i7-12700H CPU").kind == "cpu"
    assert device("Ryzen AI Max+ 395").kind == "gpu"
