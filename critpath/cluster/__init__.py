"""VectorTable -> Clustering -> ClusterPairs (Algorithm 2) -> Outliers."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.cluster.optics import cluster
    from critpath.cluster.outliers import confirm_marks, find_outliers, with_excess
    from critpath.cluster.space import distinct
    from critpath.cluster.types import find_types, labels_are_usable, normal_group, rows_of
else:
    __getattr__ = hand_on(__name__)
