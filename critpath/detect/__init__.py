"""VectorTables -> Detection (Algorithm 1; the permutation gate)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.detect.alike import make_alike
    from critpath.detect.comparability import (
        find_blocks,
        find_doubts,
        find_routes,
        find_runs,
        partial_comparison_note,
        set_warnings,
    )
    from critpath.detect.flame import FlameSets, build_flame
    from critpath.detect.grounds import find_grounds
    from critpath.detect.judging import (
        Judgement,
        is_throttled,
        judge_sets,
    )
    from critpath.detect.repairs import note_repaired_switches
    from critpath.detect.rules import RULES
    from critpath.detect.trials import calibrate
    from critpath.detect.verdict import ERROR, decide
else:
    __getattr__ = hand_on(__name__)
