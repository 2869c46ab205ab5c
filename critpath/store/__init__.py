"""Files that critpath writes, always whole: extracted critical paths, datasets of them, text."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.store.baseline import FORMAT as BASELINE_FORMAT
    from critpath.store.baseline import (
        Baseline,
        Session,
        anonymize,
        is_baseline_file,
        load_baseline,
        mean_times,
        save_baseline,
        stratified_sample,
    )
    from critpath.store.columns import FORMAT
    from critpath.store.dataset import (
        MANIFEST,
        Part,
        is_dataset,
        load_dataset,
        part_name,
        seal,
        write_part,
    )
    from critpath.store.files import (
        atomic,
        atomic_directory,
        readable,
        scratch_directory,
        write_text,
    )
    from critpath.store.reading import is_paths_file, load_paths, open_paths
    from critpath.store.sessions import (
        count_recordings,
        describe_baseline,
        drop_left_out_note,
        list_moments,
        require_new,
        split_baseline,
    )
    from critpath.store.signatures import is_counts_file, load_counts, save_signatures
    from critpath.store.writing import PathsWriter, has_stacks, save_paths, settle
else:
    __getattr__ = hand_on(__name__)
