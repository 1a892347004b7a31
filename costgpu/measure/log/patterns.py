"""How programs print their progress: one pattern for each format, and what else their logs tell. Pure.

Named groups: ``step`` (the counter), ``total``, ``epoch``, ``epochs``, ``percent``; what the program says of its speed:
``rate`` (steps per second), ``each`` with ``each_unit`` (time of a step), ``span_seconds`` for ``span`` steps or for
those from ``span_first`` to ``step``, ``samples_rate``; ``samples`` (in the steps of the line).
Sources: the programs' own sources and logs that users have published with their questions (read 2026-11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

TREES = "gradient-boosted-trees"


class Tier(IntEnum):
    """How much a match means; a lower one is chosen first."""

    USER = 0
    FRAMEWORK = 1  # nothing else prints such lines
    BAR = 2  # a progress bar, or the habit of many training scripts
    EPOCH_AND_STEP = 3
    STEP_OF_TOTAL = 4
    BRACKET = 5
    STEP = 6
    EPOCH = 7
    PERCENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    r"""One format.

    Attributes:
        name: Unique.
        label: For people.
        regex: Searched in the line; with a group ``step`` or ``percent``.
        tier: How specific.
        unit: What the counter counts.
        framework: For the profile.
        needle: Lower-case text without which the regex is not tried; empty to try always.
        more: Searched from the match on, for more groups.
        per_epoch: The total is an epoch's, by the format's convention.
        named: What stands before the match is the name of the bar.
        kind: Of work, if only one kind prints such lines.
        no_gpu: Why a GPU does nothing for this program; empty if that is not known.
        step_group: Of a user's pattern: the group that counts; 0 for none.
        anything: Lines without a digit may match, too.
    """

    name: str
    label: str
    regex: re.Pattern[str]
    tier: Tier
    unit: str = "step"
    framework: str = "log lines"
    needle: str = ""
    more: tuple[re.Pattern[str], ...] = ()
    per_epoch: bool = False
    named: bool = False
    kind: str = ""
    no_gpu: str = ""
    step_group: int | str = ""
    anything: bool = False


_LOSS = r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)"
_OF = r"\s*(?:/|of|out of)\s*"
_STEP_WORD = r"(?:global[_ ]?step|mini-?batch|(?:time)?step|iteration|iter|batch|update|round)s?"
_FLAGS = re.IGNORECASE

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        name="caffe",
        label="Caffe",
        tier=Tier.FRAMEWORK,
        unit="iteration",
        framework="caffe",
        needle="iteration",
        regex=re.compile(
            r"\bIteration (?P<step>\d+)(?: \((?P<rate>\S{1,20}) iter/s, (?P<span_seconds>\S{1,20})s/(?P<span>\d+) iters?\))?"
            r", loss = "
        ),
    ),
    Pattern(
        name="mxnet",
        label="MXNet's Speedometer",
        tier=Tier.FRAMEWORK,
        framework="mxnet",
        needle="samples/sec",
        regex=re.compile(
            r"(?:\b(?:Epoch|Iter) ?\[(?P<epoch>\d+)\]\s*|\[Epoch \d+\]\s*)?\[?Batch ?\[?(?:\d+-)?(?P<step>\d+)\]"
            r",?\s+Speed: (?P<samples_rate>[\d.]+) samples/sec"
        ),
        more=(re.compile(r"\[Epoch (?P<epoch>\d+)\]"),),
    ),
    Pattern(
        name="gluon",
        label="GluonNLP",
        tier=Tier.FRAMEWORK,
        framework="mxnet",
        needle="batch",
        per_epoch=True,
        regex=re.compile(
            r"(?:Epoch:? (?P<epoch>\d+),? )?Batch:? (?P<step>\d+)/(?P<total>\d+)\]?.{1,200}?\bThr?oughput[= ]", _FLAGS
        ),
        more=(re.compile(r"Thr?oughput[= ](?P<samples_rate>[\d.]+) samples/s", _FLAGS),),
    ),
    Pattern(
        name="cntk",
        label="CNTK",
        tier=Tier.FRAMEWORK,
        framework="cntk",
        needle="minibatch[",
        regex=re.compile(
            r"(?:Epoch\[ *(?P<epoch>\d+)(?: of (?P<epochs>\d+))?\]-)?"
            r"Minibatch\[ *(?P<span_first>\d+)- *(?P<step>\d+)[^\]]{0,40}\]: "
        ),
        more=(
            re.compile(r" \* (?P<samples>\d+)"),
            re.compile(r"\bSamplesSeen = (?P<samples>\d+)"),
            re.compile(r"(?:\b[tT]ime = |\bTotalTime = |[ ;])(?P<span_seconds>\d+(?:\.\d+)?)s(?:;| \(|$)"),
        ),
    ),
    Pattern(
        name="cntk-epoch",
        label="CNTK's epochs",
        tier=Tier.EPOCH,
        unit="epoch",
        framework="cntk",
        needle="finished epoch[",
        regex=re.compile(r"Finished Epoch\[ *(?P<step>\d+)(?: of (?P<total>\d+))?\]: "),
        more=(re.compile(r"(?:epochTime=|[ %])(?P<each>\d+(?:\.\d+)?)s(?: \(|;|$)"),),
    ),
    Pattern(
        name="keras",
        label="the Keras progress bar",
        tier=Tier.FRAMEWORK,
        framework="keras",
        needle="/",
        per_epoch=True,
        regex=re.compile(
            r"^\s*(?P<step>\d+)/(?P<total>\d+|Unknown)\s{1,4}"
            r"(?:\[[=>.]+\](?=\s*-)|[━─╸╺ ]*[━─╸╺]|\|[^|]{0,60}\|(?= -)|-(?=\s*\d+s\b))"
        ),
        more=(re.compile(r"(?P<each>\d+(?:\.\d+)?)(?P<each_unit>us|µs|ms|s|min)/(?:step|sample)"),),
    ),
    Pattern(
        name="theano",
        label="the Theano tutorials' lines",
        tier=Tier.FRAMEWORK,
        framework="theano",
        needle="minibatch",
        per_epoch=True,
        regex=re.compile(r"\bepoch (?P<epoch>\d+), minibatch (?P<step>\d+)/(?P<total>\d+)", _FLAGS),
    ),
    Pattern(
        name="lasagne",
        label="Lasagne's epochs",
        tier=Tier.EPOCH,
        unit="epoch",
        framework="theano",
        needle=" took ",
        regex=re.compile(r"\bEpoch (?P<step>\d+) of (?P<total>\d+) took (?P<each>[\d.]+)s"),
    ),
    Pattern(
        name="tf-estimator",
        label="TensorFlow's estimator",
        tier=Tier.FRAMEWORK,
        framework="tensorflow",
        needle="step =",
        regex=re.compile(r"\bloss = \S{1,30}, step = (?P<step>\d+)"),
    ),
    Pattern(
        name="fairseq",
        label="fairseq",
        tier=Tier.FRAMEWORK,
        framework="torch",
        needle="loss=",
        per_epoch=True,
        regex=re.compile(r"\bepoch (?P<epoch>\d+):?\s+(?P<step>\d+) / (?P<total>\d+) loss="),
    ),
    Pattern(
        name="xgboost",
        label="XGBoost",
        tier=Tier.FRAMEWORK,
        unit="round",
        framework="xgboost",
        needle="[",
        kind=TREES,
        regex=re.compile(rf"^(?:\[[\d:]{{8}}\]\s*)?\[(?P<step>\d+)\]\s+\w{{1,40}}-[\w@.=-]{{1,40}}:{_LOSS}", _FLAGS),
    ),
    Pattern(
        name="lightgbm",
        label="LightGBM",
        tier=Tier.FRAMEWORK,
        unit="round",
        framework="lightgbm",
        needle="[",
        kind=TREES,
        regex=re.compile(r"^\[(?P<step>\d+)\]\s+[^']{1,40}'s [\w@. ()-]{1,40}: "),
    ),
    Pattern(
        name="lightgbm-cli",
        label="LightGBM",
        tier=Tier.FRAMEWORK,
        unit="round",
        framework="lightgbm",
        needle="[lightgbm]",
        kind=TREES,
        regex=re.compile(r"\[LightGBM\] \[Info\] .{0,60}\bfinished iteration (?P<step>\d+)"),
    ),
    Pattern(
        name="catboost",
        label="CatBoost",
        tier=Tier.FRAMEWORK,
        unit="round",
        framework="catboost",
        needle="learn:",
        kind=TREES,
        regex=re.compile(r"^(?P<step>\d+):\s+learn: \S{1,30}\s.{0,120}\btotal: "),
    ),
    Pattern(
        name="fasttext",
        label="fastText",
        tier=Tier.FRAMEWORK,
        unit="percent",
        framework="fasttext",
        needle="words/sec/thread",
        no_gpu="fastText has no GPU implementation.",
        regex=re.compile(r"\bProgress:\s*(?P<percent>\d+(?:\.\d+)?)%\s+words/sec/thread:"),
    ),
    Pattern(
        name="word2vec",
        label="word2vec",
        tier=Tier.FRAMEWORK,
        unit="percent",
        framework="word2vec",
        needle="words/thread/sec",
        no_gpu="word2vec's C program has no GPU implementation.",
        regex=re.compile(r"\bProgress:\s*(?P<percent>\d+(?:\.\d+)?)%\s+Words/thread/sec:"),
    ),
    Pattern(
        name="gensim",
        label="gensim",
        tier=Tier.FRAMEWORK,
        unit="percent",
        framework="gensim",
        needle="progress: at",
        per_epoch=True,
        no_gpu="gensim has no GPU implementation.",
        regex=re.compile(r"\bEPOCH (?:- )?(?P<epoch>\d+) ?[-:] PROGRESS: at (?P<percent>\d+(?:\.\d+)?)% "),
    ),
    Pattern(
        name="darknet",
        label="Darknet",
        tier=Tier.FRAMEWORK,
        unit="iteration",
        framework="darknet",
        needle=" rate, ",
        regex=re.compile(
            rf"^\s*(?P<step>\d+)(?:, [\d.]+)?: {_LOSS}, {_LOSS} avg(?: loss)?, {_LOSS} rate, "
            r"(?P<each>[\d.]+) seconds, \d+ images"
        ),
    ),
    Pattern(
        name="gromacs",
        label="GROMACS",
        tier=Tier.FRAMEWORK,
        framework="gromacs",
        needle="step ",
        regex=re.compile(r"\bstep\s+(?P<step>\d+),? (?:remaining wall clock time|will finish)"),
    ),
    Pattern(
        name="tqdm",
        label="a tqdm bar",
        tier=Tier.BAR,
        needle="%|",
        named=True,
        regex=re.compile(r"\d{1,3}%\|[^|]*\|\s*(?P<step>\d+(?:\.\d+)?[kMGT]?)/(?P<total>\d+(?:\.\d+)?[kMGT]?) \["),
        more=(
            re.compile(r"[,\[]\s*(?P<rate>\d+(?:\.\d+)?[kMGT]?)\s?[^\s\d,\]/]{1,20}/s[,\]]"),
            re.compile(r"[,\[]\s*(?P<each>\d+(?:\.\d+)?)(?P<each_unit>s)/[^\s,\]]{1,20}[,\]]"),
        ),
    ),
    Pattern(
        name="tqdm-open",
        label="a tqdm counter",
        tier=Tier.BAR,
        needle="it [",
        named=True,
        regex=re.compile(r"(?<![\d.])(?P<step>\d+)it \[[\d:]+, "),
        more=(
            re.compile(r", *(?P<rate>\d+(?:\.\d+)?)it/s"),
            re.compile(r", *(?P<each>\d+(?:\.\d+)?)(?P<each_unit>s)/it"),
        ),
    ),
    Pattern(
        name="epoch-bracket",
        label='"Epoch: [0][100/5000]"',
        tier=Tier.BAR,
        needle="epoch",
        per_epoch=True,
        regex=re.compile(r"\bEpoch:? *\[(?P<epoch>\d+)\] *\[ *(?P<step>\d+) */ *(?P<total>\d+)\]", _FLAGS),
    ),
    Pattern(
        name="epoch-samples",
        label='"Epoch: 1 [640/60000 (1%)]"',
        tier=Tier.BAR,
        unit="sample",
        needle="epoch",
        per_epoch=True,
        regex=re.compile(r"\bEpoch:? *(?P<epoch>\d+) *\[ *(?P<step>\d+)/(?P<total>\d+) *\(\d+(?:\.\d+)?%\)\]", _FLAGS),
    ),
    Pattern(
        name="epoch-and-step",
        label='"Epoch 3/90 ... step 100/5000"',
        tier=Tier.EPOCH_AND_STEP,
        needle="epoch",
        per_epoch=True,
        regex=re.compile(
            rf"\bepoch\W{{0,4}}(?P<epoch>\d+)(?:{_OF}(?P<epochs>\d+))?\W{{1,6}}{_STEP_WORD}\W{{0,4}}(?P<step>\d+)"
            rf"(?:{_OF}(?P<total>\d+))?(?![\d.]*\d)",
            _FLAGS,
        ),
    ),
    Pattern(
        name="step-of-total",
        label='"step 100/5000"',
        tier=Tier.STEP_OF_TOTAL,
        needle="",
        regex=re.compile(rf"(?<![a-z]){_STEP_WORD}\W{{0,4}}(?P<step>\d+){_OF}(?P<total>\d+)(?![\d.]*\d)", _FLAGS),
    ),
    Pattern(
        name="bracket",
        label='"[100/5000]"',
        tier=Tier.BRACKET,
        needle="/",
        regex=re.compile(r"[\[(]\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*[\])]"),
    ),
    Pattern(
        name="step",
        label='"step 100"',
        tier=Tier.STEP,
        regex=re.compile(rf"(?<![a-z]){_STEP_WORD}\W{{0,4}}(?P<step>\d+)(?![\d.]*\d|\s?%)", _FLAGS),
    ),
    Pattern(
        name="epoch",
        label='"Epoch 3/90"',
        tier=Tier.EPOCH,
        unit="epoch",
        needle="epoch",
        regex=re.compile(rf"\bepoch\W{{0,4}}(?P<step>\d+)(?:{_OF}(?P<total>\d+))?(?![\d.]*\d)", _FLAGS),
    ),
    Pattern(
        name="percent",
        label='"12 % done"',
        tier=Tier.PERCENT,
        unit="percent",
        needle="%",
        regex=re.compile(
            r"(?:^\s*|\bprogress\W{1,3}|\bcompleted?\W{1,3}|\bdone\W{1,3}|\]\s*)(?P<percent>\d{1,3}(?:\.\d+)?)\s?%(?!\|)"
            r"|(?<![\d.])\d{1,3}(?:\.\d+)?\s?% (?:complete|done|finished)",
            _FLAGS,
        ),
        more=(re.compile(r"(?P<percent>\d{1,3}(?:\.\d+)?)\s?%"),),
    ),
)

CONTEXT = re.compile(rf"\bepoch\W{{0,4}}(?P<epoch>\d+)(?:{_OF}(?P<epochs>\d+))?(?![\d.]*\d)", _FLAGS)

FACTS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("max_iter", "max_iter: ", re.compile(r"^\s*max_iter: (?P<value>\d+)\s*$")),
    ("test_interval", "test_interval: ", re.compile(r"^\s*test_interval: (?P<value>\d+)\s*$")),
    ("net", "name: ", re.compile(r"^name: \"(?P<value>[^\"]{1,80})\"\s*$")),
    ("num_epochs", "Namespace(", re.compile(r"\bNamespace\(.{0,1800}?\bnum_epochs?=(?P<value>\d+)")),
    ("batch_size", "Namespace(", re.compile(r"\bNamespace\(.{0,1800}?\bbatch_size=(?P<value>\d+)")),
    ("num_examples", "Namespace(", re.compile(r"\bNamespace\(.{0,1800}?\bnum_examples=(?P<value>\d+)")),
    ("network", "Namespace(", re.compile(r"\bNamespace\(.{0,1800}?\b(?:network|model|arch)='(?P<value>[^']{1,60})'")),
    ("num_layers", "Namespace(", re.compile(r"\bNamespace\(.{0,1800}?\bnum_layers=(?P<value>\d+)")),
    ("epoch_seconds", "Time cost=", re.compile(r"\bEpoch\[\d+\] Time cost=(?P<value>\d+(?:\.\d+)?)")),
    ("epoch_samples", "Finished Epoch[", re.compile(r"Finished Epoch\[.{0,40}\]: .{0,80}? \* (?P<value>\d+)")),
    ("md_steps", " steps,", re.compile(r"^\s*(?P<value>\d+) steps,\s+[\d.]+ ps")),
    ("early_stop", "arly", re.compile(r"(?P<value>[eE]arly.?[sS]top)")),
    ("hasnt", "hasn", re.compile(r"(?P<value>hasn.t improved in)")),
    ("dont", "improve for", re.compile(r"(?P<value>don.t improve for)")),
)
"""What else a log tells: name, text without which the pattern is not tried, pattern with a group ``value``."""

MAY_STOP = ("early_stop", "hasnt", "dont")
"""Facts that say that a training may end before its total."""

NETS = {
    "resnet-50": "resnet50",
    "resnet50": "resnet50",
    "resnet_50": "resnet50",
    "lenet": "small-cnn",
    "mlp": "mlp",
}
"""Names of nets in logs -> kind of work in the benchmark table."""
