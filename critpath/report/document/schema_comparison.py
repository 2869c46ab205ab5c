"""The shape of a comparison's document, with what every key of it means."""

from __future__ import annotations

from typing import Any, Final

from critpath.model import State
from critpath.report.document.schema_set import SET
from critpath.report.document.shapes import (
    MAYBE,
    NONE,
    NUMBER,
    TEXTS,
    WHOLE,
    Choice,
    Field,
    Items,
    Named,
    fields,
)

STATE_NAME: Final = Named("state_name", Choice(tuple(State.__members__)))
SET_NAME: Final = Choice(("normal", "sample"))
LEVEL: Final = Choice(("off", "warn", "error"))
_PAIR: Final = Items(NUMBER, 2, 2)

_SYMBOL = {
    "name": Field(str, "the state, and after an @ the role"),
    "state": Field(STATE_NAME, "the state"),
    "role": Field(str, "which other thread the time was spent on; '' for the subject's own"),
    "letter": Field(str, "the letter that stands for it in every report", optional=True),
}

_STATE_TEST = {
    "state": Field(str, "name of the symbol, or total"),
    "role": Field(str, "as of the symbol"),
    **fields(
        MAYBE,
        ("normal_mean", "mean time in it of a normal execution (ns)"),
        ("sample_mean", "mean time in it of a sample execution (ns)"),
        ("normal_std", "standard deviation in the normal set (ns)"),
        ("effect", "sample mean less normal mean, the mix of types taken out (ns)"),
        ("effect_low", "lower end of the effect's 95 % interval (ns)"),
        ("effect_high", "upper end of it"),
        ("p_value", "of the permutation test, adjusted for everything that is tested"),
        ("average_threshold", "the paper's average rule: fires above this mean (ns)"),
        ("normal_above", "share of normal executions above the normal mean"),
        ("sample_above", "share of sample executions above the normal mean"),
        ("probability_threshold", "the paper's t2 in force, null for Fisher's exact test"),
        ("cliffs_delta", "how much more often longer than shorter, within types, -1 to 1"),
        ("median_ratio", "typical sample over normal duration, null where half are 0"),
    ),
    **fields(
        bool,
        ("flagged", "slower by the rule in force"),
        ("new_state", "not in the normal set, or never varying there"),
        ("average_fires", "the paper's average rule fires"),
        ("probability_fires", "the paper's probability rule fires"),
    ),
    "level": Field(
        LEVEL,
        "what the state counts for when it is flagged; error if not given",
        optional=True,
    ),
}

_LEVEL = {
    "pattern": Field(str, "of a state's name"),
    "level": Field(LEVEL, "what it says of these"),
}

_WHOLE = fields(
    MAYBE,
    ("normal_mean", "mean duration of a normal execution (ns)"),
    ("sample_mean", "mean duration of a sample execution (ns)"),
    ("effect", "sample mean less normal mean, the mix of types taken out (ns)"),
    ("effect_low", "lower end of the effect's 95 % interval (ns)"),
    ("effect_high", "upper end of it"),
    ("p_value", "of a test of everything, whatever its level"),
)

_DETECTION = {
    "rule": Field(str, "which rule decides: gate or paper"),
    "flagged": Field(bool, "whether it found the sample slower"),
    "alpha": Field(MAYBE, "level of the tests"),
    "floor": Field(MAYBE, "increases of the total below this are not judged (ns)"),
    "detectable": Field(MAYBE, "smallest change of the mean that would have shown (ns)"),
    "permutations": Field(int, "of each test"),
    "enough": Field(bool, "whether there are executions enough to decide"),
    "needed": Field(int, "how many the smaller set needs"),
    "minimum": Field(int, "how many executions each set is to have, 0 for any", optional=True),
    "levels": Field([Named("level", _LEVEL)], "levels of states, as set", optional=True),
    "paper_false_alarms": Field(
        MAYBE, "share of random splits of these executions in which the paper's rules fire"
    ),
    "notes": Field(TEXTS, "what else there is to say of the tests"),
    "whole": Field(
        (_WHOLE, NONE),
        "duration with the states that levels leave out of the total; null where none is",
        optional=True,
    ),
}

_CLUSTER = {
    **fields(
        int,
        ("cluster", "its number"),
        ("size", "executions in it"),
        ("weak", "of these, how many were noise and joined to it"),
    ),
    "mean_duration": Field(MAYBE, "their mean duration (ns)"),
}

_CLUSTERS = {
    "method": Field(str, "how executions were grouped"),
    "notes": Field(TEXTS, "what there is to say of it"),
    "clusters": Field([Named("cluster", _CLUSTER)], "the groups, which are types of executions"),
    "ordering": Field([int], "executions in the order of OPTICS"),
    "reachability": Field([MAYBE], "reachability of each, in that order; null for infinite"),
}

_PAIRED = {
    "sample": Field(int, "number of the sample's cluster"),
    "normal": Field(int, "number of the normal cluster it is compared with"),
    "score": Field(MAYBE, "how alike they are, null where that is not told"),
    "weak": Field(bool, "the pair is doubtful"),
    "novel": Field(bool, "the sample's cluster has no like"),
}

_EXECUTION = {
    "id": Field(str, "value of its key, else TID@BEGIN"),
    "set": Field(SET_NAME, "which set it is of"),
    **fields(
        int,
        ("position", "its place in its set"),
        ("source", "which recording it is of, a place in the set's sources"),
        ("begin", "when it began, in ns of the trace's clock"),
        ("end", "when it ended"),
        ("tid", "its thread"),
    ),
    "comm": Field(str, "name of the thread"),
    "label": Field(str, "what kind it is, as the trace says; '' if it does not"),
    "cluster": Field(WHOLE, "its cluster, null where there are none"),
    "weak": Field(bool, "it was noise and joined to the cluster"),
    "pair": Field(WHOLE, "the normal cluster it is compared with"),
    "anomalous": Field(bool, "it stands out"),
    "excess": Field(WHOLE, "its duration less the mean of its normal cluster (ns)"),
    "score": Field(MAYBE, "how far it stands out"),
    "p_value": Field(MAYBE, "probability of a normal execution to stand out as far"),
    "paper": Field(bool, "it stands out by the paper's rule"),
    "symbol": Field((str, NONE), "the symbol it stands out most in, or total"),
    "lossy": Field(bool, "the tracer lost events while it ran"),
}

_PART = {
    "kind": Field(str, "as of the finding"),
    "contribution": Field(MAYBE, "nanoseconds, of either sign"),
}

_FINDING = {
    "execution": Field(str, "id of the sample execution"),
    "position": Field(int, "its place in the sample set"),
    "rank": Field(int, "order among the execution's findings, from 1"),
    "columns": Field(Items(int, 2, 2), "first column of the alignment and one past the last"),
    "kind": Field(str, "new-state, extra, longer, missing, shorter or loop-count"),
    "state": Field(STATE_NAME, "the state that differs"),
    **fields(
        str,
        ("role", "as of the symbol"),
        ("detail", "qualifier, such as which device, or who had the processor"),
        ("comm", "name of the thread the time was spent on"),
        ("before", "what the path was doing just before"),
    ),
    **fields(
        int,
        ("tid", "that thread"),
        ("begin", "where it begins, in ns of the sample trace's clock"),
        ("end", "where it ends"),
    ),
    **fields(
        MAYBE,
        ("observed", "time in this execution (ns)"),
        ("expected", "mean time in the normal group (ns)"),
        ("contribution", "the difference (ns); with the unexplained rest it adds up to the excess"),
        ("share", "of the execution's excess, null if that is not positive"),
        ("probability", "share of the normal group that has this state here"),
    ),
    "parts": Field([Named("finding_part", _PART)], "the contribution by kind, the largest first"),
    "abnormal": Field(bool, "odder than what normal executions do among themselves"),
    **fields(
        MAYBE,
        ("p", "the least p-value of its columns"),
        ("offset", "time that only moved from or to another state (ns)"),
        ("iterations", "how often this execution ran the loop it is about, null for none"),
    ),
    "normal_iterations": Field(
        Items(MAYBE, 2, 2), "mean and standard deviation of that in the normal group"
    ),
}

_CAUSE = {
    "sentence": Field(str, "what happened, to how many, how much it cost, what is normal"),
    "findings": Field([int], "places in the list of findings"),
    "executions": Field(TEXTS, "ids of the executions"),
    "positions": Field([int], "their places in the sample set"),
    "contribution": Field(MAYBE, "mean per execution that it concerns (ns)"),
    "share": Field(MAYBE, "of the excess of all executions that were examined"),
    "main": Field(int, "the finding that the sentence names first"),
    "minor": Field(bool, "less than 5 % of that excess: summaries count these together"),
}

_SEGMENT = {
    "column": Field(int, "its column of the alignment"),
    "begin": Field(int, "when it began, in ns of the trace's clock"),
    "end": Field(int, "when it ended"),
    "tid": Field(int, "the thread the time was spent on"),
    "cpu": Field(int, "on which processor, -1 if that is not known", optional=True),
    "host": Field(int, "on which of the traced hosts, counted from 0", optional=True),
    "comm": Field(str, "name of the thread"),
    "state": Field(STATE_NAME, "what it did"),
    "detail": Field(str, "qualifier of the state"),
}

_ROW = {
    "set": Field(SET_NAME, "which set the execution is of"),
    "position": Field(int, "its place there"),
    "id": Field(str, "its id"),
    "symbols": Field([int], "per column a place in the list of symbols, -1 for a gap"),
    "durations": Field([int], "per column nanoseconds, 0 for a gap"),
}

_STATISTICS = {
    **fields(
        [MAYBE],
        ("probability", "share of normal rows with the anomalous row's symbol, or gap"),
        ("normal_probability", "share of normal rows with the most common symbol"),
        ("mean", "mean duration of the normal rows that have the anomalous row's symbol (ns)"),
        ("std", "its standard deviation (ns)"),
        ("p_structure", "how many normal rows have as odd a state here, as a share"),
        ("p_duration", "how many have as odd a duration, as a share"),
    ),
    **fields(
        [int],
        ("normal_symbol", "most common symbol of the normal rows, -1 for a gap"),
        ("contribution", "number of normal rows times the column's part of the excess (ns)"),
    ),
    **fields(
        [bool],
        ("abnormal_state", "the paper's rule on the state"),
        ("abnormal_duration", "the paper's rule on the duration"),
        ("missing", "a state that most normal rows have is not there"),
        ("abnormal", "the verdict on the column"),
    ),
}

_LOOP = {
    **fields(
        int,
        ("first", "first column of the block"),
        ("last", "one past its last column"),
        ("period", "columns of one iteration"),
    ),
    "iterations": Field([int], "how often each row runs it"),
}

LOOPS: Final[list[Any]] = [Named("loop", _LOOP)]

ALIGNED: Final[dict[str, Any]] = {
    "execution": Field(str, "id of the anomalous execution, the last of the rows"),
    **fields(
        int,
        ("position", "its place in the sample set"),
        ("columns", "columns of the alignment"),
        ("left_out", "members of its normal group that were not aligned"),
    ),
    **fields(
        MAYBE,
        ("excess", "its duration less the mean of the normal rows (ns)"),
        ("unexplained", "what the findings leave of the excess (ns)"),
        ("score", "of the alignment"),
    ),
    "tree": Field(str, "guide tree, Newick"),
    "rows": Field(Items(Named("row", _ROW), 1), "normal executions, then the anomalous one"),
    "statistics": Field(Named("statistics", _STATISTICS), "of every column"),
    "note": Field(str, "what keeps the verdict on columns from being given or sharp"),
    "segments": Field([Named("segment", _SEGMENT)], "the anomalous execution's path, in order"),
    "loops": Field(LOOPS, "blocks of columns in which rows repeat one unit", optional=True),
}

_PLANE = {
    **fields(
        [_PAIR],
        ("normal", "x and y of every normal execution"),
        ("sample", "x and y of every sample execution"),
    ),
    "explained": Field(_PAIR, "shares of the variance along x and y"),
}

COMPARISON: Final[dict[str, Any]] = {
    "format": Field(Choice(("critpath/comparison/1",)), "name and version of this format"),
    "version": Field(str, "version of critpath that wrote it"),
    "verdict": Field(Choice(("ok", "anomaly", "inconclusive")), "the answer"),
    "reasons": Field(TEXTS, "why, in sentences"),
    "warnings": Field(TEXTS, "what a reader must know, in sentences"),
    "settings": Field(dict, "the settings in force"),
    "sets": Field(
        {
            "normal": Field(Named("set", SET), "what is known to be good"),
            "sample": Field(Named("set", SET), "what was judged"),
        },
        "what was compared",
    ),
    "symbols": Field([Named("symbol", _SYMBOL)], "the alphabet of the paths"),
    "states": Field([Named("state_test", _STATE_TEST)], "a test per symbol, and last the total"),
    "detection": Field(_DETECTION, "the tests as a whole"),
    "clusters": Field(
        {
            "normal": Field(Named("clusters", _CLUSTERS), "of the normal set"),
            "sample": Field(Named("clusters", _CLUSTERS), "of the sample"),
            "pairs": Field([Named("pair", _PAIRED)], "which are compared with which"),
            "notes": Field(TEXTS, "what there is to say of the pairs"),
        },
        "types of executions",
    ),
    "plane": Field((_PLANE, NONE), "count vectors on their two widest directions"),
    "outliers": Field(
        {
            "anomalous": Field(int, "sample executions that stand out"),
            "paper": Field(int, "those that stand out by the paper's rule"),
            "notes": Field(TEXTS, "what there is to say of them"),
        },
        "executions one by one",
    ),
    "executions": Field([Named("execution", _EXECUTION)], "of both sets, the normal ones first"),
    "findings": Field([Named("finding", _FINDING)], "differences of anomalous executions"),
    "causes": Field([Named("cause", _CAUSE)], "findings that have something in common"),
    "aligned": Field([Named("aligned", ALIGNED)], "anomalous executions with their groups"),
}
