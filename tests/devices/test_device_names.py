"""Names of devices as drivers, clouds, benchmarks and people write them: one place reads them all (names.py)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import tomllib

from perfpass import toml_table
from perfpass.devices import device
from perfpass.devices.names import alike, joined, readings, shared
from perfpass.errors import DeviceError

# Every name of a device in the columns of the public tables: where (community: strings of torch on machines of one
# community's benchmark; table: the others), name, id or "refused", what the refusal says.
RECORDED = [
    line.split("\t") for line in Path(__file__).with_name("recorded_names.tsv").read_text(encoding="utf-8").splitlines()
]

# Names that were tried one by one: of drivers and lspci, of clouds' machines, of benchmarks, of people; each as above.
TRIED = [
    line.split("\t") for line in Path(__file__).with_name("written_names.tsv").read_text(encoding="utf-8").splitlines()
]

# A list made before the catalogue was widened, cut in two by chance: half "a" was read to see what was missing, half
# "b" was only counted until the boards that half "a" asked for stood.
LISTED = [
    line.split("\t") for line in Path(__file__).with_name("listed_names.tsv").read_text(encoding="utf-8").splitlines()
]

WRITTEN = {
    "MacBook Pro M3 Max": "apple-m3-max",
    "Colab T4": "t4",
    "H100 94GB": "h100-nvl-94gb",
    "HL-225": "gaudi2-96gb",
    "tpu-v5-lite-podslice": "tpu-v5e",  # GKE
    "nvidia-h100-mega-80gb": "h100-sxm5-80gb",
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c6c7d8a-0000)": "a100-sxm4-40gb",  # nvidia-smi -L
    "NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)": "rtx-3090",  # lspci
    "AMD Corporation [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M] (rev c8)": "rx-7900-xtx",
    "Quadro RTX 6000/PCIe/SSE2": "quadro-rtx-6000",  # OpenGL
    "AMD Radeon RX 7900 XTX (RADV NAVI31)": "rx-7900-xtx",  # Vulkan
    "Intel(R) Arc(TM) A770 Graphics": "arc-a770-16gb",  # WMI
    "Intel(R) UHD Graphics 770": "uhd-graphics-770",
    "Intel(R) Iris(R) Xe Graphics": "iris-xe-96eu",
    "AMD Radeon(TM) 780M": "radeon-780m",
    "Radeon RX 570 Series": "rx-570",
    "AMD Radeon (TM) RX 480 Graphics": "rx-480",
    "NVIDIA GeForce RTX 2070 with Max-Q Design": "rtx-2070-max-q",
    "RTX 3070 Mobile": "rtx-3070-laptop-gpu",
    "rtx 3080 notebook": "rtx-3080-laptop-gpu",
    "GeForce GTX 1060 Mobile": "gtx-1060-laptop-gpu",
    "gfx90a": "mi250x-gcd",  # rocminfo
    "gfx942": "mi300x",
    "gfx1100": "rx-7900-xtx",
    "gfx906": "mi50",
    "AMD Instinct MI250X/MI250": "mi250x-gcd",
    "Tesla K80": "k80",
    "Tesla K40m": "k40m",
    "Radeon Instinct MI25": "mi25",
    "Arc B580": "arc-b580",
    "4090 24G": "rtx-4090",
    "RTX 3060 8GB": "rtx-3060-8gb",
    "2 x RTX 3090": "rtx-3090",
    "A100-SXM-80GBx8": "a100-sxm4-80gb",
    "Dell PowerEdge XE9680 (8x H100-SXM-80GB, TensorRT)": "h100-sxm5-80gb",
    "DGX-H100": "h100-sxm5-80gb",
    "DGX A100": "a100-sxm4-40gb",
    "NVIDIA DGX H100": "h100-sxm5-80gb",
    "TPU v3-8": "tpu-v3",
    "p2.xlarge": "k80",
    "Gold 6226": "xeon-gold-6226",
    "AMD Instinct MI300X VF": "mi300x",
    "GA106M [GeForce RTX 3060 Mobile / Max-Q]": "rtx-3060-laptop-gpu",
    "GeForce RTX 3080 Ti Lite Hash Rate": "rtx-3080-ti",
}


@pytest.mark.parametrize("where", ["community", "table"])
def test_every_recorded_name_gives_its_device_or_a_reason(where):
    wrong = []
    for source, name, expected, *reason in RECORDED:
        if source != where:
            continue
        try:
            found = device(name).id
        except DeviceError as error:
            found = "refused" if not reason or reason[0] in str(error) or reason[0] == "another memory" else str(error)
        if found != expected:
            wrong.append((name, expected, found))
    assert not wrong


def test_a_thousand_names_give_their_device_or_a_reason():
    assert not list(wrong_of(TRIED))
    refused = sum(expected == "refused" for _, expected, *_ in TRIED)
    assert len(TRIED) > 1000 and refused < 0.145 * len(TRIED)


@pytest.mark.parametrize("half", ["a", "b"])
def test_names_of_a_list_give_their_device_or_a_reason(half):
    names = [row for mine, *row in LISTED if mine == half]
    assert not list(wrong_of(names))
    assert len(names) > 340 and sum(expected == "refused" for _, expected, *_ in names) < 0.1 * len(names)


def wrong_of(names):
    for name, expected, *reason in names:
        try:
            found = device(name).id
        except DeviceError as error:
            found = "refused" if reason and reason[0] in str(error) else str(error)
        if found != expected:
            yield name, expected, found


@pytest.mark.parametrize(
    ("name", "expected", "others"),
    [
        ("Apple M3 Max", "apple-m3-max", {"apple-m3-max-30-core"}),  # sysctl
        ("Apple M3 Max 30-core", "apple-m3-max-30-core", set()),
        ("M3 Max 16C CPU 40C GPU", "apple-m3-max", set()),
        ("M4 Max (14C CPU, 32C GPU)", "apple-m4-max-32-core", set()),
        ("MacBook Pro M3 Max 14-core CPU 30-core GPU", "apple-m3-max-30-core", set()),
        ("MacBook Pro (16-inch, M1 Max)", "apple-m1-max", {"apple-m1-max-24-core"}),
        ("M5 Pro", "apple-m5-pro", {"apple-m5-pro-16-core"}),
    ],
)
def test_the_cores_of_an_apple_chip_choose_it(name, expected, others):
    found = device(name)
    assert found.id == expected and set(found.others) == others


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("4050M", "rtx-4050-laptop-gpu"),
        ("4070 laptop", "rtx-4070-laptop-gpu"),
        ("RTX A2000 8GB Laptop GPU", "rtx-a2000-8gb-laptop-gpu"),
        ("RTX A2000", "rtx-a2000"),
        ("RTX PRO 5000 Laptop", "rtx-pro-5000-laptop-gpu"),
        ("RTX PRO 5000", "rtx-pro-5000-blackwell"),
        ("5060 ti 8GB", "rtx-5060-ti-8gb"),
        ("H100 NVL", "h100-nvl-94gb"),
        ("H100 PCIe", "h100-pcie-80gb"),
        ("H100 SXM", "h100-sxm5-80gb"),
        ("L4", "l4"),
        ("L40", "l40"),
        ("T400", "t400"),
        ("T4", "t4"),
        ("T4G", "t4g"),
        ("MI50 32GB", "mi50-32gb"),
        ("AMD Ryzen 7 8845HS w/ Radeon 780M Graphics", "radeon-780m"),
        ("AMD Ryzen 7 5700G with Radeon Graphics", "ryzen-7-5700g"),
    ],
)
def test_a_near_name_is_no_other_board(name, expected):
    assert device(name).id == expected


def test_a_name_of_several_boards_without_a_first_is_refused_with_them():
    with pytest.raises(DeviceError, match="quadro-rtx-4000 or rtx-4000-sff-ada or rtx-4000-ada"):
        device("RTX 4000")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Tesla M4", "m40"), ("GeForce M2", None), ("Radeon T4", None), ("Apple T4", None)],
)
def test_a_maker_that_is_named_is_the_boards(name, expected):
    with pytest.raises(DeviceError, match=f"did you mean .*{expected}" if expected else "unknown device"):
        device(name)


def test_the_names_of_the_community_are_known():
    community = [expected for where, _, expected, *_ in RECORDED if where == "community"]
    refused = community.count("refused")
    assert len(community) > 310 and refused < 10


@pytest.mark.parametrize(("name", "expected"), WRITTEN.items())
def test_names_as_tools_and_people_write_them(name, expected):
    assert device(name).id == expected


def test_a_name_of_several_boards_gives_one_and_names_the_others():
    found = device("gfx90a")
    assert found.id == "mi250x-gcd" and found.others == ("mi250-gcd", "mi210")
    assert "others of that name: mi250-gcd, mi210" in found.notes[-1]
    assert "a100-pcie-80gb" in device("A100 GPUs (FP16)").others


def test_a_dressed_name_says_what_was_read_and_what_was_not_used():
    found = device("NVIDIA GeForce RTX 3060 (2) (sm_86) (8, 6) cuda:11.7 cudnn:8500 12GB")
    assert found.id == "rtx-3060-12gb"
    assert "2 x NVIDIA GeForce RTX 3060" in found.read_as and "cuda:11.7 cudnn:8500" in found.read_as
    assert device("T4 (Ubuntu 20.04), clocks locked at 990 MHz").read_as.endswith("clocks locked at 990 MHz")


def test_the_memory_that_a_name_says_chooses_the_board():
    driver = "NVIDIA GeForce {} (1) (sm_86) (8, 6) cuda:11.7 cudnn:8500 {}GB"
    assert device(driver.format("RTX 3060", 8)).id == "rtx-3060-8gb"
    assert device(driver.format("GTX 1060", 3)).id == "gtx-1060-3gb"
    odd = device(driver.format("RTX 3060 Laptop GPU", 12))
    assert odd.id == "rtx-3060-laptop-gpu" and any("the driver reported 12 GB" in note for note in odd.notes)
    assert device(driver.format("RTX 3080 Laptop GPU", 16)).id == "rtx-3080-laptop-gpu-16gb"
    assert device("V100 (32GB HBM2)").id == "v100-sxm2-32gb"
    assert device("8 NVIDIA Tesla V100 (32G)").id == "v100-sxm2-32gb"
    with pytest.raises(DeviceError, match=r"no known board of that name has 40 GB; known: rtx-3090 \(24 GiB\)"):
        device("RTX 3090 40GB")


def test_of_boards_that_a_name_may_mean_those_of_its_memory_are_named():
    driver = "NVIDIA GeForce GTX 1060 (1) (compute_37) (6, 1) cuda:11.7 cudnn:8500 6GB"
    assert device(driver).others == ("gtx-1060-laptop-gpu", "gtx-1060-max-q")
    assert "gtx-1060-3gb" in device("GTX 1060").others
    assert device("A100 (40GB)").others == ("a100-pcie-40gb",)


@pytest.mark.parametrize(
    ("name", "expected", "others"),
    [
        ("A100", "a100-sxm4-40gb", {"a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}),
        ("a100_sxm", "a100-sxm4-40gb", {"a100-sxm4-80gb"}),
        ("A100-SXM4", "a100-sxm4-40gb", {"a100-sxm4-80gb"}),
        ("DGX A100", "a100-sxm4-40gb", {"a100-sxm4-80gb"}),
        ("rtx3080", "rtx-3080-10gb", {"rtx-3080-12gb", "rtx-3080-laptop-gpu"}),
        ("NVIDIA GeForce GTX 1070", "gtx-1070", {"gtx-1070-laptop-gpu"}),
        ("NVIDIA GeForce RTX 2070", "rtx-2070", {"rtx-2070-laptop-gpu"}),
        ("NVIDIA P104-100", "p104-100", {"p104-100-8gb"}),
        ("Quadro T1000", "quadro-t1000-laptop-gpu", {"t1000"}),
        ("[Radeon RX 7900 XT/7900 XTX/7900M]", "rx-7900-xt", {"rx-7900-xtx", "rx-7900m"}),
        ("Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M] (rev c8)", "rx-7900-xt", {"rx-7900-xtx"}),
    ],
)
def test_what_a_shared_name_was_taken_for_is_said(name, expected, others):
    found = device(name)
    assert found.id == expected and others <= set(found.others)
    said = " ".join((*found.notes, found.read_as))
    assert all(other in said for other in others)


def test_another_product_is_no_namesake():
    assert not {"rtx-3060-ti", "rtx-3080-ti", "rtx-3080-ti-laptop-gpu"} & {
        *device("RTX 3060").others,
        *device("RTX 3080").others,
    }


def test_a_system_beside_the_name_tells_the_form_of_its_boards():
    assert device("NVIDIA DGX-2 (16x V100 32GB)").id == "v100-sxm3-32gb"
    assert device("NVIDIA DGX-1 (8x V100 32GB)").id == "v100-sxm2-32gb"
    assert device("A100 (PCIe 80GB)").id == "a100-pcie-80gb"


@pytest.mark.parametrize("name", ["RTX 4050", "RTX 3050 Ti", "NVIDIA GeForce RTX 2050", "Quadro T2000", "RTX A3000"])
def test_what_only_laptops_have_needs_no_word_for_it(name):
    assert "laptop" in device(name).id


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Samsung Galaxy S24", "a phone"),
        ("Snapdragon 8 Elite QRD", "a phone"),
        ("NUCLEO_L4R5ZI_int8", "a microcontroller"),
        ("VCU128", "an FPGA"),
        ("QUALCOMM Cloud AI 100 Ultra", "not a device perfpass predicts, until a device file describes it"),
        ("NVIDIA A10-24Q", "vGPU"),
        ("NVIDIA A100 MIG instance (profile not stated)", "a MIG slice whose profile is not said"),
        ("NVIDIA GeForce RTX 4090 + RTX 3090 Ti", "several devices that differ"),
        ("AMD Radeon Graphics", "does not say which device"),
        ("cuda:0", "does not say which device"),
        ("sm_80", "does not say which device"),
        ("GA100", "does not say which device"),
        ("inf2.xlarge", "no figures stand in the catalogue"),
        ("10de:20b5", "nvidia-smi -L"),
        ("AMD EPYC 7R13 Processor", "no figures stand in the catalogue"),
        ("not stated", "no device is named"),
    ],
)
def test_what_is_no_device_is_refused_by_name_with_the_reason(name, reason):
    with pytest.raises(DeviceError, match=reason):
        device(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rtx 3095", "rtx-309"),
        ("gtx 1085 ti", "gtx-1080-ti"),
        ("mi351x", "mi35"),
        ("RTX 6000", "quadro-rtx-6000 or rtx-6000-ada"),
        ("4090 ti", "rtx-4070-ti"),
        ("Xeon Platinum 8359", "xeon-platinum-8358"),
    ],
)
def test_a_near_miss_names_the_nearest(name, nearest):
    with pytest.raises(DeviceError, match=f"did you mean .*{nearest}"):
        device(name)


def test_shared_names_are_of_known_devices_and_of_no_single_board():
    for ids in shared().values():
        assert [device(key).id for key in ids] == list(ids)


def test_readings_end():
    for name in ("(" * 90, "x" * 200, "8x" * 60, "[[[]]]", "1 x 1 x 1 x a", "GPU 0: ", " (8x a)", "A (1) cuda:"):
        assert len(list(readings(name))) <= 8
    assert joined("NVIDIA GeForce RTX 3060 Laptop GPU") == joined("RTX 3060 mobile")


def test_names_of_several_boards_are_those_that_a_toml_reader_finds():
    content = tomllib.loads(resources.files("perfpass.devices").joinpath("names.toml").read_text(encoding="utf-8"))
    for name, found in (("shared", shared()), ("alike", alike())):
        assert found == {joined(key): tuple(ids) for key, ids in content[name].items()}


def test_shipped_tables_read_as_lines_are_those_of_a_toml_reader():
    """Of every file that ships, and of every device's block; nearly all of them are read so."""
    home = Path(str(resources.files("perfpass")))
    texts = [path.read_text(encoding="utf-8") for path in home.rglob("*.toml")]
    texts += [block for text in texts for block in text.split("\n[[device]]\n")[1:]]
    read = [(found, text) for text in texts if (found := toml_table._of_lines(text)) is not None]
    assert len(read) > 900 and len(read) > 0.95 * len(texts)
    for found, text in read:
        assert repr(found) == repr(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    ["a.b = 1", "a = 1\na = 2", "a = 0x10", "a = 1_000", "a = [1, 2,]", "a = 1 # one", "[[a]]", "a = 'x'", "a",
     "a = 1979-05-27", '"a b" = 1', "[a.b]", "a = inf", "a = [\n1,\n]", "a = {b = 1}", 'a = { b = "c = d" }', "a = [",
     "[a]\n[a]", "a = [\n1,"],
)  # fmt: skip
def test_any_other_table_is_left_to_a_toml_reader(text):
    def outcome(read):
        try:
            return repr(read(text))
        except ValueError as error:
            return str(error)

    assert outcome(toml_table.parse) == outcome(tomllib.loads)
