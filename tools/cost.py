#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cost.py - what it costs to embed so many texts, and to keep their vectors for a month.

    tools/cost.py --texts 1e9 --tokens 50 --core-tokens 7585 --gpu-texts 250000 --core-hour 0.04 --gpu-hour 2.50

Rates are yours: measure them (fletch embed --stats says tokens a second; divide by the cores). Prices are arguments
because they change; the defaults are those of docs/scale.md. Vectors are counted as they lie in Parquet (docs/job.md),
scaled from 384 dimensions."""
import argparse

KINDS = {"float32": 1298 / 384, "int8": 296 / 384, "ubinary": 52 / 384}  # bytes of a dimension, zstd, measured


def amount(value: float, units: tuple[str, ...] = ("B", "kB", "MB", "GB", "TB", "PB")) -> str:
    step = 0
    while value >= 1000 and step + 1 < len(units):
        value, step = value / 1000, step + 1
    return f"{value:.3g} {units[step]}"


def rows(given: argparse.Namespace) -> list[tuple[str, str]]:
    tokens = given.texts * given.tokens
    hours = tokens / given.core_tokens / 3600
    gpu = given.texts / given.gpu_texts / 3600
    table = [("texts", f"{given.texts:.3g} of {given.tokens:g} tokens, {amount(given.texts * given.bytes)} to read"),
             ("CPU", f"{hours:,.0f} core hours, ${hours * given.core_hour:,.0f}; {hours / given.cores:,.1f} h on {given.cores} cores"),
             ("GPU", f"{gpu:,.1f} hours, ${gpu * given.gpu_hour:,.0f}; {gpu / given.gpus:,.1f} h on {given.gpus}")]
    for kind, factor in KINDS.items():
        size = given.texts * given.dimensions * factor
        rate = given.gpu_texts * given.gpus * given.dimensions * factor
        table.append((kind, f"{amount(size)}, ${size / 1e9 * given.gb_month:,.0f} a month; the GPUs write {amount(rate)}/s"))
    parts = given.texts / given.part_rows
    table.append(("parts", f"{parts:,.0f} of {given.part_rows:g} texts, {amount(parts * 600)} of manifests"))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (
            ("texts", 1e9, "how many"), ("tokens", 50, "of a text"), ("bytes", 210, "of a text"),
            ("dimensions", 384, "of a vector"), ("core-tokens", 7585, "tokens a second on one core"),
            ("gpu-texts", 250_000, "texts a second on one GPU"), ("core-hour", 0.04, "dollars"),
            ("gpu-hour", 2.5, "dollars"), ("gb-month", 0.023, "dollars of storage"), ("cores", 64, "that work at once"),
            ("gpus", 1, "that work at once"), ("part-rows", 1e6, "texts of a part")):
        parser.add_argument(f"--{name}", type=type(default) if name in ("cores", "gpus") else float, default=default,
                            help=f"{text} (default: {default:g})")
    given = parser.parse_args()
    wrong = [name for name, value in vars(given).items() if not value > 0]
    if wrong:
        parser.error(f"--{wrong[0].replace('_', '-')} must be more than 0")
    for name, text in rows(given):
        print(f"{name:8}  {text}")


if __name__ == "__main__":
    main()
