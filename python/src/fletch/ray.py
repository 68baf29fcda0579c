# SPDX-License-Identifier: Apache-2.0
"""Ray Data: a fixed pool of actors, each with a model and the CPUs that Ray gave it.

    ds = fletch.ray.embed(ray.data.read_parquet(source), column="text", dtype="int8", concurrency=8, cpus=4)
    ds.write_parquet(target)

What a text is refused for becomes a null and a word beside it, never an exception: Ray does not try those again, and a
pool may hang on them. Read the folder when the job is over: a driver that is killed leaves a torn file under its final
name, which the same job with `resume_id` replaces. fletch.job has no such state."""
from __future__ import annotations

from typing import Any

import ray
from ray.data import ActorPoolStrategy, Dataset
from ray.data.checkpoint import CheckpointConfig

from . import _fletch
from ._columns import check_version, embed_column, fixed_lists
from ._model import Dtype, shared


class Embedder:
    """What an actor of the pool does: tables in, the same with two columns more out."""

    def __init__(self, driver: str, model: str | None, column: str, output: str, options: dict[str, Any],
                 arguments: dict[str, Any]) -> None:
        check_version(driver)
        self._model, self._column, self._output = shared(model, **options), column, output
        self._arguments = arguments

    def __call__(self, table: Any) -> Any:
        found, bad, why = embed_column(self._model, table.column(self._column), self._arguments)
        return table.append_column(self._output, fixed_lists(found.vectors, bad)).append_column(
            f"{self._output}_refused", why)


def embed(ds: Dataset, *, column: str = "text", output: str = "embedding", model: str | None = None,
          dtype: Dtype = "float32", concurrency: int = 1, cpus: int = 1, gpus: float = 0, batch_size: int = 4096,
          options: dict[str, Any] | None = None, resume_id: str | None = None, resume_path: str | None = None,
          **arguments: Any) -> Dataset:
    """The dataset with the columns `output`, a fixed-size list, and `output`_refused, why a text has none.

    concurrency: actors, each with `cpus` CPUs (its threads) and `gpus`. options: arguments of fletch.Model. Other
    arguments are those of Model.embed. resume_id: a column of ids that come once; with resume_path, a folder that all
    nodes see, a job whose driver was killed goes on where it was (Ray keeps all ids in memory: up to 1e9 or so)."""
    if concurrency < 1 or cpus < 1:
        raise ValueError(f"concurrency and cpus must be at least 1, not {concurrency} and {cpus}")
    if not ray.is_initialized():
        ray.init()
    total = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if concurrency * cpus > total - 1:
        raise ValueError(f"concurrency={concurrency} actors with cpus={cpus} take {concurrency * cpus} of the cluster's "
                         f"{total} CPUs; leave one for the tasks that read, or the job will hang")
    if (resume_id is None) != (resume_path is None):
        raise ValueError("resume_id and resume_path go together")
    if resume_id is not None:
        ds.context.checkpoint_config = CheckpointConfig(resume_id, resume_path)
    return ds.map_batches(
        Embedder, batch_size=batch_size, batch_format="pyarrow", zero_copy_batch=True,
        fn_constructor_args=(_fletch.version, model, column, output, {"threads": cpus} | (options or {}),
                             {"dtype": dtype} | arguments),
        compute=ActorPoolStrategy(size=concurrency), num_cpus=cpus, num_gpus=gpus)
