from __future__ import annotations

import numpy as np
import pytest

from perfpass.llm.speculation import METHODS
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.records.readers import spec_bench


@pytest.fixture(scope="module")
def rows():
    return schema.read(data_directory() / "records" / "speculation.parquet", "speculation")


def test_the_leaderboard_is_whole(rows):
    assert len(rows) == 196
    assert set(rows.network) == {"llama-2-7b", "llama-2-13b"}
    overall = rows[rows.task == "Overall"]
    assert len(overall) == 28
    assert (overall.tokens_per_step >= overall.speedup).all()
    assert (rows.caveats == "").sum() == 28


def test_a_page_of_the_source_becomes_rows(tmp_path):
    folder = tmp_path / "spec_bench"
    folder.mkdir()
    head = (
        "device,device_as_reported,n_gpus,framework,model,params_b,precision,mode,batch_size,method,task,speedup,"
        "mean_accepted_tokens_over_all_tasks,heading,source_file,source_line,source_commit"
    )
    line = "NVIDIA A100 80GB,A100,1,PyTorch 2.5.1,Vicuna-7B-v1.3,7.0,fp16,decode,1,PLD,{},1.6,1.75,h,L.md,3,c"
    (folder / "leaderboard.csv").write_text("\n".join([head, line.format("Summa-rization"), line.format("Overall")]))
    table = spec_bench.read(tmp_path).tables["speculation"]
    assert list(table.task) == ["Summarization", "Overall"]
    assert list(table.caveats) == ["tokens_over_all_tasks", ""]
    assert table.runtime_version[0] == "2.5.1" and table.device[0].startswith("a100")


def test_default_acceptances_are_those_of_the_records(rows):
    overall = rows[rows.task == "Overall"]
    medians = overall.groupby("method").tokens_per_step.median()
    found = {method.measured_as: method.tokens for method in METHODS.values() if method.measured_as}
    assert set(found) == set(medians.index)
    assert np.allclose([found[name] for name in medians.index], medians.to_numpy(), atol=0.011)
