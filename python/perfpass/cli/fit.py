"""`perfpass fit`: will it fit, before anything is downloaded."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import (
    add_device_file,
    add_device_files,
    add_json,
    add_quantize,
    add_sizes,
    model_sizes,
    new_command,
    print_json,
    whole,
)
from perfpass.errors import ArgumentError

_EPILOG = """\
MODEL is a name of the Hugging Face hub or of a model whose configuration ships, a folder, a config.json, a safetensors
or GGUF file or the header of one (its first bytes), an ONNX file, or timm:NAME. Nothing but configurations and headers
is read or fetched, weights never. Language models have a context and a concurrency, other networks a batch.

exit status: 0 it fits each device, 1 it does not fit one of them, 2 it cannot be said with that confidence. Other
errors keep their codes and print nothing on stdout.

examples:
  perfpass fit llama-3.1-8b --device rtx-4090
  perfpass fit Qwen/Qwen3-32B --device l40s --context 32768 --concurrency 16 --kv-cache fp8
  perfpass fit llama-3.1-70b.Q4_K_M.gguf --device rtx-4090 --gpu-layers 40
  perfpass fit deepseek-ai/DeepSeek-V3 --device h200 --tp 8 --json
  perfpass fit llama-3.1-70b                                        what holds it, the cheapest, and what would below
  perfpass fit timm:convnext_large --device l4 --batch 64 --precision amp"""
_RUNTIMES = ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands, "fit", run, "say whether a model fits a device, with which probability, and what would", _EPILOG
    )
    command.add_argument("model", metavar="MODEL", help="name, folder, file or header of a model")
    command.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="devices, or device:profile for a MIG slice, with commas between them; may be given more than once "
        "(default: every board of the catalogue is asked)",
    )
    command.add_argument(
        "--confidence", type=float, default=0.9, metavar="P", help="how sure yes and no are (default: 0.9)"
    )
    command.add_argument(
        "--precision",
        metavar="P",
        help="of the weights: bf16, fp8, int8_wo, int4, awq, gptq, nf4, nvfp4, mxfp4, a file type of llama.cpp as "
        "q4_k_m, ... (default: as stored; of other networks fp32)",
    )
    command.add_argument(
        "--runtime",
        metavar="R",
        help=f"{', '.join(_RUNTIMES)} (default: vllm; of a GGUF file llama.cpp); of other networks torch, "
        "torch.compile, onnxruntime, tensorrt, tvm",
    )
    add_quantize(command)
    _language(command.add_argument_group("language models"))
    network = command.add_argument_group("other networks")
    add_sizes(network, assumes=False)
    network.add_argument("--mode", metavar="M", help="inference, or training: one whole step")
    network.add_argument("--optimizer", metavar="O", help="none, sgd, momentum, adam, adamw (training)")
    add_device_file(command)
    add_json(command, "text")


def _language(group: Any) -> None:
    group.add_argument(
        "--context", type=whole, metavar="N", help="tokens of a sequence, prompt and answer (default: 8192)"
    )
    group.add_argument("--concurrency", type=whole, metavar="N", help="sequences at once (default: 1)")
    group.add_argument(
        "--kv-cache",
        metavar="T",
        help="type of the cache: bf16, fp8, int8, nvfp4; llama.cpp's as q8_0, or keys and values as q8_0,q4_0",
    )
    group.add_argument("--tp", type=whole, metavar="N", help="tensor parallelism (default: 1)")
    group.add_argument("--pp", type=whole, metavar="N", help="pipeline stages (default: 1)")
    group.add_argument(
        "--utilization",
        type=float,
        metavar="X",
        help="vLLM's gpu_memory_utilization, SGLang's mem_fraction_static, TensorRT-LLM's free_gpu_memory_fraction",
    )
    group.add_argument(
        "--max-num-seqs",
        type=whole,
        metavar="N",
        help="vLLM: requests at once, which memory is profiled for (1,024 from 70 GiB on, else and on A100s 256)",
    )
    group.add_argument(
        "--runtime-version",
        metavar="V",
        help="of vLLM or SGLang, whose defaults of memory differ between releases (default: the newest)",
    )
    group.add_argument("--cpu-offload-gb", type=float, metavar="G", help="vLLM: GiB of weights on the host, a GPU")
    group.add_argument("--gpu-layers", type=whole, metavar="N", help="llama.cpp's -ngl (default: all)")
    group.add_argument("--n-cpu-moe", type=whole, metavar="N", help="llama.cpp: layers whose experts stay on the host")
    group.add_argument("--no-kv-offload", action="store_true", help="llama.cpp: the cache stays on the host")
    group.add_argument("--no-mmap", action="store_true", help="llama.cpp: weights on the host are read, not mapped")
    group.add_argument("--ubatch", type=whole, metavar="N", help="llama.cpp's -ub: tokens of a step (default: 512)")


def _precision(options: Any) -> str | None:
    if options.quantize is None:
        return options.precision
    if options.precision not in (None, options.quantize):
        raise ArgumentError(f"--quantize {options.quantize} is the precision of the weights; leave out --precision")
    return options.quantize


def run(options: Any) -> int:
    """Prints the decision; the exit status is it."""
    from perfpass.deploy.fit import fit

    add_device_files(options)
    named = [name for given in options.device for name in given.split(",")] if options.device else None
    found = fit(
        options.model,
        named,
        runtime=options.runtime,
        precision=_precision(options),
        confidence=options.confidence,
        context=options.context,
        concurrency=options.concurrency,
        kv_cache=options.kv_cache,
        tp=options.tp,
        pp=options.pp,
        utilization=options.utilization,
        gpu_layers=options.gpu_layers,
        host_experts=options.n_cpu_moe,
        cache_on_host=options.no_kv_offload,
        memory_map=not options.no_mmap,
        step_tokens=options.ubatch,
        offload_gib=options.cpu_offload_gb,
        max_sequences=options.max_num_seqs,
        runtime_version=options.runtime_version,
        **model_sizes(options),
        mode=options.mode,
        optimizer=options.optimizer,
    )
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
    return found.exit_status
