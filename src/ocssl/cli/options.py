"""Options that several commands share: the type of each, and its line of help."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token


def _whole_number(type_: type, tokens: Sequence[Token]) -> int:
    try:
        return int(tokens[0].value)  # 1.5 is an error, not 2
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number.") from None


def _whole_numbers(type_: type, tokens: Sequence[Token]) -> list[int]:
    return [_whole_number(int, [token]) for token in tokens]


def _number(type_: type, tokens: Sequence[Token]) -> float:
    try:
        return float(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a number.") from None


Count = Annotated[int, Parameter(converter=_whole_number)]
Switch = Annotated[bool, Parameter(negative=())]
Number = Annotated[float, Parameter(converter=_number)]
Seed = Count
Seeds = Annotated[list[int] | None, Parameter(negative=(), converter=_whole_numbers)]
Assignments = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        help="A setting as key=value; may be given several times (see: ocssl list settings).",
    ),
]
Benchmark = Annotated[
    str,
    Parameter(
        help="A benchmark (see: ocssl list benchmarks), or your own images: folder:PATH, parquet:PATH, wds:PATTERN or "
        "hf:NAME."
    ),
]
RunFolder = Annotated[Path, Parameter(help="The run folder.")]
Data = Annotated[Path | None, Parameter(help="The folder or archive with the benchmark's data.")]
Moved = Annotated[Path | None, Parameter(help="The new location of the benchmark's data, if it was moved.")]
BadImages = Annotated[
    Literal["skip", "stop"] | None,
    Parameter(help="What to do with unusable images: skip and list them (the default), or stop at the first."),
]
Preset = Annotated[
    Literal["none", "cpu", "gpu", "auto"],
    Parameter(
        help="Shrink encoder, replay memory and batch to suit a CPU or a GPU; auto: gpu on a GPU with enough memory, "
        "else cpu. Values of --set take precedence."
    ),
]
Cache = Annotated[Path | None, Parameter(help="The folder for decoded images; by default the user's cache folder.")]
Compat = Literal["none", "authors"]
COMPAT = Parameter(
    help="authors: train and score the linear probe as in the published code of SOLAR's authors (docs/evaluation.md)."
)
Parts = Annotated[
    Path | None,
    Parameter(help="A Python file that registers your own rules, losses, encoders or other parts; imported first."),
]
Track = Annotated[
    list[Literal["tensorboard", "wandb"]] | None,
    Parameter(negative=(), help="Also write the numbers to tensorboard or wandb; may be given twice."),
]
Device = Annotated[
    Literal["cpu", "cuda", "mps", "auto"],
    Parameter(help="Device to compute on; auto: a CUDA GPU, else Apple's (mps, untested), else the CPU."),
]
Json = Annotated[bool, Parameter(negative=(), help="Print the result as JSON only.")]
Ray = Annotated[
    str | None,
    Parameter(help="Run on a Ray cluster: its address; auto: the cluster running here; local: start one here."),
]
Threads = Annotated[Count, Parameter(help="Threads per run.")]
Checkpoint = Annotated[str, Parameter(help="all, last, or minibatch numbers such as 225,450.")]
Processes = Annotated[Count, Parameter(help="Parallel processes, one checkpoint each; 0: one per core, or per GPU.")]
Output = Annotated[Path | None, Parameter(name=["--output", "-o"])]
Quiet = Annotated[bool, Parameter(negative=(), help="Print nothing but warnings, errors and the result.")]
