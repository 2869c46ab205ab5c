"""Formats of files that critpath writes: extracted critical paths, datasets of them, baselines."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.store.baseline import FORMAT as BASELINE_FORMAT
    from critpath.store.columns import FORMAT
    from critpath.store.dataset import Dataset, Part
    from critpath.store.formats import MANIFEST, RESIDENT, find_format, load_sets
    from critpath.store.sessions import Baseline, Session, make_sessions
    from critpath.store.signatures import CountsFile
    from critpath.store.writing import PathsWriter, save_paths
else:
    __getattr__ = hand_on(__name__)
