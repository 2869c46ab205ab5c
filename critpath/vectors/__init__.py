"""Critical paths -> VectorTable (counts, durations)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.vectors.chains import chain_times, sum_waits
    from critpath.vectors.steps import Steps
    from critpath.vectors.table import (
        ALPHABETS,
        Coder,
        fold_interrupts,
        like_alphabet,
        tables_of,
        trips_of_both,
        vector_table,
        vectors_of,
        with_like_states,
    )
    from critpath.vectors.weather import Weather
else:
    __getattr__ = hand_on(__name__)
